"""Fabrics side by side for one job at a number of GPUs.

compare_fabrics(job, host="dgx-h100", link="NDR", num_gpus=512)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.describe.document import Document
from syncline.describe.progress import Meter, metered
from syncline.errors import PlanError, SynclineError
from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric
from syncline.fabric.load import parse_cluster
from syncline.fabric.route import Routes
from syncline.planning.answer import PlanResult, make_plan
from syncline.planning.block import PlanQuestion
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import own
from syncline.planning.decision import Split
from syncline.planning.search import search
from syncline.planning.space import USUAL, Axes
from syncline.sim.step.reach import Reach
from syncline.workload.job import Job
from syncline.workload.parallel import divisors

FABRICS = (
    "fat-tree", "rail-optimized", "rail-only", "fat-tree 2:1", "fat-tree 3:1", "fat-tree 4:1", "rail-optimized 2:1",
    "rail-optimized 4:1", "dragonfly", "torus",
)  # fmt: skip
NUM_SEEDS = 8
Devices = NDArray[np.int32]


@dataclass(frozen=True)
class ComparedFabric:
    """One fabric with the best plan on it."""

    name: str
    num_gpus: int
    step_time_s: float
    tokens_per_s: float
    mfu: float
    capital_usd: float
    network_usd: float
    usd_per_gpu_hour: float
    cost_per_token_usd: float
    label: str
    parallel: Split
    scattered_step_time_s: float
    hashed_step_time_s: float

    @property
    def short(self) -> str:
        return self.label.split(";")[0]


@dataclass(frozen=True)
class LeftOutFabric:
    """A fabric on which the job cannot be planned."""

    fabric: str
    reason: str


@dataclass(frozen=True)
class FabricRanking:
    """All fabrics, cheapest token first; the fields are the JSON."""

    question: str
    fabrics: tuple[ComparedFabric, ...]
    left_out: tuple[LeftOutFabric, ...]
    notes: tuple[str, ...]


NOTES = (
    "step: ranks in order, rack by rack, so a ring leaves a rack once, and no two flows collide.",
    "scattered: a scheduler that knows no racks. hashed: in order, but ECMP picks paths by hash (median of 8 seeds).",
    "Each is planned anew, so a split that needs less of the network may be chosen. Not seen: other jobs.",
)


def fabric_with(host: str, link: str, network: str, num_hosts: int) -> Fabric:
    """Return a cluster of alike hosts on a network given in words: `fat-tree 2:1`."""
    words: Any = f"{network} {link}"
    if network.startswith("torus"):
        words = {"topology": "torus", "link": link, "shape": list(balanced(num_hosts, 3)), "of": "hosts"}
    data = {"name": f"{network} {link}", "hosts": num_hosts, "host": host, "network": words}
    return build(parse_cluster(Document(data, {}, network)))


def balanced(count: int, dimensions: int) -> tuple[int, ...]:
    """Return dimensions whose product is a number, as equal as they can be.

    >>> balanced(64, 3)
    (4, 4, 4)
    """
    if dimensions == 1:
        return (count,)
    side = min(divisors(count), key=lambda d: abs(d - count ** (1 / dimensions)))
    return tuple(sorted((side, *balanced(count // side, dimensions - 1))))


def compare_fabrics(
    job: Job,
    *,
    host: str,
    link: str,
    num_gpus: int | None,
    fabrics: Sequence[str] = FABRICS,
    assumptions: Assumptions | None = None,
    meter: Meter | None = None,
) -> FabricRanking:
    """Return the best plan on every fabric."""
    if num_gpus is None:
        raise PlanError(
            "fabrics are compared at a number of GPUs.", hint="Give `gpus` 512; for a budget ask `syncline design`."
        )
    planned: dict[str, tuple[PlanResult, Fabric]] = {}
    left_out = []
    num_hosts = hosts_of(host, num_gpus)
    for name in metered(fabrics, meter):
        try:
            fabric = fabric_with(host, link, name, num_hosts)
            answer = make_plan(fabric, job, assumptions=assumptions, axes=USUAL, with_actions=False, with_run=False)
            planned[name] = answer, fabric
        except SynclineError as error:
            left_out.append(LeftOutFabric(name, error.message))
    # What is best on one is a candidate on all, so that a better fabric is never slower.
    won = {answer.best.decision for answer, _ in planned.values()}
    rows = [_row(name, fabric, answer.among(won), assumptions, USUAL) for name, (answer, fabric) in planned.items()]
    if not rows:
        raise PlanError("no fabric was left to compare.", detail=f"{left_out[0].fabric}: {left_out[0].reason}")
    ranked = tuple(sorted(rows, key=lambda row: row.cost_per_token_usd))
    return FabricRanking(f"{job.model.name} at {num_gpus:,} GPUs, {host} on {link}", ranked, tuple(left_out), NOTES)


def _row(name: str, fabric: Fabric, answer: PlanResult, assumptions: Assumptions | None, axes: Axes) -> ComparedFabric:
    plan, owned = answer.best, own(fabric, assumptions)
    question, reach = answer.question, answer.question.reach
    near = replace(axes, zero=(plan.decision.zero, *(z for z in ("1", "3") if z != plan.decision.zero)))
    scattered = _slower(replace(question, reach=replace(reach, placement="scattered")), answer, near)
    share = hashed_share(fabric, reach)
    hashed = _slower(replace(question, reach=replace(reach, hashed_share=share)), answer, near)
    return ComparedFabric(
        name, plan.num_gpus, plan.predicted.step_time_s, plan.predicted.tokens_per_s, plan.predicted.mfu,
        owned.capital_usd, owned.network_usd, owned.usd_per_gpu_hour,
        plan.cost.cost_per_token_usd if plan.cost else math.nan, plan.decision.label, plan.decision.parallel(),
        scattered, hashed,
    )  # fmt: skip


def _slower(question: PlanQuestion, answer: PlanResult, axes: Axes) -> float:
    """Return the step time of the best plan under a condition that the flow level has no word for.

    It is the executed step times what the closed form of the best plan under the condition adds to that of the plan.
    """
    r, p = question.reach, answer.best.predicted
    if r.hashed_share >= 1 and (r.placement == "packed" or not r.oversubscribed):
        return p.step_time_s
    found = search(question, answer.best.num_gpus, axes=axes, keep=1)
    closed_s = p.closed_form_s or p.step_time_s
    return p.step_time_s * max(1.0, found.best[0].step_s / closed_s) if found.best else math.nan


def hosts_of(host: str, num_gpus: int) -> int:
    """Return how many hosts of a model so many GPUs are."""
    per_host = fabric_with(host, "NDR", "rail-only", 1).num_gpus
    if num_gpus < 1 or num_gpus % per_host:
        near = max(per_host, round(num_gpus / per_host) * per_host)
        raise PlanError(f"{num_gpus:,} GPUs are not whole hosts of {per_host}.", hint=f"`gpus` {near} works.")
    return num_gpus // per_host


def hashed_share(fabric: Fabric, reach: Reach) -> float:
    """Return the share of a port that ECMP hashing leaves the slowest flow, median over seeds; 1: hosts differ in GPUs.

    Every GPU sends to the same GPU of the next host, as the rings of a job that fills the fabric in order do. A ring is
    as slow as its slowest flow, and exchanges wait for the slowest ring.
    """
    hosts = fabric.devices.host[fabric.gpus]
    counts = np.bincount(hosts)
    if fabric.num_hosts < 2 or counts.min() != counts.max():
        return 1.0
    grid = fabric.gpus[np.argsort(hosts, kind="stable")].reshape(fabric.num_hosts, -1)
    routes = Routes(fabric)
    source, target = grid.ravel(), np.roll(grid, -1, axis=0).ravel()
    return float(np.median([_slowest_Bps(fabric, routes, source, target, s) for s in range(NUM_SEEDS)]) / reach.nic_Bps)


def _slowest_Bps(fabric: Fabric, routes: Routes, source: Devices, target: Devices, seed: int) -> float:
    stripes = routes.num_stripes
    crossed = [routes.many(source, target, seed=seed, stripe=stripe).links for stripe in range(stripes)]
    flows = np.bincount(np.concatenate(crossed), minlength=len(fabric.links)) / stripes
    used = flows > 0
    return float((fabric.links.rate_Bps[used] / flows[used]).min())
