"""Local SGD every 8 steps at 100 Mb/s, streamed, beside its bound.

The rig knows `torch-local-sgd` too; measured there before, torch's own reaches 64 % of its bound.
"""

from __future__ import annotations

from typing import Any

from rig.measure_rig import rows

TASK: dict[str, Any] = {
    "worker": "periodic_worker.py",
    "rate_bps": 1e8,
    "every": 8,
    "warm_up": 16,
    "steps": 24,
    "compute_steps": 8,
    "batch": 1,
    "length": 128,
}
METHODS = ("compute", "local-sgd fp32")


def run() -> dict[str, Any]:
    """Return a row for each method: step, bytes, bound, and the bound's share of the step."""
    found = rows({**TASK, "methods": METHODS}, timeout_s=380.0)
    compute_s = found[0]["step_s"]
    return {
        "rate": "100 Mb/s", "model": "GPT, 25.4M parameters, bytes", "ranks": 4, "every": TASK["every"],
        "rows": [figure(row, compute_s, TASK["rate_bps"]) for row in found],
    }  # fmt: skip


def figure(row: dict[str, Any], compute_s: float, rate_bps: float) -> dict[str, Any]:
    """Return a row with its bound: the larger of the computation and the bytes that were sent over the rate."""
    wire_s = row["wire_bytes"] * 8 / rate_bps
    bound_s = max(compute_s, wire_s)
    return {
        "method": row["method"],
        "step_s": round(row["step_s"], 4),
        "compute_s": round(compute_s, 4),
        "wire_s": round(wire_s, 4),
        "bound_s": round(bound_s, 4),
        "bound_share": round(bound_s / row["step_s"], 3),
        "waited_s": round(row["waited_s"], 4),
        "sent_MB_per_rank_and_step": round(row["wire_bytes"] / 1e6, 3),
        "last_loss": row["last_loss"],
    }
