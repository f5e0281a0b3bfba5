"""The most telling cases of shared lines packet by packet: in phase, interleaved, and too full to interleave.

Two or three jobs cross one cable of 10 Gb/s between two switches. Each case is played at flow level and with every
packet, all sending at the same time and in the slots that `syncline share` chose; slowdowns are against running alone
at the same level.
"""

from __future__ import annotations

from typing import Any

import syncline
from syncline.share.interleave import SLACK
from syncline.sim.scenario import load_scenario

CABLES = [{"a": f"host-{h:02d}/nic-0", "b": f"leaf-0{h // 4}", "rate": "100Gbps"} for h in range(8)]
CLUSTER: dict[str, Any] = {
    "name": "line",
    "hosts": 8,
    "host": {"gpu": "T4", "gpus": 1, "nics": 1, "nic": "cx6", "link": "100GbE"},
    "network": {
        "topology": "explicit",
        "switches": [{"name": "leaf-00", "level": 1}, {"name": "leaf-01", "level": 1}],
        "cables": [*CABLES, {"a": "leaf-00", "b": "leaf-01", "rate": "10Gbps"}],
    },
}
REPEAT = 5
CASES: dict[str, tuple[int, float]] = {
    "two, 40 % sending": (2, 6e-3),
    "three, 25 % sending": (3, 12e-3),
    "two, 80 % sending": (2, 1e-3),
}
EXCHANGE = 5_000_000
"""Bytes: 4 ms of the line."""


def played(
    fabric: syncline.Fabric, jobs: int, compute_s: float, slots: list[tuple[float, float]], transport: str
) -> list[tuple[float, float]]:
    """Return every job's mean step beside and alone, at flow level where no transport is named."""
    parts = [
        {"name": f"job-{n}", "size": EXCHANGE, "ranks": 2, "hosts": f"{n},{4 + n}", "algorithm": "ring",
         "compute": f"{compute_s}s", "repeat": REPEAT, "start": f"{slots[n][1]}s", "period": f"{slots[n][0]}s"}
        for n in range(jobs)
    ]  # fmt: skip
    network = {} if transport else {"routing": "static", "transport": "ideal"}
    level = "packet" if transport else "flow"
    answer = syncline.scenario(load_scenario({"network": network, "jobs": parts}), cluster=fabric, level=level,
                               transport=transport or None)  # fmt: skip
    return [(job.took_s / REPEAT, job.alone_s / REPEAT) for job in answer.report.jobs]


def run() -> dict[str, Any]:
    """Return slowdowns at both levels; the prediction knows what of the line the transport fills alone, as a cap."""
    fabric = syncline.load(CLUSTER)
    rows = []
    for transport in ("dctcp", "dcqcn"):
        for name, (num, compute) in CASES.items():
            rows.append(_case(fabric, transport, name, num, compute))
    return {
        "line": "10Gbps", "cases": rows,
        "worst_gap": {t: max(row["gap"] for row in rows if row["transport"] == t) for t in ("dctcp", "dcqcn")},
    }  # fmt: skip


def _case(fabric: syncline.Fabric, transport: str, name: str, num: int, compute: float) -> dict[str, Any]:
    ((_, alone_s),) = played(fabric, 1, compute, [(0.0, 0.0)], transport)
    filled = min(1.0, EXCHANGE / 1.25e9 / (alone_s - compute))
    step = {"compute": f"{compute}s", "exchange": EXCHANGE}
    cap = f"{filled * 10}Gbps"
    told = [{"name": f"job-{n}", "step": step, "hosts": f"{n},{4 + n}", "cap": cap} for n in range(num)]
    (epoch,) = syncline.share(fabric, {"network": {"efficiency": 1.0}, "jobs": told}).epochs
    alone = epoch.jobs[0].alone_s
    apart = [(j.period_s or alone * SLACK, j.offset_s or n / num * alone) for n, j in enumerate(epoch.jobs)]
    row: dict[str, Any] = {"case": name, "transport": transport, "line_filled_alone": filled, "steering": epoch.how}
    for turn, slots in (("in_phase", [(0.0, 0.0)] * num), ("interleaved", apart)):
        row[f"{turn}_packet"] = max(a / b for a, b in played(fabric, num, compute, slots, transport))
    row["in_phase_flow"] = epoch.jobs[0].in_phase_slowdown
    row["interleaved_flow"] = max(job.slowdown for job in epoch.jobs)
    row["gain_packet"] = 1 - row["interleaved_packet"] / row["in_phase_packet"]
    row["gap"] = abs(row["in_phase_flow"] / row["in_phase_packet"] - 1)
    return row
