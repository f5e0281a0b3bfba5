"""Robust least squares with a Gaussian prior: what calibrations and the fits of the shipped constants minimise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Estimate:
    """The x that was found, and how many standard errors each is from 0, squared (Wald's statistic)."""

    x: Floats
    wald: Floats


def minimise(
    residuals: Callable[[Floats], Floats],
    sigma: Floats,
    *,
    scale: float = 0.08,
    max_rounds: int = 25,
    start: Floats | None = None,
    bounds: tuple[Floats, Floats] | None = None,
) -> Estimate:
    """Return x that makes `residuals(x)` small, with a prior N(0, sigma) on x.

    `scale` is where a residual starts to count as an outlier (soft L1), and what rows scatter by. The prior counts as
    scale * x / sigma: an x one sigma away costs as much as one residual of size `scale`, and is never an outlier.
    """
    from scipy.optimize import least_squares

    def with_prior(x: Floats) -> Floats:
        return np.concatenate((residuals(x), scale * x / sigma))

    def loss(squares: Floats) -> Floats:
        root = np.sqrt(1 + squares)
        costs = np.stack((2 * (root - 1), 1 / root, -0.5 / root**3))
        costs[:, -len(sigma) :] = squares[-len(sigma) :], np.ones(len(sigma)), np.zeros(len(sigma))
        return costs

    x = np.zeros(len(sigma)) if start is None else start
    low, high = bounds if bounds is not None else (-np.inf, np.inf)
    found = least_squares(
        with_prior, np.clip(x, low, high), bounds=(low, high), loss=cast("Any", loss), f_scale=scale,
        max_nfev=max_rounds,
    )  # fmt: skip
    slopes = cast("Floats", found.jac)
    variance = scale**2 * np.diag(np.linalg.pinv(slopes.T @ slopes))
    return Estimate(np.asarray(found.x), found.x**2 / np.maximum(variance, 1e-12))
