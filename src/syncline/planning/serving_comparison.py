"""Clusters side by side for one load: what serves it on each, owned and rented mixed; also sweeps of one setting.

    compare_serving([(Candidate("b200", fabric), job), (Candidate("h100", other, cloud="nebius"), job)])

Two are a tie where it is less than 80 % sure which is cheaper, by what published rates were off and by the prices that
they do not share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from syncline.describe.model import Handle, handle, reported
from syncline.describe.progress import Meter, metered
from syncline.errors import PlanError, SynclineError
from syncline.fabric.assumed import assumed_of
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.prices import Prices
from syncline.planning.decide.apart import Doubt, doubt, ratio_sigma
from syncline.planning.decide.side_by_side import SURE, Candidate, LeftOutCluster
from syncline.planning.money import money_of
from syncline.planning.serve import Serving, plan_serving
from syncline.workload.job import Job


@dataclass(frozen=True)
class ServedCluster:
    """One cluster with the best way to serve the load on it."""

    name: str
    basis: str
    gpu: str
    num_gpus: int
    label: str
    first_token_p99_s: float
    between_tokens_p99_s: float
    busy: float
    saturates_at_requests_per_s: float
    usd_per_gpu_hour: float | None
    usd_per_million_tokens: float | None
    keeps_slo: bool
    enough_gpus: bool
    value: float | str | None = None
    tied: bool = False  # with the cheapest
    sure: float | None = None  # how probable it is that the cheapest is cheaper than this one
    doubt: Handle[Doubt | None] = handle()

    @property
    def serves(self) -> bool:
        return self.keeps_slo and self.enough_gpus

    @property
    def order(self) -> tuple[bool, float, int]:
        """What serves first, then what a token costs."""
        usd = self.usd_per_million_tokens
        return not self.serves, math.inf if usd is None else usd, self.num_gpus


@dataclass(frozen=True)
class ServingComparison:
    """All clusters, what serves the load first and the cheapest token first; a sweep keeps the order of its values."""

    question: str
    clusters: tuple[ServedCluster, ...]
    left_out: tuple[LeftOutCluster, ...]
    notes: tuple[str, ...]
    swept: str = ""

    @property
    def first(self) -> ServedCluster:
        return min(self.clusters, key=lambda row: row.order)

    @reported
    def cheapest(self) -> str | None:
        """The cheapest that serves the load within its limits; None: none does."""
        return self.first.name if self.first.serves else None


def compare_serving(
    asked: Sequence[tuple[Candidate, Job]],
    *,
    assumptions: Assumptions | None = None,
    prices: Prices | None = None,
    swept: str = "",
    meter: Meter | None = None,
) -> ServingComparison:
    """Return what serves the load on every cluster, with ties marked."""
    rows, left_out, notes, found = list[ServedCluster](), list[LeftOutCluster](), list[str](), None
    for candidate, job in metered(asked, meter):
        try:
            found = _served(candidate, job, assumptions or Assumptions(), prices)
            rows.append(_row(candidate, found))
            notes += found.assumed
        except SynclineError as error:
            left_out.append(LeftOutCluster(candidate.name, " ".join(filter(None, (error.message, error.detail)))))
        notes += [f"{candidate.name}: {text}" for text in assumed_of(candidate.fabric.spec)]
    if not rows or found is None:
        raise PlanError("no cluster was left to compare.", detail=f"{left_out[0].cluster}: {left_out[0].reason}")
    first = min(rows, key=lambda row: row.order)
    ordered = rows if swept else sorted(rows, key=lambda row: row.order)
    marked = tuple(_marked(row, first) for row in ordered)
    question = found.question if not swept else f"{found.job.model.name}, by {swept}"
    return ServingComparison(question, marked, tuple(left_out), tuple(dict.fromkeys(notes)), swept)


def _served(candidate: Candidate, job: Job, assumptions: Assumptions, prices: Prices | None) -> Serving:
    if candidate.cloud == "rent":
        money, _ = money_of(candidate.fabric, job, assumptions, prices)
        if money is None or not money.account.quotes:
            raise PlanError("nobody in the price table rents these GPUs.", hint="Give `prices`, a table of your own.")
        candidate = replace(candidate, cloud=money.account.quotes[0].cloud)
    return plan_serving(candidate.fabric, job, candidate.assumed(assumptions), prices)


def _row(candidate: Candidate, found: Serving) -> ServedCluster:
    best, sure = found.best, found.cost_interval
    p90 = sure.p90 if sure is not None else (1.0, 1.0)
    return ServedCluster(
        candidate.name, found.basis or "not priced", found.gpu, best.num_gpus, best.label, best.at.first_token_p99_s,
        best.at.between_p99_s, best.at.busy, best.saturates_at, best.usd_per_gpu_hour, best.usd_per_million,
        best.keeps_slo, best.enough, candidate.value,
        doubt=doubt("serve", found.gpu, f"{best.num_gpus} {best.label}", p90, list(found.prices)),
    )  # fmt: skip


def _marked(row: ServedCluster, first: ServedCluster) -> ServedCluster:
    one, other = row.usd_per_million_tokens, first.usd_per_million_tokens
    if row is first or not one or not other or row.serves != first.serves or not (row.doubt and first.doubt):
        return row
    sigma, gap = ratio_sigma(row.doubt, first.doubt), math.log(one / other)
    sure = NormalDist().cdf(gap / sigma) if sigma else 0.5 if gap == 0 else 1.0
    return replace(row, sure=sure, tied=sure < SURE)
