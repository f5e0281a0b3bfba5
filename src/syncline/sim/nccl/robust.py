"""A small robust least-squares fit in NumPy: damped Gauss-Newton on soft-L1 residuals with a Gaussian prior.

Used by calibration (six multipliers from six points) and by the fit of the shipped constants (tens of constants).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def soft_l1(residual: Floats, scale: float) -> float:
    """Return the cost of residuals: squares below `scale`, growing like absolute values above."""
    return float(np.sum(2 * scale**2 * (np.sqrt(1 + (residual / scale) ** 2) - 1)))


def minimise(
    residuals: Callable[[Floats], Floats],
    sigma: Floats,
    *,
    scale: float = 0.08,
    max_rounds: int = 25,
    start: Floats | None = None,
) -> Floats:
    """Return x that makes `residuals(x)` small, with a prior N(0, sigma) on x.

    `scale` is where a residual starts to count as an outlier. The prior counts as scale * x / sigma, so that an x one
    sigma away costs as much as one residual of size `scale`.
    """
    x = np.zeros(len(sigma)) if start is None else start.copy()

    def cost_of(value: Floats, residual: Floats) -> float:
        return soft_l1(residual, scale) + float(np.sum((scale * value / sigma) ** 2))

    residual = residuals(x)
    cost, damping = cost_of(x, residual), 1e-3
    for _ in range(max_rounds):
        jacobian = _jacobian(residuals, x, residual)
        weight = 1 / np.sqrt(1 + (residual / scale) ** 2)
        normal = jacobian.T @ (weight[:, None] * jacobian) + np.diag((scale / sigma) ** 2)
        gradient = jacobian.T @ (weight * residual) + (scale / sigma) ** 2 * x
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient).astype(np.float64)
            trial = x + np.clip(step, -1.0, 1.0)
            new = residuals(trial)
            if (new_cost := cost_of(trial, new)) < cost:
                break
            damping *= 4
        else:
            return x
        gained, x, residual, cost, damping = cost - new_cost, trial, new, new_cost, damping / 5
        if gained < 1e-5 * (1 + cost):
            return x
    return x


def _jacobian(residuals: Callable[[Floats], Floats], x: Floats, at_x: Floats) -> Floats:
    columns = []
    for index in range(len(x)):
        moved = x.copy()
        moved[index] += 1e-4
        columns.append((residuals(moved) - at_x) / 1e-4)
    return np.stack(columns, axis=1)
