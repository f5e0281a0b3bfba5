"""The small table behind the sliders: what syncline says at every setting, computed once and kept.

python tools/site/table.py           writes docs/interactive/table.json
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import syncline

PATH = Path(__file__).resolve().parents[2] / "docs" / "interactive" / "table.json"
RATES = {"100GbE": 100, "200GbE": 200, "400GbE": 400, "800GbE": 800}
RATIOS = (1, 2, 4)
FAULTS = (1.0, 0.5, 0.25)
SIZES = tuple(4**k << 20 for k in range(6))
JOB = {"model": "gpt3-2.7b", "parallel": {"zero": "none"}, "batch": {"global": 512, "micro": 1, "sequence": 2048}}


def cluster(rate: str, ratio: int, fault: float) -> dict[str, Any]:
    """Return 32 hosts of eight H100 below leaf switches; `fault` is what one NIC has left of its rate."""
    found: dict[str, Any] = {"name": "sliders", "hosts": 32, "host": {"model": "dgx-h100", "link": rate},
                             "network": f"leaf-spine {rate} {ratio}:1"}  # fmt: skip
    if fault < 1:
        found["faults"] = [{"device": "host-00/nic-0", "rate": f"{RATES[rate] * fault:g}Gbps"}]
    return found


def point(rate: str, ratio: int, fault: float) -> dict[str, Any]:
    """Return what syncline says at one setting."""
    fabric = syncline.load(cluster(rate, ratio, fault))
    ring = [syncline.simulate(fabric, "allreduce", size, algorithm="ring") for size in SIZES]
    pairs = [syncline.simulate(fabric, "alltoall", size, level="analytic") for size in (SIZES[0], SIZES[-1])]
    found = syncline.step(fabric, JOB)
    return {
        "rate": rate, "ratio": ratio, "fault": fault, "ring_s": [_short(row.time_s) for row in ring],
        "ring_link": ring[-1].limiting_link, "pairs_s": [_short(row.time_s) for row in pairs],
        "pairs_link": pairs[-1].limiting_link, "step_s": _short(found.step_time_s),
        "waiting_s": _short(found.to_json()["exposed_comm_s"]),
    }  # fmt: skip


def table() -> dict[str, Any]:
    """Return every setting."""
    settings = product(RATES, RATIOS, FAULTS)
    return {"sizes": SIZES, "rates": list(RATES), "ratios": RATIOS, "faults": FAULTS,
            "points": [point(*setting) for setting in settings]}  # fmt: skip


def _short(value: float) -> float:
    return float(f"{value:.5g}")


if __name__ == "__main__":
    PATH.write_text(json.dumps(table(), separators=(",", ":")).replace('{"rate"', '\n{"rate"') + "\n", "utf-8")
