"""What no run of a step can beat: arithmetic at the datasheet's rate, and what exchanges must carry over the fabric.

Every exchange of a step has to pass before the next step's, so what all of them must send out of (or into) a cell of
the fabric (`sim/reach.py`) over the sum of its links is a bound, however they are done and whatever hides them:

    gather, scatter     a cell sends its members' part once, and receives the others' (a scatter the other way round)
    all-reduce          one buffer each way
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.errors import BelowBoundError
from syncline.fabric.fabric import Fabric
from syncline.schedule.collective import Kind
from syncline.sim.reach import Cells, Floats, Longs, fabric_reach
from syncline.sim.step.executed.footprint import devices_of
from syncline.sim.step.machine import Machine
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.volumes import stage_parameters, volumes, wire_share


@dataclass(frozen=True, eq=False)
class Exchange:
    """Groups of devices (a row each) that exchange buffers of a size in every step."""

    kind: Kind
    groups: Longs
    size_bytes: float


def floor_s(fabric: Fabric, job: Job, machine: Machine, num_gpus: int) -> float:
    """Return a time below which a step of a job on a fabric cannot be."""
    if not isinstance(job.model, Shape):
        return 0.0
    dies = max(machine.gpu.num_dies, 1)
    peak = max(filter(None, (machine.gpu.flops_at(name) for name in ("bf16", "fp16", "tf32", "fp8", "fp4"))), default=0)
    flops = job.model.flops_per_token(job.batch.sequence) * job.batch.global_ * job.batch.sequence
    share = 1 / 3 if job.frozen else 1.0
    arithmetic = share * flops / (num_gpus * peak / dies) if peak else 0.0
    if dies > 1:  # ranks share a port there
        return arithmetic
    return max(arithmetic, exchanges_s(fabric, exchanges(fabric, job, machine)))


def exchanges(fabric: Fabric, job: Job, machine: Machine) -> list[Exchange]:
    """Return what the ranks of a job must exchange in every step, whatever is hidden: tensors, experts, replicas."""
    split = job.parallel
    assert isinstance(job.model, Shape)
    replicas = split.cp * (split.dp or 1)
    devices = devices_of(fabric, split, machine.reach)
    rows = devices.reshape(split.pp * replicas, split.tp)
    found = []
    tensor = next((volume for volume in volumes(job) if volume.kind == "tensor"), None)
    if tensor is not None:  # a rank sends 2 (tp-1)/tp of what is reduced, or gathered and scattered
        found.append(Exchange(Kind.ALL_REDUCE, rows, tensor.size_bytes * split.tp / (2 * (split.tp - 1))))
    if job.sync.method == "allreduce" and not job.frozen and job.sync.period == 1:
        found += _replicas(job, devices, replicas, machine.reach.nic_share)
    return found


def _replicas(job: Job, devices: Longs, replicas: int, nic_share: float) -> list[Exchange]:
    """Return what replicas exchange: gradients, and parameters where each owns a part of their state."""
    split, facts = job.parallel, facts_of(job)
    assert isinstance(job.model, Shape)
    wire = facts.gradient_bytes * wire_share(job.sync.codec, facts.gradient_bytes) * nic_share
    dense, routed = stage_parameters(job, job.model)
    if split.pp > 1:  # the ends of the model are on some stages only: of all, their layers are sure
        dense = job.model.replicated_params / split.pp / split.tp
        routed = job.model.moe_layers / split.pp * job.model.expert_params / split.ep
    stages = devices.reshape(split.pp, replicas, split.tp)
    found = []
    even = replicas * split.tp % split.ep == 0
    routed = routed if even else 0.0
    alike = stages.reshape(split.pp, -1, split.ep).swapaxes(1, 2) if even else stages
    for groups, params in (
        (stages.swapaxes(1, 2).reshape(-1, replicas), dense),
        (alike.reshape(-1, alike.shape[-1]), routed),
    ):
        if groups.shape[1] < 2 or params <= 0:
            continue
        if not split.sharded_state or split.zero == "hsdp":  # shards of a hybrid need not leave their group
            found.append(Exchange(Kind.ALL_REDUCE, groups, wire * params))
            continue
        found.append(Exchange(Kind.REDUCE_SCATTER, groups, wire * params))
        found.append(Exchange(Kind.ALL_GATHER, groups, facts.parameter_bytes * params))
    return found


def exchanges_s(fabric: Fabric, found: list[Exchange]) -> float:
    """Return the time that the cells of a fabric need at least for exchanges that share them."""
    floor = 0.0
    for cells in fabric_reach(fabric).cells:
        sent, received = np.zeros(cells.num), np.zeros(cells.num)
        for exchange in found:
            out, back = _crossing(fabric, cells, exchange)
            sent, received = sent + out, received + back
        most = np.maximum(sent, received)
        with np.errstate(divide="ignore"):
            floor = max(floor, float((most[most > 0] / cells.exit_Bps[most > 0]).max(initial=0.0)))
    return floor


def _crossing(fabric: Fabric, cells: Cells, exchange: Exchange) -> tuple[Floats, Floats]:
    """Return the bytes that an exchange must send out of every cell, and into it."""
    groups, n = exchange.groups, exchange.groups.shape[1]
    cell = cells.of_host[fabric.devices.host[groups]]
    key, members = np.unique(cell + np.arange(len(groups))[:, None] * cells.num, return_counts=True)
    apart, share = members < n, members / n
    out, back = np.ones(len(key)), np.ones(len(key))
    if exchange.kind is Kind.ALL_GATHER:
        out, back = share, 1 - share
    elif exchange.kind is Kind.REDUCE_SCATTER:
        out, back = 1 - share, share
    of_cell = (key % cells.num)[apart]
    size = exchange.size_bytes
    sent = np.bincount(of_cell, weights=out[apart] * size, minlength=cells.num)
    received = np.bincount(of_cell, weights=back[apart] * size, minlength=cells.num)
    return sent.astype(np.float64), received.astype(np.float64)


def check_floor(time_s: float, floor: float, what: str) -> float:
    """Return the floor, or raise where a time is below it: a defect of the model, not an answer."""
    if time_s < floor * (1 - 1e-9):
        raise BelowBoundError(
            f"{what}: the model says {time_s:.6g} s where the fabric needs at least {floor:.6g} s.",
            hint="This is a bug of the model: report it.",
        )
    return floor
