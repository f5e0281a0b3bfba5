"""What a step, a token, a run and a gap in time cost; every function takes one step time or an array of them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from syncline.errors import CostError

Times = TypeVar("Times", float, NDArray[np.float64])


def cost_per_step(step_time_s: Times, usd_per_gpu_hour: float, num_gpus: int) -> Times:
    """Return the dollars of one step.

    >>> cost_per_step(3.6, usd_per_gpu_hour=2.0, num_gpus=1000)
    2.0
    """
    check_times(step_time_s)
    return step_time_s * (usd_per_gpu_hour * num_gpus / 3600)


def cost_per_token(
    step_time_s: Times, tokens_per_step: float, usd_per_gpu_hour: float, num_gpus: int, goodput: float = 1.0
) -> Times:
    """Return the dollars of one trained token; `goodput` is the share of time that failures leave."""
    if not tokens_per_step > 0:
        raise CostError(
            f"the tokens of a step must be positive, got {tokens_per_step:g}.", hint="Give a positive number."
        )
    return cost_per_step(step_time_s, usd_per_gpu_hour, num_gpus) / (tokens_per_step * _checked(goodput))


def cost_per_run(
    step_time_s: Times, num_steps: int, usd_per_gpu_hour: float, num_gpus: int, goodput: float = 1.0
) -> Times:
    """Return the dollars of a run of so many steps, with the time that failures cost."""
    if num_steps < 1:
        raise CostError(f"the number of steps must be positive, got {num_steps}.", hint="Give a positive number.")
    return cost_per_step(step_time_s, usd_per_gpu_hour, num_gpus) * (num_steps / _checked(goodput))


def gpu_hours_lost_per_day(actual_s: Times, expected_s: float, num_gpus: int) -> Times:
    """Return GPU-hours a day that a step slower than expected wastes (negative: it is faster)."""
    check_times(actual_s)
    check_times(expected_s)
    lost: Times = (1 - expected_s / actual_s) * (24.0 * num_gpus)
    return lost


def usd_lost_per_day(actual_s: Times, expected_s: float, usd_per_gpu_hour: float, num_gpus: int) -> Times:
    """Return what a step slower than expected costs in a day of running."""
    return gpu_hours_lost_per_day(actual_s, expected_s, num_gpus) * usd_per_gpu_hour


def check_times(step_time_s: Any) -> None:
    """Raise unless every step time is positive and finite."""
    times = np.asarray(step_time_s, dtype=np.float64)
    bad = ~(np.isfinite(times) & (times > 0))
    if bad.any():
        raise CostError(f"the step time must be positive, got {times[bad].flat[0]:g} s.", hint="Write 2.1s, say.")


def _checked(goodput: float) -> float:
    if not 0 < goodput <= 1:
        raise CostError(f"goodput must be above 0 and at most 1, got {goodput:g}.")
    return goodput
