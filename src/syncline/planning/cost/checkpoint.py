"""Checkpoints: how often to write one, and the share of time that failures then leave. Everything takes arrays.

Failures come at random at a constant rate (MTTF M). A checkpoint stops training for d, a restart takes R, and either
may be interrupted itself. A piece of work w and its checkpoint then take M exp(R/M) (exp((w + d)/M) - 1) on average
(Daly 2006), so goodput is w over that. The best w solves w = M (1 - exp(-(w + d)/M)); Young's and Daly's formulas
approximate it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import CostError

Values: TypeAlias = NDArray[np.float64]


def young_s(checkpoint_s: ArrayLike, mttf_s: ArrayLike) -> Values:
    """Return Young's interval, the square root of 2 d M: good while it is far below the MTTF."""
    write, mttf = _checked(checkpoint_s, mttf_s)
    return np.sqrt(2 * write * mttf)


def daly_s(checkpoint_s: ArrayLike, mttf_s: ArrayLike) -> Values:
    """Return Daly's interval, three terms of the series; the MTTF itself where a checkpoint takes two of those."""
    write, mttf = _checked(checkpoint_s, mttf_s)
    ratio = write / (2 * mttf)
    series = np.sqrt(2 * write * mttf) * (1 + np.sqrt(ratio) / 3 + ratio / 9) - write
    return np.where(write < 2 * mttf, series, mttf)


def best_interval_s(checkpoint_s: ArrayLike, mttf_s: ArrayLike) -> Values:
    """Return the interval of work between checkpoints that leaves most time for training, exactly.

    0 where a checkpoint costs nothing. Newton's method on a function that rises and bends one way, from above.
    """
    write, mttf = _checked(checkpoint_s, mttf_s)
    ratio = write / mttf
    work = np.minimum(1.0, np.sqrt(2 * ratio))  # in units of the MTTF; never below the root
    for _ in range(60):
        left = np.exp(-(work + ratio))
        slope = -np.expm1(-(work + ratio))
        work = np.where(ratio > 0, work - (work - 1 + left) / np.where(slope > 0, slope, 1.0), 0.0)
    result: Values = work * mttf
    return result


def goodput(interval_s: ArrayLike, checkpoint_s: ArrayLike, mttf_s: ArrayLike, restart_s: ArrayLike = 0.0) -> Values:
    """Return the share of time that is training which is kept."""
    write, mttf = _checked(checkpoint_s, mttf_s)
    work, restart = np.asarray(interval_s, np.float64), np.asarray(restart_s, np.float64)
    if not (np.all(work > 0) and np.all(restart >= 0)):
        raise CostError(
            "the checkpoint interval must be positive, and the restart time must not be negative.", hint="Check them."
        )
    with np.errstate(over="ignore"):  # so many failures that nothing is ever done: the share is 0
        spent = mttf * np.exp(restart / mttf) * np.expm1((work + write) / mttf)
    result: Values = work / spent
    return result


def _checked(checkpoint_s: ArrayLike, mttf_s: ArrayLike) -> tuple[Values, Values]:
    write, mttf = np.asarray(checkpoint_s, np.float64), np.asarray(mttf_s, np.float64)
    if not (np.all(np.isfinite(write)) and np.all(write >= 0)):
        raise CostError(
            "the time of a checkpoint must not be negative.", hint="Give seconds, 0 if training does not wait."
        )
    if not (np.all(np.isfinite(mttf)) and np.all(mttf > 0)):
        raise CostError("the mean time to failure must be positive and finite.", hint="Give seconds.")
    return write, mttf
