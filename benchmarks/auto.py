"""codec="auto" on the rig: beside plain DDP and the codecs that it tries in one run, and a rate that changes.

The best fixed one is there twice: what differs between the two is noise (A/A). Each rank has one core. "alike" are
identical runs on loopback: do they decide alike, and what do they cost in processor seconds beside plain DDP?
SYNCLINE_AUTO_CASES="1 Gb/s,change" picks cases: 50 Mb/s, 100 Mb/s, 1 Gb/s, 10 Gb/s, unshaped, change, alike.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

from rig import alike_rank, network
from syncline.host.ports import meeting_port

SCRIPT = Path(__file__).resolve().parent / "rig" / "auto_rank.py"
FIXED = ["plain", "bf16", "int8"]
RUNS = 6
CASES: dict[str, dict[str, Any]] = {
    "50 Mb/s": {
        "rate_bps": 5e7,
        "fixed": FIXED,
        "steps": 4,
        "auto_steps": 60,
        "rounds": 4,
    },
    "100 Mb/s": {"rate_bps": 1e8, "fixed": FIXED, "steps": 5, "auto_steps": 50, "rounds": 3},
    "1 Gb/s": {"rate_bps": 1e9, "fixed": FIXED, "steps": 6, "auto_steps": 50, "rounds": 5},
    "10 Gb/s": {"rate_bps": 1e10, "fixed": FIXED, "steps": 6, "auto_steps": 50, "rounds": 5},
    "unshaped": {"rate_bps": None, "fixed": FIXED, "steps": 6, "auto_steps": 50, "rounds": 5},
    "change": {"rate_bps": 1e9, "then_bps": 5e7, "auto_steps": 50, "then_steps": 60},
}


def run() -> dict[str, Any]:
    """Return auto beside the others at each rate."""
    wanted = os.environ.get("SYNCLINE_AUTO_CASES", ",".join([*CASES, "alike"])).split(",")
    os.environ["PYTHONPATH"] = str(SCRIPT.parents[1])
    found: dict[str, Any] = {}
    for name in wanted:
        if name == "alike":
            found[name] = alike()
            continue
        text = network.launch(SCRIPT, json.dumps(CASES[name]), timeout_s=400.0)
        found[name] = _figures([json.loads(line) for line in text.splitlines() if line.startswith("{")])
    return {"model": "GPT of 4.8M parameters, bytes", "ranks": 4, "cases": found}


def alike() -> dict[str, Any]:
    """Return what identical runs decided, and auto's seconds over plain DDP's."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for _ in range(RUNS):
        port = meeting_port()
        with context.Pool(2) as pool:
            rows.append(pool.starmap(alike_rank.train, [(rank, port, {"settle": 60, "rounds": 5}) for rank in (0, 1)]))
    ratios = {}
    for key in ("wall_s", "cpu_s"):
        for name in ("auto", "ddp again"):
            pairs = [(max(row[name][key] for row in run), max(row["ddp"][key] for row in run)) for run in rows]
            ratios[f"{name}, {key[:-2]}"] = [round(one / other, 3) for one, other in pairs]
    return {
        "decided": [run[0]["codec"] for run in rows], "ranks_agree": all(a["codec"] == b["codec"] for a, b in rows),
        "over_ddp": ratios, "why": [run[0]["why"] for run in rows],
    }  # fmt: skip


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    by_turns = [row for row in rows if row["method"] == "by turns"]
    autos = [row for row in rows if row["method"] == "auto"]
    fixed = {row["method"]: row["median_s"] for row in rows if row not in autos and row not in by_turns}
    figures: dict[str, Any] = {"fixed_s": fixed, "auto": autos}
    for turns in by_turns:
        took, spent = turns["mean_s"], turns["processor_s"]
        again = next(name for name in took if name.endswith(" again"))
        best = again.removesuffix(" again")
        figures |= {
            "by_turns": turns,
            "best_fixed": best,
            "auto_over_best_fixed": round(took["auto"] / took[best], 3),
            "same_over_same": round(took[again] / took[best], 3),
            "processor_auto_over_best_fixed": round(spent["auto"] / spent[best], 3),
            "processor_same_over_same": round(spent[again] / spent[best], 3),
            "auto_over_plain": round(took["auto"] / took.get("plain", fixed["plain"]), 3),
        }
    return figures
