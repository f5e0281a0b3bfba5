"""Which fabric should be bought for these jobs, and why that one?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.design.choice import space
from syncline.design.growth import FabricGrowth, growths
from syncline.design.reasons import flips, millions, why_lost
from syncline.design.search import Designer, DesignPoint, DesignSearch, Limits
from syncline.design.shards import Spread, run_spread
from syncline.design.storage import StorageDesign, storage_design
from syncline.errors import CostError, PlanError, UsageError
from syncline.fabric.catalog import load_catalog
from syncline.place.allocation import from_list
from syncline.plan.answer import make_plan
from syncline.plan.cost import load_assumptions
from syncline.questions.answer import Answer
from syncline.questions.step import JobSource, job_of
from syncline.share.pattern import training_pattern
from syncline.share.together import Party, Slots, TrafficBurst
from syncline.sim.flow.expand import Share
from syncline.sim.step.constants import default_constants
from syncline.sim.step.executed.footprint import Rails
from syncline.sim.step.machine import machine_from_spec
from syncline.workload.job import Job

SHOWN = 12
BUDGET_COUNTS = 5
"""Numbers of hosts that are looked at where a budget is given alone."""
DEFAULT_HOST = "dgx-h100"
MONTH = re.compile(r"^20\d\d-(0[1-9]|1[0-2])$")


@dataclass(frozen=True)
class Switching:
    """What optical circuits that move twice within a step could gain, at most."""

    label: str
    reconfiguration_s: float
    step_s: float
    gain_at_most_s: float

    @property
    def pays(self) -> bool:
        """Whether the most that can be gained is more than both moves cost."""
        return self.gain_at_most_s > 2 * self.reconfiguration_s

    def to_json(self) -> JsonObject:
        return dict(vars(self)) | {"pays": self.pays}


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
    progress: Callable[[int, int], None] | None = None,
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
    if days is not None and tokens is None:
        raise UsageError("--days needs --tokens: how much must be trained by then.", hint="Add --tokens 15T, say.")
    for name, limit in (("budget", budget), ("power", power_w), ("racks", racks), ("days", days), ("tokens", tokens)):
        if limit is not None and not limit > 0:
            raise UsageError(f"--{name} must be positive, got {limit:g}.", hint=f"Raise it, or leave --{name} out.")
    limits = Limits(budget, power_w, racks, days, tokens, survive)
    assumed, _ = load_assumptions(None, dict(assume or {}))
    designer = Designer(described, limits, assumed, Path(state) if state else None)
    grown = () if later is None else (later,) if isinstance(later, int) else tuple(later)
    _check_sites(sites, wan, bool(grown) or storage)
    if by and not MONTH.match(by):
        raise UsageError(f'--by "{by}" is not a month.', hint="Write --by 2027-06.")
    spread, choices = _spread(on), space(hosts, _counts(hosts, gpus, budget), links, sites, wan, by)
    found = run_spread(designer, choices, spread, progress) if spread else designer.run(choices, progress)
    front = found.front()
    if not front and not found.complete:
        raise PlanError(
            f"interrupted before one of {found.num_choices:,} fabrics was planned.",
            hint="Start it again; --state FILE keeps what was planned from one run to the next.",
        )
    if not front:
        why = [
            f"{count:,} break the {name}; the nearest {found.nearest[name].told}." for name, count in found.over.items()
        ]
        raise PlanError(
            f"none of {found.num_choices:,} fabrics will do.", detail=" ".join(why) or "None could be built.",
            hint="Raise the limit, or ask for other GPUs, hosts or links.",
        )  # fmt: skip
    executed = tuple(_executed(point, described) if n < checked else point for n, point in enumerate(front))
    growth, cannot = _growth(front, grown) if grown else (None, {})
    beside = _stored(front[0], described) if storage else None
    switched = tuple(one for point in front if (one := _switching(point, designer)) is not None)
    return DesignAnswer(described, executed, found, limits, growth, cannot, beside, switched)


def _spread(on: str | None) -> Spread | None:
    if on is None:
        return None
    if on != "ray":
        raise UsageError(f'--on "{on}" is not known.', hint="--on ray spreads the search over a Ray cluster.")
    from syncline.plan.rayrun import imported, ray_tasks

    ray = imported()
    return lambda function, tasks: ray_tasks(ray, function, tasks)


def _switching(point: DesignPoint, designer: Designer) -> Switching | None:
    """Return what circuits that move within a step could gain at most; None for a fabric without circuits.

    No arrangement of circuits is faster than a network that is nowhere narrower than the cards.
    """
    if not point.choice.pods:
        return None
    spent = float(point.choice.build().facts["reconfiguration_s"])
    tokens = [job.batch.global_ * job.batch.sequence for job, _ in designer.jobs]
    step_s = point.s_per_token * sum(tokens) / len(tokens)
    most = step_s * (1 - designer.ideal_s(point) / point.s_per_token)
    return Switching(point.choice.label, spent, step_s, max(most, 0.0))


def _check_sites(sites: int, wan: str, beside: bool) -> None:
    rate, comma, latency = wan.partition(",")
    if sites > 1 and not (rate.strip() and comma and latency.strip()):
        raise UsageError(
            f'{sites} sites need a line between them; "{wan}" is not one.', hint="Write --wan 400Gbps,6ms."
        )
    if sites == 1 and wan:
        raise UsageError("--wan joins several sites.", hint="Add --sites 2.")
    if sites > 1:
        units.rate(rate), units.time(latency)
        if beside:
            raise UsageError("--later and --storage are for one site.", hint="Ask for each site alone.")


def _growth(front: Sequence[DesignPoint], later: Sequence[int]) -> tuple[tuple[FabricGrowth, ...], Mapping[str, str]]:
    """Return how fabrics with the best one's hosts, cards and link grow, step by step."""
    best = front[0].choice
    per_host = front[0].num_gpus // best.num_hosts
    for before, size in zip((front[0].num_gpus, *later), later, strict=False):
        if size % per_host or size <= before:
            raise UsageError(
                f"--later {size:,} is not more whole hosts than {before:,} GPUs.", hint=f"Try {8 * before}."
            )
    alike = [
        choice
        for choice in space((best.host,), (front[0].num_gpus,), (best.link,))
        if (choice.nic, choice.nics) == (best.nic, best.nics)
    ]
    found, cannot = growths(alike, [size // per_host for size in later])
    return tuple(found), cannot


def _stored(point: DesignPoint, jobs: Sequence[tuple[Job, float]]) -> StorageDesign:
    """Return storage beside a design, and what a checkpoint over the training network costs the first job."""
    sized = storage_design(point, jobs)
    slower = [_beside_storage(point, jobs[0][0], sized, priority) for priority in (0, 1)]
    return replace(sized, converged=slower[0], converged_behind=slower[1])


def _beside_storage(point: DesignPoint, job: Job, sized: StorageDesign, priority: int) -> float:
    """Return how much longer a step is beside a checkpoint on the same links, to further hosts of the fabric."""
    hosts = point.choice.num_hosts
    fabric = point.choice.build(hosts + sized.servers)
    whole = job.model_copy(update={"gpus": None})
    k = default_constants()
    rails = Rails.of(fabric, k.fitted.e_net, k.fitted.e_nvl)
    plan = make_plan(point.choice.build(), whole, with_actions=False, execute=False).best
    domain = machine_from_spec(fabric.spec, point.num_gpus).domain
    pattern = training_pattern(fabric, rails, from_list(fabric, f"0-{hosts - 1}"), plan.decision.job(whole, domain), k)
    source = np.array([fabric.gpu(host) for host in range(hosts)], np.int64)
    target = np.array([fabric.gpu(hosts + host % sized.servers) for host in range(hosts)], np.int64)
    carried = rails.carried(source, target, np.full(hosts, 1 / hosts))
    burst = TrafficBurst("checkpoint", carried, sized.need.write_Bps, 0.0, 0.0, 0.0, Share(priority=priority))
    alone = Party(rails, (pattern,), (Share(),)).alone(0)
    beside = Party(rails, (pattern,), (Share(),), bursts=(burst,)).run((Slots(),), (alone,), steps=4)
    return beside.step_s[0] / alone - 1


def _executed(point: DesignPoint, jobs: Sequence[tuple[Job, float]]) -> DesignPoint:
    """Return a point with its jobs' best plans executed at flow level."""
    if not point.executable:
        return point
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
    most = int(budget / price)
    # Numbers that divide well: 2, 3, 5 or 7 times a power of two. The network takes its part, so not the most alone.
    counts = sorted({odd * 2**n for odd in (1, 3, 5, 7) for n in range(16) if 2 <= odd * 2**n <= most})
    if not counts:
        raise CostError(f"a budget of ${budget:,.0f} buys no two hosts of {hosts[0]}.", hint="Raise --budget.")
    return [per_host * count for count in counts[-BUDGET_COUNTS:]]
