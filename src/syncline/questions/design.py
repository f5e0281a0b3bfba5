"""Which fabric should be bought for these jobs, and why that one?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from syncline.describe.plain import JsonObject
from syncline.describe.progress import Meter, Progress
from syncline.design.choice import check_sites, gpu_counts, space
from syncline.design.growth import FabricGrowth
from syncline.design.reasons import flips, millions, why_lost
from syncline.design.search import Designer, DesignPoint, DesignSearch, Limits
from syncline.design.shards import spread_on
from syncline.design.storage import StorageDesign
from syncline.design.study import Switching, study
from syncline.errors import UsageError
from syncline.plan.cost.assumptions import load_assumptions
from syncline.questions.answer import Answer
from syncline.questions.job import JobSource, job_of
from syncline.workload.job import Job

SHOWN = 12
DEFAULT_HOST = "dgx-h100"
MONTH = re.compile(r"^20\d\d-(0[1-9]|1[0-2])$")


@dataclass(frozen=True, eq=False)
class DesignAnswer(Answer):
    """The front of fabrics for the jobs: the cheapest token first, with what was executed at flow level."""

    jobs: tuple[tuple[Job, float], ...] = field(repr=False)
    front: tuple[DesignPoint, ...] = field(repr=False)
    found: DesignSearch = field(repr=False)
    limits: Limits = field(repr=False)
    growth: tuple[FabricGrowth, ...] | None = field(default=None, repr=False)
    """Fabrics that can grow to the later size, cheapest first; None: not asked."""
    cannot_grow: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage: StorageDesign | None = field(default=None, repr=False)
    switching: tuple[Switching, ...] = field(default=(), repr=False)

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
            "growth": None if self.growth is None else [one.to_json() for one in self.growth[:SHOWN]],
            "switching": [one.to_json() for one in self.switching[:SHOWN]],
            "storage": None if self.storage is None else self.storage.to_json(),
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
    later: int | Sequence[int] | None = None,
    storage: bool = False,
    sites: int = 1,
    wan: str = "",
    by: str = "",
    on: str | None = None,
    progress: Progress | None = None,
) -> DesignAnswer:
    """Search fabrics for one or several jobs and return those that nothing else beats.

    Give a number of GPUs, or a budget from which it follows. `survive` is the least share of the training that must
    remain after the worst failure of one switch. `checked` points of the front are executed at flow level. `later` is a
    number of GPUs to which the fabric shall grow without recabling, or several, one a step; `storage` sizes storage and
    a front end beside it. `by` is a month ("2027-06"): parts that can be bought by then are looked at too. `sites` cuts
    the hosts into as many sites, joined by a line of `wan` ("400Gbps,6ms"). `on="ray"` spreads the search over a Ray
    cluster; an interrupt leaves what was found, and `state` is where the next run goes on.
    """
    many = [jobs] if isinstance(jobs, (str, Path, Mapping, Job)) else list(jobs)
    if not many:
        raise UsageError("name a job to design for.", hint='syncline.design("llama3-70b", gpus=1024), say.')
    described = tuple(zip((job_of(job) for job in many), _weights(weights, len(many)), strict=True))
    limits = Limits(budget, power_w, racks, days, tokens, survive)
    assumed, _ = load_assumptions(None, dict(assume or {}))
    grown = () if later is None else (later,) if isinstance(later, int) else tuple(later)
    check_sites(sites, wan, bool(grown) or storage)
    if by and not MONTH.match(by):
        raise UsageError(f'`by` "{by}" is not a month.', hint="Write it as 2027-06.")
    choices = space(hosts, gpu_counts(hosts, gpus, budget), links, sites, wan, by)
    designer = Designer(described, limits, assumed, Path(state) if state else None)
    seen = study(designer, choices, checked=checked, later=grown, with_storage=storage, spread=spread_on(on),
                 meter=Meter(progress))  # fmt: skip
    return DesignAnswer(
        described, seen.front, seen.search, limits, seen.growth, seen.cannot_grow, seen.storage, seen.switching
    )


def _weights(given: Sequence[float], count: int) -> list[float]:
    if given and (len(given) != count or min(given) <= 0):
        raise UsageError(f"{len(given)} weights for {count} jobs.", hint="Give one positive weight for each job.")
    return list(given) or [1.0] * count
