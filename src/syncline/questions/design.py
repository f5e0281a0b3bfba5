"""Which fabric should be bought for these jobs, and why that one?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncline.describe.plain import JsonObject
from syncline.design.choice import space
from syncline.design.reasons import flips, millions, why_lost
from syncline.design.search import Designer, DesignPoint, Found, Limits
from syncline.errors import CostError, PlanError, UsageError
from syncline.fabric.catalog import load_catalog
from syncline.plan.answer import make_plan
from syncline.plan.cost import load_assumptions
from syncline.questions.answer import Answer
from syncline.questions.step import JobSource, job_of
from syncline.workload.job import Job

SHOWN = 12
DEFAULT_HOST = "dgx-h100"


@dataclass(frozen=True, eq=False)
class DesignAnswer(Answer):
    """The front of fabrics for the jobs: the cheapest token first, with what was executed at flow level."""

    jobs: tuple[tuple[Job, float], ...] = field(repr=False)
    front: tuple[DesignPoint, ...] = field(repr=False)
    found: Found = field(repr=False)
    limits: Limits = field(repr=False)

    @property
    def best(self) -> DesignPoint:
        """The fabric with the cheapest token."""
        return self.front[0]

    def cluster(self) -> JsonObject:
        """Return the best fabric as a cluster description."""
        return self.best.choice.described()

    def to_json(self) -> JsonObject:
        return {
            "jobs": [{"job": job.name, "model": job.model.name, "weight": weight} for job, weight in self.jobs],
            "choices": self.found.num_choices, "impossible": len(self.found.impossible),
            "over_limit": dict(self.found.over), "bounded": self.found.num_bounded,
            "planned": self.found.num_planned, "complete": self.found.complete,
            "front": [point.to_json() for point in self.front[:SHOWN]], "front_size": len(self.front),
            "runner_up": why_lost(self.best, self.front[1]) if len(self.front) > 1 else None,
            "millions": [dict(vars(one)) for one in millions(self.front)],
            "flips": [dict(vars(one)) for one in flips(self.front)],
            "cluster": self.cluster(),
        }  # fmt: skip


def design(
    jobs: JobSource | Sequence[JobSource],
    *,
    gpus: int | None = None,
    budget: float | None = None,
    power_w: float | None = None,
    racks: int | None = None,
    days: float | None = None,
    tokens: float | None = None,
    survive: float = 0.5,
    hosts: Sequence[str] = (DEFAULT_HOST,),
    links: Sequence[str] = (),
    weights: Sequence[float] = (),
    assume: Mapping[str, object] | None = None,
    state: str | Path | None = None,
    checked: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> DesignAnswer:
    """Search fabrics for one or several jobs and return those that nothing else beats.

    Give a number of GPUs, or a budget from which it follows. `survive` is the least share of the training that must
    remain after the worst failure of one switch. `checked` points of the front are executed at flow level.
    """
    many = [jobs] if isinstance(jobs, (str, Path, Mapping, Job)) else list(jobs)
    described = tuple(zip((job_of(job) for job in many), _weights(weights, len(many)), strict=True))
    if days is not None and tokens is None:
        raise UsageError("--days needs --tokens: how much must be trained by then.", hint="Add --tokens 15T, say.")
    limits = Limits(budget, power_w, racks, days, tokens, survive)
    assumed, _ = load_assumptions(None, dict(assume or {}))
    designer = Designer(described, limits, assumed, Path(state) if state else None)
    found = designer.run(space(hosts, _counts(hosts, gpus, budget), links), progress)
    front = found.front()
    if not front:
        why = ", ".join(f"{count:,} break the {name}" for name, count in found.over.items())
        raise PlanError(
            f"none of {found.num_choices:,} fabrics will do.", detail=why or "None could be built.",
            hint="Raise the limit, or ask for other GPUs, hosts or links.",
        )  # fmt: skip
    executed = tuple(_executed(point, described) if n < checked else point for n, point in enumerate(front))
    return DesignAnswer(described, executed, found, limits)


def _executed(point: DesignPoint, jobs: Sequence[tuple[Job, float]]) -> DesignPoint:
    """Return a point with its jobs' best plans executed at flow level."""
    fabric = point.choice.build()
    times = []
    for job, _ in jobs:
        whole = job.model_copy(update={"gpus": None})
        times.append(make_plan(fabric, whole, with_actions=False, execute=True).best.predicted.executed_s)
    return replace(point, executed_s=tuple(times))


def _weights(told: Sequence[float], count: int) -> list[float]:
    if told and (len(told) != count or min(told) <= 0):
        raise UsageError(f"{len(told)} weights for {count} jobs.", hint="Give one positive weight for each job.")
    return list(told) or [1.0] * count


def _counts(hosts: Sequence[str], gpus: int | None, budget: float | None) -> list[int]:
    """Return the numbers of GPUs to look at: the one asked for, or powers of two that a budget may buy."""
    models = [load_catalog().host(name) for name in hosts]
    per_host = models[0].num_gpus
    if gpus is not None:
        if gpus < 2 * per_host or any(gpus % model.num_gpus for model in models):
            near = max(2 * per_host, round(gpus / per_host) * per_host)
            raise UsageError(f"--gpus {gpus:,} is not at least two whole hosts of {per_host}.", hint=f"Try {near}.")
        return [gpus]
    if budget is None:
        raise UsageError("a design needs a number of GPUs or a budget.", hint="Give --gpus 1024, or --budget 40M.")
    price = min((model.price_usd or 0.0) for model in models) or 1.0
    most = int(budget / price) * per_host
    counts = [2**n for n in range(3, 18) if 2 * per_host <= 2**n <= most]
    if not counts:
        raise CostError(f"a budget of ${budget:,.0f} buys no two hosts of {hosts[0]}.", hint="Raise --budget.")
    return counts[-2:]
