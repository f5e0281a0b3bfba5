"""Charges: what a step, a token and a run cost, what a budget buys, and when an upgrade has paid for itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import CostError

DAYS_PER_MONTH = 365.25 / 12


def cost_per_step(step_time_s: float, usd_per_gpu_hour: float, num_gpus: int) -> float:
    """Return the dollars of one step.

    >>> cost_per_step(3.6, usd_per_gpu_hour=2.0, num_gpus=1000)
    2.0
    """
    check_time(step_time_s)
    return step_time_s * (usd_per_gpu_hour * num_gpus / 3600)


def cost_per_token(
    step_time_s: float, tokens_per_step: float, usd_per_gpu_hour: float, num_gpus: int, goodput: float = 1.0
) -> float:
    """Return the dollars of one trained token; `goodput` is the share of time that failures leave."""
    if not tokens_per_step > 0:
        raise CostError(
            f"the tokens of a step must be positive, got {tokens_per_step:g}.", hint="Give a positive number."
        )
    return cost_per_step(step_time_s, usd_per_gpu_hour, num_gpus) / (tokens_per_step * _checked(goodput))


def cost_per_run(
    step_time_s: float, num_steps: float, usd_per_gpu_hour: float, num_gpus: int, goodput: float = 1.0
) -> float:
    """Return the dollars of a run of so many steps, with the time that failures cost."""
    if num_steps < 1:
        raise CostError(f"the number of steps must be positive, got {num_steps:g}.", hint="Give a positive number.")
    return cost_per_step(step_time_s, usd_per_gpu_hour, num_gpus) * (num_steps / _checked(goodput))


def check_time(step_time_s: float) -> None:
    """Raise unless a step time is positive and finite."""
    if not (math.isfinite(step_time_s) and step_time_s > 0):
        raise CostError(f"the step time must be positive, got {step_time_s:g} s.", hint="Write 2.1s, say.")


def _checked(goodput: float) -> float:
    if not 0 < goodput <= 1:
        raise CostError(f"goodput must be above 0 and at most 1, got {goodput:g}.")
    return goodput


@dataclass(frozen=True)
class Bought:
    """What a budget buys at one price of a GPU-hour."""

    budget_usd: float
    usd_per_gpu_hour: float
    num_gpus: int
    gpu_hours: float
    num_steps: int | None
    tokens: float | None

    @property
    def days(self) -> float:
        """Days of the whole cluster."""
        return self.gpu_hours / self.num_gpus / 24

    def to_json(self) -> JsonObject:
        """Return the figures as plain data."""
        return dict(vars(self)) | {"days": self.days}


def buy(
    budget_usd: float, usd_per_gpu_hour: float, num_gpus: int, *, step_time_s: float | None = None,
    tokens_per_step: float | None = None, goodput: float = 1.0,
) -> Bought:  # fmt: skip
    """Return the GPU-hours, steps and tokens that a budget buys; one too small for a step or an hour is an error."""
    hour = usd_per_gpu_hour * num_gpus
    least = hour if step_time_s is None else hour * step_time_s / 3600 / goodput
    what = f"an hour of {num_gpus:,} GPUs" if step_time_s is None else f"one step on {num_gpus:,} GPUs"
    if not (math.isfinite(budget_usd) and budget_usd >= least and budget_usd > 0):
        shown = units.show_money(budget_usd) if math.isfinite(budget_usd) else f"{budget_usd}"
        raise CostError(
            f"a budget of {shown} buys nothing.",
            detail=f"The least that does something is {what}: {units.show_money(math.ceil(least * 100) / 100)}.",
            hint="Raise the budget, or describe a smaller cluster.",
        )
    gpu_hours = budget_usd / usd_per_gpu_hour if usd_per_gpu_hour else math.inf
    if step_time_s is None or not math.isfinite(gpu_hours):
        return Bought(budget_usd, usd_per_gpu_hour, num_gpus, gpu_hours, None, None)
    steps = int(gpu_hours * 3600 / num_gpus * goodput / step_time_s)
    tokens = steps * tokens_per_step if tokens_per_step else None
    return Bought(budget_usd, usd_per_gpu_hour, num_gpus, gpu_hours, steps, tokens)


@dataclass(frozen=True)
class Payback:
    """An upgrade judged by the GPU time it frees."""

    price_usd: float
    time_saved: float
    """Part of every step that is saved."""
    usd_per_day: float
    """Worth of the freed time."""

    @property
    def months(self) -> float:
        """Months of running until the price is earned; infinite if it never is."""
        if self.price_usd == 0:
            return 0.0
        return self.price_usd / self.usd_per_day / DAYS_PER_MONTH if self.usd_per_day > 0 else math.inf

    def to_json(self) -> JsonObject:
        """Return the figures as plain data; a payback that never comes is null."""
        return dict(vars(self)) | {"months": self.months if math.isfinite(self.months) else None}


def payback(
    price_usd: float, old_step_s: float, new_step_s: float, *, usd_per_gpu_hour: float, num_gpus: int,
    utilisation: float = 1.0,
) -> Payback:  # fmt: skip
    """Return when an upgrade of this price, which changes the step time so, has paid for itself.

    The same work then takes less GPU time. The freed time is worth `usd_per_gpu_hour`: the rent that is not paid, or
    the own cost of hours that do other work. It is worth nothing if nobody needs it.
    """
    check_time(old_step_s)
    check_time(new_step_s)
    if not (math.isfinite(price_usd) and price_usd >= 0):
        raise CostError(
            f"the price of an upgrade must not be negative, got ${price_usd:g}.", hint="Give what it costs more."
        )
    saved = 1 - new_step_s / old_step_s
    return Payback(price_usd, saved, saved * usd_per_gpu_hour * num_gpus * 24 * utilisation)
