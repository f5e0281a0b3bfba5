"""The same job on fewer and on more GPUs: the scaling curve, and the numbers that nothing beats in time and money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from syncline.describe.progress import Meter
from syncline.errors import SynclineError
from syncline.planning.evaluate import Evaluator
from syncline.planning.plan import Plan
from syncline.planning.search import search
from syncline.planning.space import Axes

FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)


@dataclass(frozen=True)
class SizePlan:
    """The best plan on one number of GPUs, the global batch unchanged."""

    num_gpus: int
    step_time_s: float
    tokens_per_s: float
    cost_per_token_usd: float
    """0 where nothing is priced."""
    label: str


def size_plan(plan: Plan, num_gpus: int) -> SizePlan:
    """Return a plan as the best on so many GPUs."""
    p, usd = plan.predicted, plan.cost.cost_per_token_usd if plan.cost else 0.0
    return SizePlan(num_gpus, p.step_time_s, p.tokens_per_s, usd, plan.decision.label)


def front(points: Sequence[SizePlan]) -> list[SizePlan]:
    """Return the points that no other beats in both time and price, fastest first."""
    best: list[SizePlan] = []
    for point in sorted(points, key=lambda p: (p.step_time_s, p.cost_per_token_usd)):
        if not best or point.cost_per_token_usd < best[-1].cost_per_token_usd:
            best.append(point)
    return best


def gpu_counts(num_gpus: int, per_host: int, smallest: float = 1 / 16) -> list[int]:
    """Return numbers of GPUs to try below a cluster's: halves and three quarters, in whole hosts."""
    counts = {num_gpus}
    size = num_gpus
    while size > max(num_gpus * smallest, per_host):
        counts |= {size, size * 3 // 4}
        size //= 2
    whole = {max(per_host, n // per_host * per_host) for n in counts if n >= num_gpus * smallest}
    return sorted(n for n in whole if n <= num_gpus)


def scaling(evaluator: Evaluator, best: Plan, axes: Axes) -> tuple[SizePlan, ...]:
    """Return the best plan on fractions and multiples of a plan's GPUs, where the job fits and divides."""
    per_host = evaluator.question.machine.gpus_per_host
    counts = sorted({max(1, round(best.num_gpus * factor / per_host)) * per_host for factor in FACTORS})
    found = ((count, best_on(evaluator, count, axes)) for count in counts)
    return tuple(size_plan(plan, count) for count, plan in found if plan is not None)


def best_on(evaluator: Evaluator, count: int, axes: Axes, meter: Meter | None = None) -> Plan | None:
    """Return the best plan on so many GPUs of a cluster's kind; None where the job does not divide or fit there."""
    there = evaluator.at(count)
    if there is None:
        return None
    asked = replace(there.question, job=there.question.job.model_copy(update={"gpus": None}))
    try:
        looked = search(asked, count, axes=axes, meter=meter)
    except SynclineError:  # the batch does not divide
        return None
    if not looked.complete:
        raise KeyboardInterrupt
    return there.ranked(looked.best)[0].plan if looked.best else None
