"""How much of an error things share, from published sweeps: `python -m research levels` (`--write` at the module).

    python -m research.levels --write          # sim/data/levels.yaml

Two runs of one publication on one part differ by what their levels do not share: of one model and precision by what a
run has alone, of two models by that and what a model's runs share, and so on. The median of |difference| of each
publication, as a sigma, pooled over publications by the root of their pairs, gives the sizes of the levels. The same of
nccl-tests: two sizes, two operations, two numbers of hosts of one system. Beside it stands what is won: every sweep's
runs predicted after one of them was measured, by the levels, by the plain ratio measured / predicted, and as it ships.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import yaml
from research.intervals.residuals import all_residuals, publication
from research.intervals.tables import PACKAGE
from research.published import BLIND_SETS
from research.training.observed import observed_runs, predictions

from syncline.describe.files import write_text
from syncline.sim.profile import split_words
from syncline.sim.shared import Level, Levels, Seen, Thing, learnt
from syncline.sim.step.constants import default_constants

TARGET = PACKAGE / "sim/data/levels.yaml"
HEAD = """# How much of an error, log(measured / predicted), things share that agree in some keys: standard deviations.
# Written by `python -m research.levels --write` from the published sweeps in research/data.
"""
#: What repeating a measurement gives: steps of one run, and nccl-tests in place against out of place.
NOISE = {"step": 0.01, "experts": 0.01, "collective": 0.02}
#: No level is smaller: few publications speak of some.
LEAST = 0.01
#: Doublings of size over which an error of a collective changes.
REACH = 4.0


@dataclass(frozen=True)
class Error:
    """A measured thing of one system, and what its prediction is off by."""

    system: str
    thing: Thing
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
            found["experts" if run.has_experts else "step"].append(Error(system, Thing(keys), off))
    return {kind: tuple(errors) for kind, errors in found.items()}


@cache
def collective_errors() -> tuple[Error, ...]:
    """Return the errors of published nccl-tests rows, uncalibrated."""
    rows = [row for row in all_residuals() if row.subject == "collective" and row.facets["stated"] != "calibrated"]
    return tuple(
        Error(row.publication, Thing({"op": row.facets["op"], "hosts": str(row.size)}, float(max(row.num_bytes, 1))),
              row.residual) for row in rows
    )  # fmt: skip


def sigma_between(errors: Sequence[Error], alike: Callable[[Thing, Thing], bool], most: int = 400) -> float:
    """Return the standard deviation that two things of one system differ by, each system by the root of its pairs."""
    systems: dict[str, list[Error]] = defaultdict(list)
    for error in errors:
        systems[error.system].append(error)
    found: list[tuple[float, float]] = []
    random = np.random.default_rng(1)
    for mine in systems.values():
        pairs = [(a, b) for a, b in combinations(mine, 2) if alike(a.thing, b.thing)]
        if not pairs:
            continue
        if len(pairs) > most:
            pairs = [pairs[i] for i in random.choice(len(pairs), most, replace=False)]
        typical = float(np.median([abs(a.off - b.off) for a, b in pairs])) / 0.6745 / math.sqrt(2)
        found.append((typical**2, math.sqrt(len(pairs))))
    if not found:
        return 0.0
    return math.sqrt(sum(value * weight for value, weight in found) / sum(weight for _, weight in found))


def _less(of: float, *parts: float) -> float:
    return round(math.sqrt(max(of**2 - sum(part**2 for part in parts), LEAST**2)), 3)


def step_levels(kind: str) -> dict[str, Any]:
    """Return the levels of dense steps ("step") or of those with experts."""
    errors = step_errors()[kind]

    def same(*names: str, other: Iterable[str] = ()) -> Callable[[Thing, Thing], bool]:
        return lambda a, b: all(a.keys[n] == b.keys[n] for n in names) and all(a.keys[n] != b.keys[n] for n in other)

    alone = sigma_between(errors, same("model", "precision"))
    precision = sigma_between(errors, same("model", other=("precision",)))
    model = sigma_between(errors, same("precision", other=("model",)))
    total = _total(errors)
    parts = [
        {"sigma": _less(total, model, _less(precision, alone))},
        {"sigma": _less(model, alone), "keys": ["model"]},
        {"sigma": _less(precision, alone), "keys": ["precision"]},
    ]
    return {"parts": parts, "alone": round(max(alone, LEAST), 3), "noise": NOISE[kind]}


def _total(errors: Sequence[Error]) -> float:
    """Return how far systems are off: the root mean square of their median errors and of what is within."""
    systems: dict[str, list[float]] = defaultdict(list)
    for error in errors:
        systems[error.system].append(error.off)
    middle = [float(np.median(values)) for values in systems.values()]
    return float(np.median(np.abs(middle))) / 0.6745


def collective_levels() -> dict[str, Any]:
    """Return the levels of collectives: all of a system, an operation's, a number of hosts', and both together."""
    errors = collective_errors()

    def near(a: Thing, b: Thing) -> float:
        return abs(math.log2(a.size / b.size))

    alike = sigma_between(errors, lambda a, b: a.keys == b.keys and near(a, b) <= 1)
    sizes = sigma_between(errors, lambda a, b: a.keys == b.keys and near(a, b) >= 8)
    ops = sigma_between(
        errors, lambda a, b: a.keys["hosts"] == b.keys["hosts"] and a.keys["op"] != b.keys["op"] and near(a, b) == 0
    )
    hosts = sigma_between(
        errors, lambda a, b: a.keys["op"] == b.keys["op"] and a.keys["hosts"] != b.keys["hosts"] and near(a, b) == 0
    )
    both = min(ops, hosts) / math.sqrt(2)
    total = _total(errors)
    op, host = _less(ops, alike, both), _less(hosts, alike, both)
    parts = [
        {"sigma": _less(total, op, host, both), "reach": 0},
        {"sigma": _less(sizes, op, host, both), "reach": REACH},
        {"sigma": op, "keys": ["op"], "reach": REACH},
        {"sigma": host, "keys": ["hosts"], "reach": REACH},
        {"sigma": round(both, 3), "keys": ["op", "hosts"], "reach": REACH / 2},
    ]
    return {"parts": parts, "alone": round(max(alike / 2, LEAST), 3), "noise": NOISE["collective"]}


def levels_in(data: dict[str, Any]) -> Levels:
    """Return levels from their table."""
    parts = [Level(p["sigma"], tuple(p.get("keys", ())), float(p.get("reach", 0.0))) for p in data["parts"]]
    return Levels(tuple(parts), data["alone"], data["noise"])


Scores = dict[str, tuple[float, float]]


def won(errors: Sequence[Error], levels: Levels, sweep: Callable[[Error], tuple[str, ...]]) -> dict[str, Any]:
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
            mean = learnt(levels, [Seen(given.thing, given.off)], [one.thing for one in others]).mean
            here += [(one.off, one.off - given.off, one.off - float(m)) for one, m in zip(others, mean, strict=True)]
        size = [np.abs(np.expm1([row[column] for row in here])) for column in range(3)]
        rows += [(a, b, c, 1 / (len(mine) - 1)) for a, b, c in zip(*size, strict=True)]
        more = float(np.median(size[2]) - np.median(size[1]))
        worst, lost = max(worst, more), lost + (more > 0.005)
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


def run() -> dict[str, Any]:
    """Return the levels and what they win."""
    found: dict[str, Any] = {kind: step_levels(kind) for kind in ("step", "experts")}
    found["collective"] = collective_levels()
    gains = {
        kind: won(step_errors()[kind], levels_in(found[kind]), lambda e: (e.system, e.thing.keys["model"]))
        for kind in ("step", "experts")
    }
    return {"levels": found, "won": gains}


if __name__ == "__main__":
    made = run()
    sys.stdout.write(yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=120))
    if "--write" in sys.argv:
        text = yaml.safe_dump(made["levels"], sort_keys=False, default_flow_style=None, width=120)
        write_text(TARGET, HEAD + text)
