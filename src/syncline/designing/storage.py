"""Storage and front end beside the training network: what jobs read and write, and what carries it.

Text is read as 4 bytes a token. A checkpoint is 14 bytes a parameter (16-bit weights, master copy, two moments) and is
written within 100 s and read back within 300 s, as `syncline cost` has it. The front end is a network of its own with
one card a host, or the training network carries both; what that costs the job is executed at flow level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from syncline.describe.model import reported
from syncline.designing.point import DesignPoint
from syncline.errors import PlanError
from syncline.fabric import Fabric, load
from syncline.fabric.catalog import LinkType, load_catalog
from syncline.placing.allocation import from_list
from syncline.planning.answer import make_plan
from syncline.planning.cost.owning import own
from syncline.planning.cost.recovery import state_bytes
from syncline.sharing.pattern import training_pattern
from syncline.sharing.together import Party, Slots, TrafficBurst
from syncline.sim.flow.expand import Share
from syncline.sim.step.constants import default_constants
from syncline.sim.step.executed.footprint import Rails
from syncline.sim.step.machine import machine_from_spec
from syncline.workload.job import Job

TOKEN_BYTES = 4
FRONT_LINKS = ("25GbE", "100GbE", "200GbE", "400GbE")
FRONT_RATIO = 4.0
SERVER_Bps = 25e9
"""What one storage server gives: two ports of 100 Gb/s, assumed of parallel file systems of this decade."""
FILL = 0.8
"""Of a line that storage may fill."""
WRITE_S, RESTORE_S = 100.0, 300.0
"""In which a checkpoint is written, and read back after a failure."""


@dataclass(frozen=True)
class StorageNeed:
    """What a storage system must sustain for one job; nothing is cached on the hosts."""

    read_Bps: float
    """Samples, all GPUs together."""
    write_Bps: float
    """A checkpoint in the time allowed for it."""
    restore_Bps: float
    """The same state read back in the time allowed for a restart."""

    @reported
    def peak_Bps(self) -> float:
        return max(self.read_Bps, self.write_Bps, self.restore_Bps)


@dataclass(frozen=True)
class StorageDesign:
    """What storage must sustain for the jobs, and the front-end network that carries it."""

    need: StorageNeed
    checkpoint_bytes: float
    servers: int
    per_host_Bps: float
    link: str
    front_usd: float
    front_power_w: float
    of_training_line: float
    """The part of a host's training ports that a checkpoint would take if both went over one network."""
    converged: float | None = None
    """How much longer a step is while a checkpoint is written over the training network, in the same class."""
    converged_behind: float | None = None
    """The same with storage in a class behind training's."""


def storage_beside(point: DesignPoint, jobs: Sequence[tuple[Job, float]]) -> StorageDesign:
    """Return storage for a design, and what a checkpoint over the training network costs the first job."""
    sized = storage_design(point, jobs)
    slower = [_slowdown(point, jobs[0][0], sized, priority) for priority in (0, 1)]
    return replace(sized, converged=slower[0], converged_behind=slower[1])


def _slowdown(point: DesignPoint, job: Job, sized: StorageDesign, priority: int) -> float:
    """Return how much longer a step is while a checkpoint shares its links on the way to further hosts."""
    hosts = point.choice.num_hosts
    fabric = point.choice.build(hosts + sized.servers)
    k = default_constants()
    rails = Rails.of(fabric, k.fitted.e_net, k.fitted.e_nvl)
    plan = make_plan(point.choice.build(), job, with_actions=False).best
    domain = machine_from_spec(fabric.spec, point.num_gpus).domain
    pattern = training_pattern(fabric, rails, from_list(fabric, f"0-{hosts - 1}"), plan.decision.job(job, domain), k)
    source = np.array([fabric.gpu(host) for host in range(hosts)], np.int64)
    target = np.array([fabric.gpu(hosts + host % sized.servers) for host in range(hosts)], np.int64)
    carried = rails.carried(source, target, np.full(hosts, 1 / hosts))
    burst = TrafficBurst("checkpoint", carried, sized.need.write_Bps, 0.0, 0.0, 0.0, Share(priority=priority))
    alone = Party(rails, (pattern,), (Share(),)).alone(0)
    beside = Party(rails, (pattern,), (Share(),), bursts=(burst,)).run((Slots(),), (alone,), steps=4)
    return beside.step_s[0] / alone - 1


def storage_design(point: DesignPoint, jobs: Sequence[tuple[Job, float]]) -> StorageDesign:
    """Return storage and front end for the most demanding of the jobs on a design."""
    needs = [_need(point, job) for job, _ in jobs]
    need = max(needs, key=lambda each: each.peak_Bps)
    state = max(state_bytes(job) for job, _ in jobs)
    hosts = point.choice.num_hosts
    each = need.peak_Bps / hosts
    link = _front_link(each)
    servers = ceil(need.peak_Bps / (FILL * SERVER_Bps))
    front = _front(hosts + servers, link.name)
    owned = own(front)
    line = point.choice.nics * load_catalog().link(point.choice.link).rate_Bps
    return StorageDesign(need, state, servers, each, link.name, owned.network_usd, owned.network_power_w, each / line)


def _need(point: DesignPoint, job: Job) -> StorageNeed:
    state = state_bytes(job)
    return StorageNeed(TOKEN_BYTES / point.s_per_token, state / WRITE_S, state / RESTORE_S)


def _front_link(each_Bps: float) -> LinkType:
    catalog = load_catalog()
    for name in FRONT_LINKS:
        if each_Bps <= FILL * catalog.link(name).rate_Bps:
            return catalog.link(name)
    raise PlanError(
        f"a host would read or write {each_Bps / 1e9:.0f} GB/s; one card of {FRONT_LINKS[-1]} is the most here.",
        hint="More hosts, or a longer time for checkpoints.",
    )


def _front(hosts: int, link: str) -> Fabric:
    return load({
        "name": "front end", "hosts": max(hosts, 2), "host": {"gpu": "T4", "gpus": 1, "nics": 1, "link": link},
        "network": {"topology": "leaf-spine", "link": link, "oversubscription": FRONT_RATIO},
    })  # fmt: skip
