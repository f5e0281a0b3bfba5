"""DiLoCo every 50 steps between two sites with 50 Mb/s between them, beside the step of a site alone.

`site` is DDP inside each site and nothing across: the step that no method that also talks across can beat.
"""

from __future__ import annotations

from typing import Any

from rig.measure_rig import rows

SPEED: dict[str, Any] = {
    "worker": "periodic_worker.py",
    "between_sites_bps": 5e7,
    "model": {"width": 256, "depth": 4},
    "every": 50,
    "warm_up": 10,
    "steps": 50,
    "batch": 1,
    "length": 64,
    "methods": ["site", "diloco int8", "site", "diloco int4", "site"],
}


def run() -> dict[str, Any]:
    """Return a row for each method, with its step over that of a site alone."""
    found = rows(SPEED, timeout_s=300.0)
    alone = [row["step_s"] for row in found if row["method"] == "site"]
    alone_s = sum(alone) / len(alone)
    return {
        "between_sites": "50 Mb/s", "model": "GPT, 3.4M parameters, bytes", "ranks": "2 sites of 2", "every": 50,
        "rows": [
            {
                "method": row["method"], "step_s": round(row["step_s"], 4),
                "times_site_alone": round(row["step_s"] / alone_s, 3), "waited_s": round(row["waited_s"], 4),
                "last_loss": row["last_loss"],
            }
            for row in found
        ],
    }  # fmt: skip
