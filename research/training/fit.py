"""Fit the dozen constants to published runs, whole and with each source left out.

Least squares on the logarithm of predicted over measured, soft above 6 %, each run weighted by one over the square root
of its source's runs, and a log-normal prior at every start value. Without the priors the rows choose values that fit
better and extrapolate badly (training-model notes in docs/method/training.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields

import numpy as np
import numpy.typing as npt
from research.robust import minimise
from research.training.observed import ObservedRun, predicted_s, predictions, stacked

from syncline.sim.step.constants import SIGMA, Constants, StepConstants

Floats = npt.NDArray[np.float64]
SOFT = 0.06


def fit(runs: Sequence[ObservedRun]) -> Constants:
    """Return the constants that fit these runs, starting from the priors."""
    case, measured = stacked(runs), np.log([run.measured_s for run in runs])
    groups = [f"{run.source}{' experts' if run.has_experts else ''}" for run in runs]
    sizes = Counter(groups)
    weight = np.array([1 / np.sqrt(sizes[group]) for group in groups])
    start = Constants()
    sigma = np.array([getattr(SIGMA, f.name) for f in fields(StepConstants)])

    def residuals(logs: Floats) -> Floats:
        return np.asarray(weight * (np.log(predicted_s(case, start.moved(logs))) - measured), dtype=np.float64)

    return start.moved(minimise(residuals, sigma, scale=SOFT, max_rounds=60).x)


def fittable(runs: Sequence[ObservedRun]) -> list[ObservedRun]:
    """Return the runs that may be fitted to: transformers of which nothing that matters was recalled or assumed."""
    return [run for run in runs if not run.recalled and not run.assumed and run.case is not None]


def left_out(runs: Sequence[ObservedRun]) -> dict[str, Constants]:
    """Return for each source the constants of a fit that never saw it."""
    sources = dict.fromkeys(run.source for run in runs)
    return {source: fit([run for run in fittable(runs) if run.source != source]) for source in sources}


def spread(runs: Sequence[ObservedRun], rounds: int = 40, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Return the 10th and 90th percentile of each constant over fits to resampled sources."""
    random = np.random.default_rng(seed)
    usable = fittable(runs)
    sources = sorted({run.source for run in usable})
    drawn = []
    for _ in range(rounds):
        picked = random.choice(len(sources), len(sources))
        sample = [run for number in picked for run in usable if run.source == sources[number]]
        drawn.append(list(asdict(fit(sample).fitted).values()))
    low, high = np.quantile(np.array(drawn), [0.1, 0.9], axis=0)
    return {f.name: (float(low[i]), float(high[i])) for i, f in enumerate(fields(StepConstants))}


def left_out_s(runs: Sequence[ObservedRun], by_source: dict[str, Constants], otherwise: Constants) -> Floats:
    """Return each run's time as predicted by constants that never saw its source."""
    out = np.empty(len(runs))
    for source in dict.fromkeys(run.source for run in runs):
        mine = [i for i, run in enumerate(runs) if run.source == source]
        out[mine] = predictions([runs[i] for i in mine], by_source.get(source, otherwise))
    return out
