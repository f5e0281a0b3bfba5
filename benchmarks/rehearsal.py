"""Predicted against measured in the lab: collectives on three fabrics, and training steps at two rates.

Calibrated on other sizes than those scored, on each fabric. REHEARSAL=flat,leaf-spine,two-sites,far-sites,steps picks
parts. The sites are joined by a line without latency, and once more by one of 5 ms, which a relay in user space adds.
Run it on an idle machine: ranks share the processors with everything else.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from syncline.describe.plain import plain
from syncline.errors import LabError
from syncline.rehearsal.job import Model, RehearsalJob
from syncline.rehearsal.rehearse import OperationRow, measure_programs, rehearse

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
KIB, MIB = 1 << 10, 1 << 20
FABRICS: dict[str, tuple[float, tuple[int, ...], tuple[int, ...], int]] = {
    "flat": (1.0, (256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB), (512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB), 5),
    "leaf-spine": (0.2, (256 * KIB, MIB, 4 * MIB, 16 * MIB), (512 * KIB, 2 * MIB, 8 * MIB), 5),
    "two-sites": (1.0, (256 * KIB, 768 * KIB, MIB, 3 * MIB), (512 * KIB, 2 * MIB), 5),
    "far-sites": (1.0, (256 * KIB, 768 * KIB, MIB, 3 * MIB), (512 * KIB, 2 * MIB), 3),
}
"""Scale of the rates, sizes scored, sizes calibrated on, repetitions."""
CLUSTERS = {"far-sites": "two-sites"}
CHANGED = {"two-sites": ("latency: 5ms", "latency: 100us")}
EIGHT = ("ring", "halving-doubling", "direct", "tree", "hierarchical")
FOUR = ("ring", "halving-doubling", "direct", "tree", "recursive-doubling")
STEP_SCALES = (0.1, 0.05)
MODEL = Model(width=256, depth=4, batch=2, length=64)


def run() -> dict[str, Any]:
    """Return every row with its gap, and the median and worst of those that count."""
    chosen = os.environ.get("REHEARSAL", "flat,leaf-spine,two-sites,far-sites,steps").split(",")
    figures: dict[str, Any] = {}
    try:
        scored: list[float] = []
        for name in chosen:
            if name in FABRICS:
                figures[name] = _programs(name)
                if name not in CLUSTERS:
                    scored += [abs(row["gap"]) for row in figures[name]["rows"] if row["scored"]]
        if scored:
            figures["operations"] = {"scored": len(scored), **_summary(scored)}
        if "steps" in chosen:
            figures["steps"] = _steps()
    except LabError as error:
        return {"skipped": str(error)}
    return figures


def _programs(name: str) -> dict[str, Any]:
    scale, sizes, calibrate_on, repeats = FABRICS[name]
    algorithms = FOUR if name == "flat" else EIGHT
    job = RehearsalJob(algorithms=algorithms, sizes=sizes, calibrate_on=calibrate_on, repeats=repeats)
    text = (EXAMPLES / f"lab-{CLUSTERS.get(name, name)}.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder, f"{name}.yaml")
        cluster.write_text(text.replace(*CHANGED[name]) if name in CHANGED else text)
        fitted, rows, ranks = measure_programs(str(cluster), job, scale=scale)
    gaps = [abs(row.gap) for row in rows if row.scored]
    return {
        "rates_scaled_by": scale, "ranks": ranks, "costs": fitted.costs.to_json(),
        "fit_median": fitted.median_error, "fit_worst": fitted.worst_error, **_summary(gaps),
        "rows": [_row(row) for row in rows],
    }  # fmt: skip


def _row(row: OperationRow) -> dict[str, Any]:
    return {
        "algorithm": row.algorithm, "size_bytes": row.size_bytes, "predicted_s": row.predicted_s,
        "measured_s": row.measured_s, "low_s": row.low_s, "high_s": row.high_s, "gap": row.gap,
        "calibrated_on": row.calibrated_on, "scored": row.scored,
    }  # fmt: skip


def _steps() -> dict[str, Any]:
    found: dict[str, Any] = {}
    gaps = []
    for scale in STEP_SCALES:
        job = RehearsalJob(
            algorithms=("ring", "direct"), sizes=(MIB,), calibrate_on=(512 * KIB, 2 * MIB, 4 * MIB), repeats=4,
            model=MODEL, steps=6, train_steps=0,
        )  # fmt: skip
        report = rehearse(str(EXAMPLES / "lab-flat.yaml"), job, scale=scale)
        rows = plain(report.to_json())["steps"]
        found[f"{scale * 1000:g} Mb/s"] = {"rows": rows, "cores": report.machine.num_cores}
        gaps += [abs(row["gap"]) for row in rows]
    return found | _summary(gaps)


def _summary(gaps: list[float]) -> dict[str, Any]:
    return {"median_gap": statistics.median(gaps), "worst_gap": max(gaps)} if gaps else {}
