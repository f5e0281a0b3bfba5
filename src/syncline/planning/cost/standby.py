"""Hosts that are away: how often so many are in repair at once, and the speed that a job keeps then.

A job of n hosts loses one at a time; each comes back after a repair of mean time T, and s spares stand in meanwhile.
With k hosts away a job that waits runs at full speed up to s and not at all above; an elastic one goes on with the
replicas that are whole. Only hosts that run fail, so the share of time with k away is proportional to the product over
j < k of (rate x speed(j) x T / (j + 1)), whatever the repairs' distribution: Erlang's loss formula where the job waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from syncline.planning.cost.checkpoint import Values

#: More hosts away at once than this, beside the spares, are not followed: the job waits for the first of them.
MOST_AWAY = 63


@dataclass(frozen=True)
class Standby:
    """What replaces hosts that fail."""

    num_hosts: int
    spares: int | None  # None: one is always at hand
    losses_per_s: float  # hosts that a job which runs loses
    repair_s: float
    replica_hosts: int = 0  # hosts of one replica of an elastic job; 0: the job waits
    regrow_s: float = 0.0  # what an elastic job pays to take a host back

    @property
    def speeds(self) -> Values:
        """The speed with 0, 1, 2 ... hosts away; the last is 0."""
        spares = self.spares or 0
        if not self.replica_hosts:
            return np.append(np.ones(spares + 1), 0.0)
        missing = np.arange(1, min(self.num_hosts, MOST_AWAY) + 1)
        whole = (self.num_hosts - missing) // self.replica_hosts * self.replica_hosts / self.num_hosts
        kept = np.append(np.ones(spares + 1), whole)
        return np.append(kept[kept > 0], 0.0)

    def availability(self, rate_factor: float | Values = 1.0, repair_factor: float | Values = 1.0) -> Values:
        """Return the mean speed, with hosts that fail more or less often and repairs that take longer or shorter."""
        load = self.losses_per_s * self.repair_s * np.asarray(rate_factor) * np.asarray(repair_factor)
        if self.spares is None:
            return np.ones_like(load)
        weight, total, running = np.ones_like(load), np.zeros_like(load), np.zeros_like(load)
        speeds = self.speeds
        for away, speed in enumerate(speeds):
            regrown = away * self.regrow_s / max(self.repair_s, 1.0) if away and speed < speeds[away - 1] else 0.0
            total, running = total + weight, running + weight * speed * max(0.0, 1 - regrown)
            weight = weight * load * speed / (away + 1)
            # Only ratios count: keep the largest weight within what a float holds.
            scale = np.maximum(1.0, weight)
            weight, total, running = weight / scale, total / scale, running / scale
        result: Values = running / total
        return result

    def rented_hours(
        self, days: float | Values, repair_hours: tuple[float, ...], factor: float | Values = 1.0
    ) -> Values:
        """Return host-hours that stand in for hosts away in a run of so many days, none of them after its end."""
        run_h = np.maximum(np.asarray(days, np.float64) * 24, 1e-9)[..., None]
        away_h = np.asarray(repair_hours, np.float64)
        each = np.where(away_h <= run_h, away_h - away_h**2 / (2 * run_h), run_h / 2).mean(axis=-1)
        result: Values = self.losses_per_s * 3600 * np.asarray(factor) * run_h[..., 0] * each
        return result

    @property
    def enough(self) -> int:
        """Spares with which a job that waits is held up for less than a thousandth of the time."""
        load = self.losses_per_s * self.repair_s
        blocked, spares = 1.0, -1
        while blocked >= 1e-3:
            spares += 1
            blocked = load * blocked / (spares + 1 + load * blocked)
        return spares if math.isfinite(load) else self.num_hosts
