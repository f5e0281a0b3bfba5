"""What one measurement says of others: errors of things that have something in common are partly the same.

    levels = levels_of("step")                        # data/levels.yaml: how much of an error each level shares
    found = learnt(levels, measured, wanted)          # of log(measured / predicted): mean and sigma of what is wanted
    math.exp(found.mean[0])                           # times what the model as it ships says

An error, log(measured / predicted), is taken as a sum of normal parts, one a level: what every run on a system shares,
what runs of one model share, and so on to what a run has alone. Two things share the parts of the levels in whose keys
they agree. A level with a `reach` changes with size: sizes so many doublings apart share 1/e of it. What a new
thing is off by, given what was measured, is then a normal distribution (kriging). `research/levels.py` finds the
levels' sizes from published sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from syncline.describe.own_data import own_data

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ErrorPart:
    """A part of an error that things share which agree in some keys."""

    sigma: float
    keys: tuple[str, ...] = ()
    reach: float = 0.0  # in doublings of size; 0: sizes share it whole


@dataclass(frozen=True)
class ErrorLevels:
    """All parts of an error; `noise` is what repeating a measurement gives, `alone` what a thing shares with none."""

    parts: tuple[ErrorPart, ...]
    alone: float
    noise: float

    @property
    def prior(self) -> float:
        """One standard deviation of an error of which nothing was measured."""
        return math.sqrt(sum(part.sigma**2 for part in self.parts) + self.alone**2)


@dataclass(frozen=True)
class ErrorKey:
    """What was measured or is wanted: its keys, and its size where there is one."""

    keys: Mapping[str, str]
    size: float = 1.0


@dataclass(frozen=True)
class KnownError:
    """One measurement: log(measured / predicted)."""

    thing: ErrorKey
    off: float


@dataclass(frozen=True, eq=False)
class ExpectedErrors:
    """Mean and standard deviation of the error of every wanted thing."""

    mean: Floats = field(default_factory=lambda: np.zeros(0))
    sigma: Floats = field(default_factory=lambda: np.zeros(0))


def levels_of(subject: str) -> ErrorLevels:
    """Return the levels of a subject: step, experts or collective."""
    data = own_data("sim", "data/levels.yaml")[subject]
    parts = tuple(
        ErrorPart(float(part["sigma"]), tuple(part.get("keys", ())), float(part.get("reach", 0.0)))
        for part in data["parts"]
    )
    return ErrorLevels(parts, float(data["alone"]), float(data["noise"]))


def learnt(levels: ErrorLevels, measured: Sequence[KnownError], wanted: Sequence[ErrorKey]) -> ExpectedErrors:
    """Return what is known of wanted things after measurements; what was itself measured is reproduced.

    >>> levels = ErrorLevels((ErrorPart(0.3), ErrorPart(0.1, ("model",))), alone=0.05, noise=0.01)
    >>> seen = [KnownError(ErrorKey({"model": "a", "job": "1"}), 0.2)]
    >>> things = [ErrorKey({"model": "a", "job": "1"}), ErrorKey({"model": "a", "job": "2"}), ErrorKey({"model": "b"})]
    >>> [round(float(x), 3) for x in learnt(levels, seen, things).mean]
    [0.2, 0.195, 0.175]
    """
    if not measured:
        return ExpectedErrors(np.zeros(len(wanted)), np.full(len(wanted), levels.prior))
    things = [one.thing for one in measured]
    known = _covariance(levels, things, things) + levels.noise**2 * np.eye(len(things))
    across = _covariance(levels, list(wanted), things)
    weights = np.linalg.solve(known, across.T).T
    mean = weights @ np.array([one.off for one in measured])
    left = levels.prior**2 - (weights * across).sum(axis=1)
    return ExpectedErrors(mean, np.sqrt(np.maximum(left, levels.noise**2)))


def _covariance(levels: ErrorLevels, rows: Sequence[ErrorKey], columns: Sequence[ErrorKey]) -> Floats:
    found = np.zeros((len(rows), len(columns)))
    apart = np.log2(np.array([r.size for r in rows]))[:, None] - np.log2(np.array([c.size for c in columns]))[None, :]
    for part in levels.parts:
        same = _agree(rows, columns, part.keys)
        near = np.exp(-np.abs(apart) / part.reach) if part.reach else 1.0
        found += part.sigma**2 * same * near
    names = sorted({name for thing in (*rows, *columns) for name in thing.keys})
    return np.asarray(found + levels.alone**2 * _agree(rows, columns, tuple(names)) * (apart == 0))


def _agree(rows: Sequence[ErrorKey], columns: Sequence[ErrorKey], names: tuple[str, ...]) -> Floats:
    """Return 1 where a row and a column have the same keys of these names."""
    left, right = (
        [tuple(thing.keys.get(name, "") for name in names) for thing in things] for things in (rows, columns)
    )
    numbers = {words: number for number, words in enumerate(dict.fromkeys([*left, *right]))}
    a, b = (np.array([numbers[words] for words in found]) for found in (left, right))
    return np.asarray(a[:, None] == b[None, :], np.float64)
