"""How much of an error things share, from published sweeps: `python -m research levels`.

    python -m research.levels --write          # sim/data/levels.yaml

A level's size is one of a few; of all combinations the one is kept after which other runs of a sweep are off least when
one of them was measured (the mean of median and 90th percentile), among those that lose to the plain ratio measured /
predicted in no sweep by more than `LOST`. Beside it stands what is won: as it ships, by the plain ratio, by the levels.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import yaml
from research.intervals.residuals import all_residuals, publication
from research.intervals.tables import PACKAGE
from research.published import BLIND_SETS
from research.training.observed import observed_runs, predictions

from syncline.describe.files import write_text
from syncline.sim.profile import split_words
from syncline.sim.shared import ErrorKey, ErrorLevels, ErrorPart, KnownError, learnt
from syncline.sim.step.constants import default_constants

TARGET = PACKAGE / "sim/data/levels.yaml"
HEAD = """# How much of an error, log(measured / predicted), things share that agree in some keys: standard deviations,
# and the doublings of size over which a part changes (`reach`). Written by `python -m research.levels --write`.
"""
#: What repeating a measurement gives: steps of one run, and nccl-tests in place against out of place.
NOISE = {"step": 0.01, "experts": 0.01, "collective": 0.01}
#: By how much the median error of a sweep may exceed that of the plain ratio.
LOST = 0.005
#: Standard deviations that are tried: of a system, a model's runs, a precision's, and of a run alone.
TRIED = ((0.12, 0.16, 0.25), (0.06, 0.12, 0.15), (0.03, 0.08), (0.02, 0.03, 0.06))
#: The same of collectives: sizes share a part of each over so many doublings.
COLLECTIVES = {
    "parts": [
        {"sigma": 0.2, "reach": 30.0}, {"sigma": 0.15, "keys": ["op"], "reach": 25.0},
        {"sigma": 0.15, "keys": ["hosts"], "reach": 25.0}, {"sigma": 0.15, "keys": ["op", "hosts"], "reach": 10.0},
    ],
    "alone": 0.02, "noise": NOISE["collective"],
}  # fmt: skip


@dataclass(frozen=True)
class Error:
    """A measured thing of one system, and what its prediction is off by."""

    system: str
    thing: ErrorKey
    off: float


@cache
def step_errors() -> dict[str, tuple[Error, ...]]:
    """Return the errors of published runs whose layout is known, dense and with experts."""
    found: dict[str, list[Error]] = defaultdict(list)
    for number in BLIND_SETS:
        runs = [run for run in observed_runs(number) if run.case is not None and not run.assumed and not run.recalled]
        for run, predicted in zip(runs, predictions(runs, default_constants()) if runs else [], strict=True):
            job = run.described.job
            keys = {"model": job.model.name, "precision": job.precision, "job": f"{job.recompute} {split_words(job)}",
                    "gpus": str(run.described.num_gpus)}  # fmt: skip
            system = f"{publication(run.run.source)} {run.described.machine.gpu.name}"
            off = math.log(run.measured_s / float(predicted))
            found["experts" if run.has_experts else "step"].append(Error(system, ErrorKey(keys), off))
    return {kind: tuple(errors) for kind, errors in found.items()}


@cache
def collective_errors() -> tuple[Error, ...]:
    """Return the errors of published nccl-tests rows, uncalibrated."""
    rows = [row for row in all_residuals() if row.subject == "collective" and row.facets["stated"] != "calibrated"]
    return tuple(
        Error(row.publication, ErrorKey({"op": row.facets["op"], "hosts": str(row.size)}, float(max(row.num_bytes, 1))),
              row.residual) for row in rows
    )  # fmt: skip


def step_levels(kind: str) -> dict[str, Any]:
    """Return the levels of dense steps ("step") or of those with experts."""
    errors = step_errors()[kind]
    best: tuple[float, dict[str, Any]] | None = None
    for system, model, precision, alone in product(*TRIED):
        parts = [{"sigma": system}, {"sigma": model, "keys": ["model"]}, {"sigma": precision, "keys": ["precision"]}]
        made = {"parts": parts, "alone": alone, "noise": NOISE[kind]}
        found = won(errors, levels_in(made), of_model)
        score = sum(found["levels"]) / 2 + found["lost"]
        best = min(best or (score, made), (score, made), key=lambda one: one[0])
    assert best is not None
    return best[1]


def of_model(error: Error) -> tuple[str, ...]:
    """Return the sweep of a run: its system and model."""
    return error.system, error.thing.keys["model"]


def levels_in(data: dict[str, Any]) -> ErrorLevels:
    """Return levels from their table."""
    parts = [ErrorPart(p["sigma"], tuple(p.get("keys", ())), float(p.get("reach", 0.0))) for p in data["parts"]]
    return ErrorLevels(tuple(parts), data["alone"], data["noise"])


Scores = dict[str, tuple[float, float]]


def won(errors: Sequence[Error], levels: ErrorLevels, sweep: Callable[[Error], tuple[str, ...]]) -> dict[str, Any]:
    """Return median and 90th percentile of the error of other runs of a sweep after one: as it ships, ratio, levels.

    `worst` is by how much the levels' median error exceeds that of the plain ratio in the sweep where it does most.
    """
    sweeps: dict[tuple[str, ...], list[Error]] = defaultdict(list)
    for error in errors:
        sweeps[sweep(error)].append(error)
    rows: list[tuple[float, float, float, float]] = []
    worst, lost = 0.0, 0
    for mine in sweeps.values():
        if len(mine) < 2:
            continue
        here: list[tuple[float, float, float]] = []
        for given in mine:
            others = [one for one in mine if one is not given]
            mean = learnt(levels, [KnownError(given.thing, given.off)], [one.thing for one in others]).mean
            here += [(one.off, one.off - given.off, one.off - float(m)) for one, m in zip(others, mean, strict=True)]
        size = [np.abs(np.expm1([row[column] for row in here])) for column in range(3)]
        rows += [(a, b, c, 1 / (len(mine) - 1)) for a, b, c in zip(*size, strict=True)]
        more = float(np.median(size[2]) - np.median(size[1]))
        worst, lost = max(worst, more), lost + (more > LOST)
    table = np.array(rows)
    order = {"ships": 0, "ratio": 1, "levels": 2}
    scores = {
        name: [round(_quantile(table[:, column], table[:, 3], q), 4) for q in (0.5, 0.9)]
        for name, column in order.items()
    }
    return {"sweeps": sum(len(mine) > 1 for mine in sweeps.values()), **scores, "lost": lost, "worst": round(worst, 4)}


def _quantile(values: Any, weights: Any, share: float) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][int(np.searchsorted(total, share * total[-1]))])


def across() -> dict[str, list[float]]:
    """Return median and 90th percentile of collectives' errors: other operations and hosts after one sweep, and sizes
    of a sweep after its largest, and after three of them.
    """
    systems: dict[str, dict[tuple[tuple[str, str], ...], dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for error in collective_errors():
        systems[error.system][tuple(sorted(error.thing.keys.items()))][error.thing.size] = error.off
    levels, found = levels_in(COLLECTIVES), defaultdict[str, list[float]](list)
    for series in systems.values():
        kept = [key for key in series if len(series[key]) >= 3][:8]
        for key in kept:
            sizes = sorted(series[key])
            others = [(other, size) for other in kept if other != key for size in sorted(series[other])[::3]]
            given = sizes[:: max(1, len(sizes) // 6)]
            _left(found, "others", levels, series, [(key, size) for size in given], others)
            if len(sizes) >= 5:
                three = [sizes[-1], sizes[len(sizes) // 2], sizes[1]]
                rest = [(key, size) for size in sizes if size not in three]
                _left(found, "after one", levels, series, [(key, sizes[-1])], rest)
                _left(found, "after three", levels, series, [(key, size) for size in three], rest)
    return {name: [round(float(np.quantile(values, q)), 4) for q in (0.5, 0.9)] for name, values in found.items()}


def _left(
    found: dict[str, list[float]],
    name: str,
    levels: ErrorLevels,
    series: Any,
    given: Sequence[Any],
    wanted: Sequence[Any],
) -> None:
    """Add the errors of wanted rows as they ship, and what is left of them after given ones."""
    seen = [KnownError(ErrorKey(dict(key), size), series[key][size]) for key, size in given]
    mean = learnt(levels, seen, [ErrorKey(dict(key), size) for key, size in wanted]).mean
    off = np.array([series[key][size] for key, size in wanted])
    found[f"{name}, ships"] += np.abs(np.expm1(off)).tolist()
    found[name] += np.abs(np.expm1(off - mean)).tolist()


def run() -> dict[str, Any]:
    """Return the levels and what they win."""
    found: dict[str, Any] = {kind: step_levels(kind) for kind in ("step", "experts")}
    gains = {kind: won(step_errors()[kind], levels_in(found[kind]), of_model) for kind in found}
    return {"levels": {**found, "collective": COLLECTIVES}, "won": {**gains, "collective": across()}}


if __name__ == "__main__":
    made = run()
    sys.stdout.write(yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=120))
    if "--write" in sys.argv:
        text = yaml.safe_dump(made["levels"], sort_keys=False, default_flow_style=None, width=120)
        write_text(TARGET, HEAD + text)
