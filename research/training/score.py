"""Errors of predicted training steps on published runs, and how many configurations a second can be priced."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from research.training.observed import observe, observed_runs, stacked
from research.training.rows import PublishedRow
from research.training.systems import TrainingSystemEntry

from syncline.questions.validate import TrainingErrors
from syncline.sim.step.case import Case
from syncline.sim.step.constants import default_constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.memory import memory
from syncline.validation.training import TrainingValidation, scored, validate_training
from syncline.validation.training_run import SkippedRow

NUM_CONFIGURATIONS = 20_000


def run() -> dict[str, Any]:
    """Return the errors, left out and in, and the speed of the cost core."""
    data: Any = TrainingErrors(validate_training()).to_json()
    found: dict[str, Any] = {"rows": data["rows"], "predicted_rows": data["predicted_rows"], "runs": data["num_runs"]}
    for group, title in (("overall", ""), ("left_out", "_left_out")):
        for kind in ("dense", "experts", "all"):
            for figure in ("median_error", "p90_error"):
                found[f"{kind}{title}_{figure}"] = data[group][kind][figure]
    found["scaling_ratio_median_error"] = data["scaling_ratios"]["median_error"]
    found["rank_correlation_median"] = data["rank"]["median"]
    return found | speed()


def validated(rows: Sequence[PublishedRow], entries: Sequence[TrainingSystemEntry], name: str) -> TrainingValidation:
    """Return published rows, read with what their text leaves open chosen as a tuned run would, and predicted."""
    observed, lost = observe(rows, entries)
    runs = [run.published for run in observed]
    skipped = [
        SkippedRow(o.row.line, o.row.text("source"), o.row.text("model"), o.row.text("metric"), o.reason) for o in lost
    ]
    return scored(name, runs, skipped, len(rows))


def speed() -> dict[str, float]:
    """Return configurations priced a CPU second, together and one by one."""
    runs = observed_runs(0)
    one = stacked(runs)
    times = -(-NUM_CONFIGURATIONS // len(runs))
    many = Case(**{f.name: np.tile(getattr(one, f.name), times) for f in fields(Case)})
    constants = default_constants()
    start = time.process_time()
    step_cost(many, constants)
    memory(many)
    together = time.process_time() - start
    cases = [run.case for run in runs if run.case is not None][:50]
    start = time.process_time()
    for case in cases:
        step_cost(case, constants)
    alone = (time.process_time() - start) / len(cases)
    return {"configurations_per_cpu_s": times * len(runs) / together, "one_by_one_us": alone * 1e6}
