"""codec="auto" on the rig: beside plain DDP and the codecs that it tries in one run, and a rate that changes.

The best fixed one is there twice: what differs between the two is noise (A/A). Each rank has one core.
SYNCLINE_AUTO_CASES="1 Gb/s,change" picks cases: 50 Mb/s, 100 Mb/s, 1 Gb/s, 10 Gb/s, unshaped, change.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rig import network

SCRIPT = Path(__file__).resolve().parent / "rig" / "auto_rank.py"
FIXED = ["plain", "bf16", "int8"]
CASES: dict[str, dict[str, Any]] = {
    "50 Mb/s": {
        "rate_bps": 5e7,
        "fixed": FIXED,
        "steps": 4,
        "auto_steps": 60,
        "rounds": 4,
    },
    "100 Mb/s": {"rate_bps": 1e8, "fixed": FIXED, "steps": 5, "auto_steps": 26, "rounds": 3},
    "1 Gb/s": {"rate_bps": 1e9, "fixed": FIXED, "steps": 6, "auto_steps": 36, "rounds": 5},
    "10 Gb/s": {"rate_bps": 1e10, "fixed": FIXED, "steps": 6, "auto_steps": 36, "rounds": 5},
    "unshaped": {"rate_bps": None, "fixed": FIXED, "steps": 6, "auto_steps": 36, "rounds": 5},
    "change": {"rate_bps": 1e9, "then_bps": 5e7, "auto_steps": 26, "then_steps": 60},
}


def run() -> dict[str, Any]:
    """Return auto beside the others at each rate."""
    wanted = os.environ.get("SYNCLINE_AUTO_CASES", ",".join(CASES)).split(",")
    os.environ["PYTHONPATH"] = str(SCRIPT.parents[1])
    found = {}
    for name in wanted:
        text = network.launch(SCRIPT, json.dumps(CASES[name]), timeout_s=400.0)
        found[name] = _figures([json.loads(line) for line in text.splitlines() if line.startswith("{")])
    return {"model": "GPT of 4.8M parameters, bytes", "ranks": 4, "cases": found}


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
