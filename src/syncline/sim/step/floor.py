"""What no run of a step can beat: arithmetic at the datasheet's rate, and the replicas' exchange over the fabric."""

from __future__ import annotations

import numpy as np

from syncline.errors import SimulationError
from syncline.fabric.fabric import Fabric
from syncline.schedule.collective import Kind
from syncline.sim.reach import fabric_reach
from syncline.sim.step.executed.footprint import devices_of
from syncline.sim.step.machine import Machine
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.volumes import stage_parameters, wire_share


def floor_s(fabric: Fabric, job: Job, machine: Machine, num_gpus: int) -> float:
    """Return a time below which a step of a job on a fabric cannot be.

    However much is hidden, every step's gradients must pass before the next's, so a step is at least as long as one
    group of replicas needs for them alone.
    """
    if not isinstance(job.model, Shape):
        return 0.0
    dies = max(machine.gpu.num_dies, 1)
    peak = max(filter(None, (machine.gpu.flops_at(name) for name in ("bf16", "fp16", "tf32", "fp8", "fp4"))), default=0)
    flops = job.model.flops_per_token(job.batch.sequence) * job.batch.global_ * job.batch.sequence
    share = 1 / 3 if job.frozen else 1.0
    arithmetic = share * flops / (num_gpus * peak / dies) if peak else 0.0
    return max(arithmetic, _exchange_s(fabric, job, machine, dies))


def _exchange_s(fabric: Fabric, job: Job, machine: Machine, dies: int) -> float:
    split = job.parallel
    replicas = split.cp * (split.dp or 1)
    assert isinstance(job.model, Shape)
    if replicas < 2 or job.sync.method != "allreduce" or job.frozen or dies > 1:
        return 0.0
    dense, _ = stage_parameters(job, job.model)
    facts = facts_of(job)
    group = devices_of(fabric, split, machine.reach)[: split.tp * replicas : split.tp]
    reach = fabric_reach(fabric)
    wire = facts.gradient_bytes * wire_share(job.sync.codec, facts.gradient_bytes)
    size = wire * dense
    if not split.sharded_state:
        return reach.bound_s(Kind.ALL_REDUCE, np.sort(group), size)
    back = reach.bound_s(Kind.ALL_GATHER, np.sort(group), facts.parameter_bytes * dense)
    return reach.bound_s(Kind.REDUCE_SCATTER, np.sort(group), size) + back


def check_floor(time_s: float, floor: float, what: str) -> float:
    """Return the floor, or raise where a time is below it: a defect of the model, not an answer."""
    if time_s < floor * (1 - 1e-9):
        raise SimulationError(
            f"{what}: the model says {time_s:.6g} s where the fabric needs at least {floor:.6g} s.",
            hint="This is a bug of the model: report it.",
        )
    return floor
