"""Clusters side by side for one job, owned and rented mixed, and sweeps of one setting as curves.

    side_by_side(job, [Candidate("b200", fabric), Candidate("h100", other, cloud="nebius")])

Two clusters are a tie where it is less than 80 % sure which is cheaper: their difference is smaller than the errors of
the step model and of the prices that they do not share (`apart`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from syncline.describe import units
from syncline.describe.model import Handle, handle, reported
from syncline.describe.progress import Meter, metered
from syncline.describe.today import today
from syncline.errors import PlanError, SynclineError
from syncline.fabric.assumed import assumed_of
from syncline.fabric.fabric import Fabric
from syncline.planning.answer import PlanResult, make_plan
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.prices import Prices
from syncline.planning.decide.apart import Doubt, doubt, ratio_sigma
from syncline.planning.decide.forecast import ForecastReport
from syncline.planning.decide.prospects import run_option
from syncline.planning.decide.uncertain import prices_of
from syncline.planning.named_job import assumed_batch
from syncline.sim.step.constants import Constants
from syncline.sim.step.step import kind_of
from syncline.workload.job import Job
from syncline.workload.read_job import load_job

#: How sure it must be that one is cheaper than the other.
SURE = 0.8


@dataclass(frozen=True)
class Candidate:
    """A cluster to compare and how it is paid for: owned, rented from a cloud (`rent`: the cheapest), or at a price."""

    name: str
    fabric: Fabric
    cloud: str | None = None
    gpu_hour_usd: float | None = None  # an offer's price of a GPU-hour
    value: float | str | None = None  # of the setting that is swept
    constants: Constants | None = None  # what was measured on this part (`syncline calibrate`)

    def assumed(self, assumptions: Assumptions) -> Assumptions:
        """Return assumptions about money with how this cluster is paid for."""
        if self.gpu_hour_usd is not None:
            return assumptions.model_copy(update={"gpu_hour_usd": self.gpu_hour_usd, "cloud": None})
        rented = self.cloud and self.cloud != "rent"
        return assumptions.model_copy(update={"cloud": self.cloud}) if rented else assumptions


@dataclass(frozen=True)
class ComparedCluster:
    """One cluster with the best plan on it."""

    name: str
    basis: str
    gpu: str
    num_gpus: int
    step_time_s: float
    tokens_per_s: float
    mfu: float
    exposed_share: float
    goodput: float | None
    usd_per_gpu_hour: float | None
    cost_per_token_usd: float | None
    capital_usd: float | None
    limit: str
    label: str
    error_p90: float
    value: float | str | None = None
    run: ForecastReport | None = None
    spare_hosts: int = 0  # that `capital_usd` buys too
    tied: bool = False  # with the cheapest
    sure: float | None = None  # how probable it is that the cheapest is cheaper than this one
    doubt: Handle[Doubt | None] = handle()


@dataclass(frozen=True)
class LeftOutCluster:
    """A cluster on which the job cannot be planned."""

    cluster: str
    reason: str


@dataclass(frozen=True)
class ClusterComparison:
    """All clusters, cheapest token first; a sweep keeps the order of its values."""

    question: str
    clusters: tuple[ComparedCluster, ...]
    left_out: tuple[LeftOutCluster, ...]
    notes: tuple[str, ...]
    swept: str = ""  # the setting, where it is a sweep

    @property
    def cheapest_cluster(self) -> ComparedCluster:
        return min(self.clusters, key=_price)

    @reported
    def cheapest(self) -> str:
        return self.cheapest_cluster.name

    @reported
    def advised(self) -> str:
        """The fastest of those that tie for the cheapest token: no thin network for a price that nobody can tell."""
        tied = [row for row in self.clusters if row.tied or row is self.cheapest_cluster]
        return max(tied, key=lambda row: row.tokens_per_s).name

    @property
    def fastest_cluster(self) -> ComparedCluster:
        return max(self.clusters, key=lambda row: row.tokens_per_s)

    @reported
    def fastest(self) -> str:
        return self.fastest_cluster.name


def side_by_side(
    job: Job,
    candidates: Sequence[Candidate],
    *,
    assumptions: Assumptions | None = None,
    prices: Prices | None = None,
    swept: str = "",
    meter: Meter | None = None,
) -> ClusterComparison:
    """Return the best plan on every cluster, with ties marked."""
    planned: dict[str, PlanResult] = {}
    left_out, notes = [], []
    for candidate in metered(candidates, meter):
        try:
            planned[candidate.name] = _planned(job, candidate, assumptions or Assumptions(), prices)
        except SynclineError as error:
            left_out.append(LeftOutCluster(candidate.name, error.message))
        notes += [f"{candidate.name}: {text}" for text in assumed_of(candidate.fabric.spec)]
    # What is best on one is a candidate on all, so that a better cluster is never slower.
    won = {answer.best.decision for answer in planned.values()}
    rows = [_compared(one, planned[one.name].among(won), job) for one in candidates if one.name in planned]
    if not rows:
        raise PlanError("no cluster was left to compare.", detail=f"{left_out[0].cluster}: {left_out[0].reason}")
    ordered = rows if swept else sorted(rows, key=_price)
    first = min(rows, key=_price)
    marked = tuple(_marked(row, first) for row in ordered)
    notes += filter(None, [job.began(today()), assumed_batch(job)])
    return ClusterComparison(_question(job, swept), marked, tuple(left_out), tuple(dict.fromkeys(notes)), swept)


def swept_job(
    job: Job, candidate: Candidate, key: str, values: Sequence[object], assumptions: Assumptions,
    prices: Prices | None, meter: Meter | None = None,
) -> ClusterComparison:  # fmt: skip
    """Return one cluster under several values of one key of the job: `job.batch.global`, `job.precision`."""
    rows, left_out = [], []
    for value in metered(values, meter):
        name = f"{key} {value}"
        try:
            one = side_by_side(with_key(job, key.split(".")[1:], value), [replace(candidate, name=name)],
                               assumptions=assumptions, prices=prices)  # fmt: skip
            shown = float(value) if isinstance(value, (int, float)) else str(value)
            rows.append(replace(one.clusters[0], value=shown))
        except SynclineError as error:
            left_out.append(LeftOutCluster(name, error.detail or error.message))
    if not rows:
        raise PlanError("no value of the sweep works.", detail=f"{left_out[0].cluster}: {left_out[0].reason}")
    first = min(rows, key=_price)
    notes = tuple(f"{candidate.name}: {text}" for text in assumed_of(candidate.fabric.spec))
    marked = tuple(_marked(row, first) for row in rows)
    return ClusterComparison(_question(job, key), marked, tuple(left_out), notes, key)


def with_key(job: Job, keys: Sequence[str], value: object) -> Job:
    """Return a job with another value at a key path of its file."""
    data = job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True) | {"model": job.model}
    at = data
    for key in keys[:-1]:
        at = at.setdefault(key, {})
    at[keys[-1]] = value
    return load_job(data)


def _question(job: Job, swept: str) -> str:
    tokens = f"{job.batch.global_ * job.batch.sequence:,} tokens a step"
    whole = f"{units.show_count(job.tokens)} tokens, " if job.tokens else ""
    return f"{job.model.name}, {whole}{tokens}" + (f", by {swept}" if swept else "")


def _planned(job: Job, candidate: Candidate, assumptions: Assumptions, prices: Prices | None) -> PlanResult:
    cloud, assumed = candidate.cloud, candidate.assumed(assumptions)
    answer = make_plan(candidate.fabric, job, constants=candidate.constants, assumptions=assumed, prices=prices,
                       with_actions=False, with_run=False)  # fmt: skip
    if cloud == "rent" and answer.money is not None:
        if not answer.money.account.quotes:
            raise PlanError(
                f"nobody in the price table rents {answer.best.gpu}.", hint="Give `prices`, a table of your own."
            )
        cheapest = answer.money.account.quotes[0].cloud
        return _planned(job, replace(candidate, cloud=cheapest), assumptions, prices)
    return answer


def _compared(candidate: Candidate, answer: PlanResult, job: Job) -> ComparedCluster:
    plan, money = answer.best, answer.money
    p = plan.predicted
    run = run_option(answer.question, plan, money).forecast.report() if money is not None and job.tokens else None
    owned = money.account.owned if money is not None and money.owned else None
    low, high = p.interval.p90
    doubted = doubt(kind_of(job), plan.gpu, f"{plan.num_gpus} {p.step_time_s} {plan.decision.label}", (low, high),
                    prices_of(money) if money else [])  # fmt: skip
    return ComparedCluster(
        candidate.name, money.basis if money else "not priced", plan.gpu, plan.num_gpus, p.step_time_s, p.tokens_per_s,
        p.mfu, p.exposed_comm_s / p.step_time_s, plan.cost.goodput if plan.cost else None,
        money.usd_per_gpu_hour if money else None, plan.cost.cost_per_token_usd if plan.cost else None,
        owned.to_buy_usd if owned else None, plan.limit.words,
        plan.decision.label, math.sqrt(high / low) - 1, candidate.value, run, doubt=doubted,
        spare_hosts=owned.spare_hosts if owned else 0,
    )  # fmt: skip


def _price(row: ComparedCluster) -> float:
    return row.cost_per_token_usd if row.cost_per_token_usd is not None else math.inf


def _marked(row: ComparedCluster, first: ComparedCluster) -> ComparedCluster:
    if row is first or row.cost_per_token_usd is None or first.cost_per_token_usd is None:
        return row
    assert row.doubt is not None and first.doubt is not None
    sigma, gap = ratio_sigma(row.doubt, first.doubt), math.log(_price(row) / _price(first))
    sure = NormalDist().cdf(gap / sigma) if sigma else 0.5 if gap == 0 else 1.0
    return replace(row, sure=sure, tied=sure < SURE)
