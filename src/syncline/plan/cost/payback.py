"""Payback: what a faster step is worth, and when an upgrade has paid for itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.errors import CostError
from syncline.plan.cost.step_cost import check_times

DAYS_PER_MONTH = 365.25 / 12


@dataclass(frozen=True)
class Payback:
    """An upgrade judged by the GPU time it frees."""

    price_usd: float
    time_saved: float
    """Part of every step that is saved."""
    usd_per_day: float
    """Worth of the freed time, less what the upgrade costs to run."""

    @property
    def days(self) -> float:
        """Days of running until the price is earned; infinite if it never is."""
        if self.price_usd == 0:
            return 0.0
        return self.price_usd / self.usd_per_day if self.usd_per_day > 0 else math.inf

    @property
    def months(self) -> float:
        return self.days / DAYS_PER_MONTH

    def to_json(self) -> JsonObject:
        """Return the figures as plain data; a payback that never comes is null."""
        months = self.months if math.isfinite(self.months) else None
        return {
            "price_usd": self.price_usd,
            "time_saved": self.time_saved,
            "usd_per_day": self.usd_per_day,
            "months": months,
        }


def payback(
    price_usd: float,
    old_step_s: float,
    new_step_s: float,
    *,
    usd_per_gpu_hour: float,
    num_gpus: int,
    utilisation: float = 1.0,
    running_usd_per_day: float = 0.0,
) -> Payback:
    """Return when an upgrade of this price, which changes the step time so, has paid for itself.

    The same work then takes less GPU time. The freed time is worth `usd_per_gpu_hour`: the rent that is not paid, or
    the own cost of hours that do other work. It is worth nothing if nobody needs it.
    """
    check_times([old_step_s, new_step_s])
    if not (math.isfinite(price_usd) and price_usd >= 0):
        raise CostError(
            f"the price of an upgrade must not be negative, got ${price_usd:g}.", hint="Give what it costs more."
        )
    saved = 1 - new_step_s / old_step_s
    worth = saved * usd_per_gpu_hour * num_gpus * 24 * utilisation
    return Payback(price_usd, saved, worth - running_usd_per_day)


def time_saved_for_payback(
    price_usd: float, months: float, *, usd_per_gpu_hour: float, num_gpus: int, utilisation: float = 1.0
) -> float:
    """Return the part of every step that an upgrade must save to pay back in so many months; above 1: it cannot."""
    return price_usd / (months * DAYS_PER_MONTH * 24 * usd_per_gpu_hour * num_gpus * utilisation)


def saving_from_bandwidth(exposed_share: float, use_before: float, use_after: float) -> float:
    """Return the part of the cost of a model that better use of the same links saves.

    `exposed_share` of the step waits for the network at `use_before` of its rate; only that part shrinks.
    """
    if not 0 <= exposed_share <= 1 or not 0 < use_before <= 1 or not 0 < use_after <= 1:
        raise CostError("shares of time and of bandwidth must be between 0 and 1.", hint="Write 0.4 for 40 %.")
    return exposed_share * (1 - use_before / use_after)


def exposed_share_for_saving(saving: float, use_before: float, use_after: float) -> float:
    """Return the exposed share of the step at which better use saves this much; above 1: it cannot."""
    return saving / (1 - use_before / use_after) if use_after > use_before else math.inf
