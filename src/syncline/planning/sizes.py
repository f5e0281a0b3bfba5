"""The same job on fewer and on more GPUs: the scaling curve, and the numbers that nothing beats in time and money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncline.errors import SynclineError
from syncline.planning.block import PlanQuestion
from syncline.planning.money import Money
from syncline.planning.plan import Plan
from syncline.planning.search import SearchCandidate, search
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


def size_plan(
    count: int, best: SearchCandidate, tokens_per_step: int, money: Money | None, num_paid: int | None = None
) -> SizePlan:
    """Return the best candidate on so many GPUs; more of them may be paid for."""
    usd = money.cost(best.step_s, tokens_per_step, num_paid or count).cost_per_token_usd if money else 0.0
    return SizePlan(count, best.step_s, tokens_per_step / best.step_s, usd, best.decision.label)


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


def scaling(
    question: PlanQuestion, best: Plan, money: Money | None, axes: Axes, fix: Mapping[str, Any] | None = None
) -> tuple[SizePlan, ...]:
    """Return the best plan on fractions and multiples of a plan's GPUs, where the job fits and divides."""
    words = {name: value for name, value in (fix or {}).items() if name not in ("dp", "num_micro")}
    per_host = question.machine.gpus_per_host
    asked = replace(question, job=question.job.model_copy(update={"gpus": None}))
    curve = []
    for count in sorted({max(1, round(best.num_gpus * f / per_host)) * per_host for f in FACTORS}):
        try:
            looked = search(asked, count, axes=axes, fix=words, keep=1)
        except SynclineError:
            continue
        if looked.best:
            curve.append(size_plan(count, looked.best[0], best.tokens_per_step, money))
    return tuple(curve)
