"""The scaling curve: the same job, planned anew on fewer and on more GPUs of the same kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from syncline.errors import SynclineError
from syncline.plan.block import PlanQuestion
from syncline.plan.money import Money
from syncline.plan.plan import Plan
from syncline.plan.search import search
from syncline.plan.space import Axes

FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)


@dataclass(frozen=True)
class ScalePoint:
    """The best plan on one number of GPUs, the global batch unchanged."""

    num_gpus: int
    step_time_s: float
    tokens_per_s: float
    cost_per_token_usd: float | None
    label: str


def scaling(
    question: PlanQuestion, best: Plan, money: Money | None, axes: Axes, fix: Mapping[str, Any] | None = None
) -> tuple[ScalePoint, ...]:
    """Return the best plan on fractions and multiples of a plan's GPUs, where the job fits and divides."""
    words = {name: value for name, value in (fix or {}).items() if name not in ("dp", "num_micro")}
    per_host = question.machine.gpus_per_host
    found = []
    for count in sorted({max(1, round(best.num_gpus * f / per_host)) * per_host for f in FACTORS}):
        asked = replace(question, job=question.job.model_copy(update={"gpus": None}))
        try:
            looked = search(asked, count, axes=axes, fix=words, keep=1)
        except SynclineError:
            continue
        if looked.best:
            top = looked.best[0]
            usd = money.cost(top.step_s, best.tokens_per_step, count).cost_per_token_usd if money else None
            found.append(ScalePoint(count, top.step_s, best.tokens_per_step / top.step_s, usd, top.decision.label))
    return tuple(found)
