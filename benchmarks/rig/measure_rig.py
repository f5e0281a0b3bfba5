"""Run tasks on the rig and turn its rows into figures beside their bounds."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

from rig import network

FOLDER = Path(__file__).resolve().parent
TORCH = ("ddp", "torch fp16", "torch bf16", "torch powersgd r1")


def rows(task: dict[str, Any], timeout_s: float = 380.0) -> list[dict[str, Any]]:
    """Return what rank 0 printed: a row for each rate and method, in the order they ran."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")]))
    text = network.launch(FOLDER / "inside.py", json.dumps(task), timeout_s=timeout_s)
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def figures(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each method with its speed beside plain DDP's and its own bound, all of one run.

    The bound is the larger of the computation (steps without synchronisation, in the same run) and the bytes that the
    interface counted over the rate of the link.
    """
    kept = []
    for rate in dict.fromkeys(row["rate_bps"] for row in found):
        here = [row for row in found if row["rate_bps"] == rate]
        compute_s = statistics.fmean(row["median_s"] for row in here if row["method"] == "compute")
        plain_s = statistics.fmean(row["median_s"] for row in here if row["method"] == "ddp")
        kept += [_figure(row, compute_s, plain_s) for row in here]
    return kept


def _figure(row: dict[str, Any], compute_s: float, plain_s: float) -> dict[str, Any]:
    wire_s = row["wire_bytes"] * 8 / row["rate_bps"]
    bound_s = max(compute_s, wire_s)
    return {
        "method": row["method"],
        "rate_Gbps": row["rate_bps"] / 1e9,
        "step_s": round(row["median_s"], 4),
        "cpu_s_per_rank": round(row["cpu_s"], 4),
        "compute_s": round(compute_s, 4),
        "wire_s": round(wire_s, 4),
        "bound_s": round(bound_s, 4),
        "bound_share": round(bound_s / row["median_s"], 3),
        "times_plain_ddp": round(plain_s / row["median_s"], 2),
        "sent_MB_per_rank_and_step": round(row["wire_bytes"] / 1e6, 3),
        "last_loss": row["losses"][-1],
    }
