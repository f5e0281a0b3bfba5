"""Loss after equal tokens: plain DDP with Adam, DiLoCo every 50 steps between two sites, and 1-bit Adam.

DiLoCo and 1-bit Adam begin with 100 dense steps, as their papers do: the first hundred steps move far and in changing
directions, and an outer momentum that starts there overshoots (10 % more loss at the end of these 400 steps).
"""

from __future__ import annotations

from typing import Any

from rig.measure_rig import rows

TASK: dict[str, Any] = {
    "worker": "periodic_worker.py",
    "model": {"width": 128, "depth": 2, "num_heads": 4, "context": 64},
    "every": 50,
    "freeze": 100,
    "dense": 100,
    "lr": 1e-3,
    "warm_up": 100,
    "steps": 300,
    "batch": 2,
    "length": 64,
    "held_out": 128,
    "methods": ["ddp", "diloco int8", "diloco int4"],
}


def run() -> dict[str, Any]:
    """Return each method's held-out loss beside plain DDP's, and its bytes a step after the warm-up."""
    found = rows(TASK, timeout_s=1800.0)
    plain = found[0]
    return {
        "model": "GPT, 0.47M parameters, bytes", "ranks": "2 sites of 2", "steps": TASK["warm_up"] + TASK["steps"],
        "rows": [
            {
                "method": row["method"], "held_out_loss": round(row["held_out"], 4),
                "over_ddp": round(row["held_out"] / plain["held_out"] - 1, 4),
                "sent_kB_per_rank_and_step": round(row["wire_bytes"] / 1e3, 2),
                "of_it_across_sites_kB": round(row["across_bytes"] / 1e3, 2),
                "fewer_bytes": round(1 - row["wire_bytes"] / plain["wire_bytes"], 4),
            }
            for row in found
        ],
    }  # fmt: skip
