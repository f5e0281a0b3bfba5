"""The judge: how long a step takes with units on seats in a given order, executed at flow level."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np

from syncline.fabric import Fabric
from syncline.placing.allocation import Allocation
from syncline.placing.seats import Order, Seats, seats_of
from syncline.sim.flow.routing import Routing
from syncline.sim.reach import fabric_reach
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.executed.execute import StepRun, check_executable, execute_stages
from syncline.sim.step.executed.footprint import BETWEEN, Rails
from syncline.sim.step.executed.stages import Stages
from syncline.sim.step.machine import Machine, machine_from_spec
from syncline.sim.step.reach import layout_reach
from syncline.sim.step.step import StepResult, step
from syncline.workload.job import Job

ENDLESS_Bps = 1e18
PROBE = 0.25
"""How much slower a kind of traffic is made to see what that costs the step."""


def machine_of_allocation(fabric: Fabric, allocation: Allocation) -> Machine:
    """Return one rank's share of the hosts of an allocation, the slowest of them setting the pace."""
    machine = machine_from_spec(fabric.spec, allocation.num_gpus)
    dies = max(machine.gpu.num_dies, 1)
    hosts = np.array(allocation.hosts, dtype=np.int64)
    nic = machine.nic_Bps
    if len(hosts) > 1 and fabric_reach(fabric).hosts.exit_Bps.any():
        found = fabric_reach(fabric)
        even = found.even_hosts_Bps(hosts)
        gpus = int(found.hosts.gpus[found.hosts.of_host[hosts]].max())
        nic = min(nic, even / max(gpus, 1) / dies)
    return replace(machine, nic_Bps=nic, upper_Bps=nic,
                   reach=layout_reach(fabric, nic, machine.hop_s, machine.domain, dies))  # fmt: skip


class Judge:
    """Executes a job's step on orders of an allocation's units; orders that are alike are executed once."""

    def __init__(
        self, fabric: Fabric, allocation: Allocation, job: Job, routing: Routing = "spray",
        constants: Constants | None = None, *, rails: Rails | None = None,
    ) -> None:  # fmt: skip
        self.fabric, self.routing = fabric, routing
        self.constants = constants or default_constants()
        machine = machine_of_allocation(fabric, allocation)
        self.result: StepResult = step(machine, job, self.constants)
        check_executable(self.result)
        self.seats: Seats = seats_of(fabric, allocation, self.result.job.parallel, max(machine.gpu.num_dies, 1))
        self.known: dict[bytes, StepRun] = {}
        self._base: tuple[Order, Stages] | None = None
        self._rails = rails
        self._bound_s: float | None = None

    def seated(self, seats: Seats) -> Judge:
        """Return a judge of the same job on other seats."""
        other = copy(self)
        other.seats, other.known, other._base, other._rails = seats, {}, None, self.rails
        return other

    @cached_property
    def rails(self) -> Rails:
        fitted = self.constants.fitted
        return self._rails or Rails.of(self.fabric, fitted.e_net, fitted.e_nvl, self.routing)

    @property
    def num_executed(self) -> int:
        return len(self.known)

    def stages(self, order: Order) -> Stages:
        """Return the collectives of the step with ranks on the GPUs of an order."""
        devices = self.seats.devices(order)
        return Stages(self.fabric, self.result, self.constants, self.routing, devices=devices, rails=self.rails)

    def key(self, order: Sequence[int]) -> bytes:
        """Return what orders of the same step share; hashed paths tell hosts apart that are otherwise alike."""
        if self.rails.balanced:
            return self.seats.signature(order)
        return np.array(order[: self.seats.num_seats], dtype=np.int64).tobytes()

    def executed(self, order: Order) -> StepRun:
        """Return the step with ranks on the GPUs of an order."""
        key = self.key(order)
        if key not in self.known:
            self.known[key] = execute_stages(self.stages(order), self.result)
        return self.known[key]

    def time_s(self, order: Order) -> float:
        """Return how long the step takes."""
        return self.executed(order).step_time_s

    def bound_s(self) -> float:
        """Return a step that no order of these hosts beats: racks, pods and sites let everything out.

        Links of a tier are as fast as the fastest of it, so that it does not matter either which hosts stay idle.
        """
        if self._bound_s is None:
            rails, links = self.rails, self.fabric.links
            capacity = rails.capacity_Bps.copy()
            capacity[len(links) :] = np.inf
            for tier in np.unique(links.tier):
                here = np.flatnonzero(links.tier == tier)
                capacity[here] = np.inf if int(tier) in [int(t) for t in BETWEEN] else capacity[here].max()
            free = replace(rails, capacity_Bps=np.minimum(capacity, ENDLESS_Bps))
            devices = self.seats.devices(self.seats.packed_order())
            stages = Stages(self.fabric, self.result, self.constants, self.routing, devices=devices, rails=free)
            self._bound_s = execute_stages(stages, self.result).step_time_s
        return self._bound_s

    def worth(self, order: Order, kind: str) -> float:
        """Return how much longer the step is for each second that a kind of traffic takes longer alone."""
        stages = self.stages(order)
        if self._base is None or self._base[0] != order:
            self._base = (order, self.stages(order))
        base = self._base[1]  # laid out once; those of other kinds stay as they are
        every = range(self.result.job.parallel.pp)
        alone = max(base.per_byte_s(kind, stage) for stage in every)
        slowed = {(kind, stage): base.footprint(kind, stage) * (1 + PROBE) for stage in every}
        stages.footprints = base.footprints | slowed
        longer = execute_stages(stages, self.result).step_time_s - self.time_s(order)
        return longer / (PROBE * alone) if alone > 0 else 0.0
