"""One run of a sweep given, the others predicted: how far off they are, with the model as it ships and calibrated.

A sweep is all runs of one source, part and model (at least two): other splits, sizes, scales and precisions. Every run
is the given one in turn. Each run counts once, however long its sweep. Multipliers never see the runs they are scored
on; the constants of the model were fitted to some of the files (set 0), as it ships.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from research.training.observed import ObservedRun, observed_runs, predictions

from syncline.sim.step.calibrate import Observation, StepCalibration, calibrate
from syncline.sim.step.constants import default_constants

SETS = (0, 1, 2)
#: Recalled, assumed and guessed layouts say as much of the reading as of the model; they are scored apart.
Errors = list[tuple[float, float, float]]  # weight, calibrated, as it ships


def sweeps(runs: Sequence[ObservedRun]) -> list[list[ObservedRun]]:
    """Return the runs of one source, part and model together."""
    groups: dict[tuple[str, str, str], list[ObservedRun]] = defaultdict(list)
    for run in runs:
        if run.case is not None and not run.assumed:
            key = (run.run.source, run.described.machine.gpu.name, run.described.job.model.name)
            groups[key].append(run)
    return [group for group in groups.values() if len(group) > 1]


def scored(group: Sequence[ObservedRun]) -> Errors:
    """Return the errors of every run after every other was given."""
    measured = np.array([run.measured_s for run in group])
    shipped = predictions(group, default_constants()) / measured
    found: Errors = []
    for number, given in enumerate(group):
        assert given.case is not None
        calibration = calibrate(StepCalibration(), given.case, Observation(given.measured_s))
        ratio = predictions(group, calibration.constants()) / measured
        others = [i for i in range(len(group)) if i != number]
        found += [(1 / len(others), abs(ratio[i] - 1), abs(shipped[i] - 1)) for i in others]
    return found


def quantile(found: Errors, column: int, share: float) -> float:
    """Return a weighted quantile of one column."""
    rows = sorted((row[column], row[0]) for row in found)
    weight = np.cumsum([w for _, w in rows])
    return float(rows[int(np.searchsorted(weight, share * weight[-1]))][0])


def run() -> dict[str, Any]:
    """Return median and 90th percentile, dense and with experts, over all files and each."""
    out: dict[str, Any] = {}
    all_found: dict[str, Errors] = defaultdict(list)
    for blind_set in SETS:
        runs = observed_runs(blind_set)
        for group in sweeps(runs):
            kind = "experts" if group[0].has_experts else "dense"
            found = scored(group)
            all_found[kind] += found
            all_found[f"set {blind_set} {kind}"] += found
    for kind, found in all_found.items():
        out[kind] = {
            "num_predictions": len(found),
            "calibrated_median_error": quantile(found, 1, 0.5), "calibrated_p90_error": quantile(found, 1, 0.9),
            "shipped_median_error": quantile(found, 2, 0.5), "shipped_p90_error": quantile(found, 2, 0.9),
        }  # fmt: skip
    return out
