"""The costs of hosts, fitted to a short sweep: least squares on the logarithm of the times.

A point further off than `TRUSTED` counts as its distance, not as its square: another process that took a processor for
a moment must not bend the costs of all.

fitted = fit([Point(script, 0.0213), ...])
fitted.costs, fitted.median_error, fitted.worst_error
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncline.errors import SimulationError
from syncline.sim.emulate.emulation import HostCosts, Script, predict
from syncline.sim.flow.engine import Floats

BOUNDS = {
    "latency_s": (1e-6, 0.05),
    "post_s": (1e-6, 0.01),
    "add_s_per_byte": (1e-11, 2e-9),
    "start_s": (1e-6, 0.05),
    "efficiency": (0.5, 1.0),
}
"""Beyond these a fit has gone astray: a millisecond a message is a busy machine, 50 ms is none; adding at less than
500 MB/s is a link that loses some of its rate, which `efficiency` is there for."""
MAX_STEPS = 25
TRUSTED = 0.05
"""Distance, on the logarithm, up to which a point is taken at its word (Huber's rule)."""


@dataclass(frozen=True, eq=False)
class TimedOperation:
    """One measured operation: its script, and the median of its times."""

    script: Script
    time_s: float


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted costs, with predicted over measured - 1 of each point they were fitted to."""

    costs: HostCosts
    error: Floats

    @property
    def median_error(self) -> float:
        """The median of the errors' magnitudes."""
        return float(np.median(np.abs(self.error)))

    @property
    def worst_error(self) -> float:
        """The largest error's magnitude."""
        return float(np.abs(self.error).max())


def fit(points: Sequence[TimedOperation], start: HostCosts | None = None) -> Fit:
    """Return the costs that explain the points best (Huber's loss, all costs on a logarithmic scale)."""
    from scipy.optimize import least_squares

    if len(points) < len(BOUNDS):
        raise SimulationError(
            f"{len(points)} measurements cannot tell {len(BOUNDS)} costs apart.", hint="Measure more sizes."
        )
    if any(not point.time_s > 0 for point in points):
        raise SimulationError("a measured time must be above 0.")
    low, high = (np.log(np.array([bound[k] for bound in BOUNDS.values()])) for k in (0, 1))
    x: Floats = np.clip(np.log(np.array(list((start or HostCosts()).to_json().values()))), low, high)
    measured = np.log(np.array([point.time_s for point in points]))

    def errors(at: Floats) -> Floats:
        costs = _costs(at)
        return np.asarray(np.log(np.array([predict(point.script, costs) for point in points])) - measured)

    found = least_squares(errors, x, bounds=(low, high), loss="huber", f_scale=TRUSTED, max_nfev=MAX_STEPS)
    return Fit(_costs(found.x), np.expm1(errors(found.x)))


def _costs(x: Floats) -> HostCosts:
    return HostCosts(*(float(value) for value in np.exp(x)))
