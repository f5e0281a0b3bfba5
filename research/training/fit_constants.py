"""Fit the step model's constants to the published runs that ship, and write them with what they were fitted on.

`python -m research.training.fit_constants --write` replaces src/syncline/sim/data/training_constants.yaml.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from research.training.fit import Floats, fit, fittable, left_out, left_out_s, spread
from research.training.observed import observed_runs

from syncline.sim.step.constants import SIGMA, Constants, StepConstants
from syncline.validation.training import RunErrors

TARGET = Path(__file__).parents[2] / "src/syncline/sim/data/training_constants.yaml"
HEAD = """# Constants of the step model, written by `python -m research.training.fit_constants --write`.
# Their meanings: docs/method/training.md.
# fitted: the dozen that were fitted, all to the same runs; nothing is fitted per source or per row.
"""


def fitted_values(constants: Constants) -> dict[str, float]:
    """Return the fitted constants, rounded to what the rows can tell."""
    return {name: float(f"{value:.4g}") for name, value in asdict(constants.fitted).items()}


def document() -> dict[str, Any]:
    """Return everything that the file of constants holds."""
    runs = observed_runs(0)
    used = fittable(runs)
    without = left_out(runs)
    ratio = left_out_s(runs, without, fit(used)) / np.array([run.measured_s for run in runs])
    experts = np.array([run.has_experts for run in runs])
    return {
        "fitted": fitted_values(fit(used)),
        "fitted_on": {
            "file": "research/data/training-runs.csv, set 0",
            "runs": len(used),
            "not_used": "runs of which shape or layout cells were recalled",
            "sources": sorted({run.source for run in used}),
        },
        "start": asdict(StepConstants()),
        "prior_sigma": asdict(SIGMA),
        "spread_10_90": {name: [float(f"{v:.3g}") for v in pair] for name, pair in spread(runs).items()},
        "left_out_errors": {"dense": _errors(ratio[~experts]), "experts": _errors(ratio[experts])},
        "left_out": {source: fitted_values(constants) for source, constants in without.items()},
    }


def _errors(ratio: Floats) -> dict[str, float]:
    found = RunErrors.of(ratio)
    return {"median": float(f"{found.median_error:.3g}"), "p90": float(f"{found.p90_error:.3g}")}


def run() -> dict[str, Any]:
    """Return the constants of a fresh fit."""
    return {f"constant_{name}": value for name, value in document()["fitted"].items()}


if __name__ == "__main__":
    text = HEAD + yaml.safe_dump(document(), sort_keys=False, width=120)
    if "--write" in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
