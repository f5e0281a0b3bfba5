"""Budget: what a sum of money buys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import CostError


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
    budget_usd: float,
    usd_per_gpu_hour: float,
    num_gpus: int,
    *,
    step_time_s: float | None = None,
    tokens_per_step: float | None = None,
    goodput: float = 1.0,
) -> Bought:
    """Return the GPU-hours, steps and tokens that a budget buys; one too small for a step or an hour is an error."""
    hour = usd_per_gpu_hour * num_gpus
    least = hour if step_time_s is None else hour * step_time_s / 3600 / goodput
    what = f"an hour of {num_gpus:,} GPUs" if step_time_s is None else f"one step on {num_gpus:,} GPUs"
    if not (math.isfinite(budget_usd) and budget_usd >= least and budget_usd > 0):
        raise CostError(
            f"a budget of {_money(budget_usd)} buys nothing.",
            detail=f"The least that does something is {what}: {units.show_money(math.ceil(least * 100) / 100)}.",
            hint="Raise the budget, or describe a smaller cluster.",
        )
    gpu_hours = budget_usd / usd_per_gpu_hour if usd_per_gpu_hour else math.inf
    if step_time_s is None or not math.isfinite(gpu_hours):
        return Bought(budget_usd, usd_per_gpu_hour, num_gpus, gpu_hours, None, None)
    steps = int(gpu_hours * 3600 / num_gpus * goodput / step_time_s)
    tokens = steps * tokens_per_step if tokens_per_step else None
    return Bought(budget_usd, usd_per_gpu_hour, num_gpus, gpu_hours, steps, tokens)


def _money(usd: float) -> str:
    return units.show_money(usd) if math.isfinite(usd) else f"{usd}"
