"""What no run of a step can beat: arithmetic at the datasheet's rate, state through memory, exchanges over the fabric.

Every exchange of a step has to pass before the next step's, so what all of them must send out of (or into) a cell of
the fabric (`sim/reach.py`) over the sum of its links is a bound, however they are done and whatever hides them:

    gather, scatter     a cell sends its members' part once, and receives the others' (a scatter the other way round)
    all-reduce          one buffer each way
    all-to-all          every pair's part; of experts one copy of each token that an expert of another cell
                        wants, however copies are merged on the way
    send                a stage's activations, and their gradients back, where the next stage is in another cell
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
from syncline.workload.job import Job, Precision
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.volumes import stage_parameters, volumes, wire_share


@dataclass(frozen=True, eq=False)
class GroupExchange:
    """Groups of devices (a row each) that exchange buffers of a size in every step."""

    kind: Kind
    groups: Longs
    size_bytes: float
    top_k: int = 0  # of an all-to-all of experts: how many of them a token visits


#: Formats that products of a job in one precision may run in: the fastest of them is its roof.
_UNITS: dict[str, tuple[Precision, ...]] = {
    "fp32": ("tf32", "fp32"), "tf32": ("tf32", "fp32"), "fp16": ("fp16", "bf16"), "bf16": ("bf16", "fp16"),
    "fp8": ("fp8", "fp16", "bf16"), "fp4": ("fp4", "fp8", "fp16", "bf16"),
}  # fmt: skip


def roof_s(job: Job, machine: Machine, num_gpus: int, state_bytes: float = 0.0) -> float:
    """Return a time below which no fabric lets a step be: its arithmetic at the datasheet's rate, its state moved once.

    `state_bytes` is what the optimizer of the fullest rank holds: it is read and written in every step.
    """
    if not isinstance(job.model, Shape):
        return 0.0
    dies = max(machine.gpu.num_dies, 1)
    peak = max((machine.gpu.flops_at(name) or 0.0 for name in _UNITS[job.precision]), default=0.0)
    flops = job.model.flops_per_token(job.batch.sequence) * job.batch.global_ * job.batch.sequence
    share = 1 / 3 if job.frozen else 1.0
    arithmetic = share * flops / (num_gpus * peak / dies) if peak else 0.0
    return max(arithmetic, 2 * state_bytes / (machine.gpu.memory_Bps / dies))


def floor_s(fabric: Fabric, job: Job, machine: Machine) -> float:
    """Return the time that the exchanges of a step need at least on a fabric."""
    if not isinstance(job.model, Shape) or machine.gpu.num_dies > 1:  # ranks share a port there
        return 0.0
    return exchanges_s(fabric, exchanges(fabric, job, machine))


def exchanges(fabric: Fabric, job: Job, machine: Machine) -> list[GroupExchange]:
    """Return what the ranks of a job must exchange in every step, whatever is hidden: tensors, experts, replicas."""
    split = job.parallel
    assert isinstance(job.model, Shape)
    replicas = split.cp * (split.dp or 1)
    devices = devices_of(fabric, split, machine.reach)
    rows = devices.reshape(split.pp * replicas, split.tp)
    found = []
    tensor = next((volume for volume in volumes(job) if volume.kind == "tensor"), None)
    if tensor is not None:  # a rank sends 2 (tp-1)/tp of what is reduced, or gathered and scattered
        found.append(GroupExchange(Kind.ALL_REDUCE, rows, tensor.size_bytes * split.tp / (2 * (split.tp - 1))))
    found += _exchanged(job, rows)
    if split.pp > 1:
        found += _passed(job, devices.reshape(split.pp, replicas, split.tp))
    if job.sync.method == "allreduce" and not job.frozen and job.sync.period == 1:
        found += _replicas(job, devices, replicas, machine.reach.nic_share)
    return found


def _exchanged(job: Job, rows: Longs) -> list[GroupExchange]:
    """Return all-to-alls: parts of sequences, and tokens for experts. A rank's buffer is what it would send to all."""
    split, shape, found = job.parallel, job.model, []
    assert isinstance(shape, Shape)
    sizes = {volume.kind: volume for volume in volumes(job)}
    context = sizes.get("context")
    if context is not None and context.collective == "all-to-all" and not job.frozen:
        groups = rows.reshape(-1, split.cp, split.tp).swapaxes(1, 2).reshape(-1, split.cp)
        found.append(GroupExchange(Kind.ALL_TO_ALL, groups, context.size_bytes * split.cp / (split.cp - 1)))
    expert = sizes.get("expert")
    even = rows.size % split.ep == 0 and (rows.size // split.pp) % split.ep == 0
    if expert is not None and shape.moe is not None and even and not job.token_drop:
        calls = 2.0 if job.frozen else 4.0  # dispatch and combine, forward and backward; repeated ones may be spared
        per_call = expert.size_bytes / expert.calls * split.ep / (split.ep - 1) / shape.moe.top_k
        size = per_call * calls * shape.moe_layers / split.pp * job.num_micro
        found.append(GroupExchange(Kind.ALL_TO_ALL, rows.reshape(-1, split.ep), size, shape.moe.top_k))
    return found


def _passed(job: Job, stages: Longs) -> list[GroupExchange]:
    """Return what stages hand on: activations to the next, gradients to the one before, for every chunk of a stage."""
    split = job.parallel
    assert isinstance(job.model, Shape)
    size = 2.0 * job.batch.micro * job.batch.sequence / split.cp * job.model.hidden * job.num_micro
    found = []
    for stage in range(split.pp):
        last = stage == split.pp - 1
        chunks = split.virtual - last
        if chunks == 0:
            continue
        here, there = stages[stage], stages[0 if last else stage + 1]
        found.append(GroupExchange(Kind.SEND_RECV, np.concatenate((here, there), axis=1), chunks * size))
        if not job.frozen:
            found.append(GroupExchange(Kind.SEND_RECV, np.concatenate((there, here), axis=1), chunks * size))
    return found


def _replicas(job: Job, devices: Longs, replicas: int, nic_share: float) -> list[GroupExchange]:
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
            found.append(GroupExchange(Kind.ALL_REDUCE, groups, wire * params))
            continue
        found.append(GroupExchange(Kind.REDUCE_SCATTER, groups, wire * params))
        found.append(GroupExchange(Kind.ALL_GATHER, groups, facts.parameter_bytes * params))
    return found


def exchanges_s(fabric: Fabric, found: list[GroupExchange]) -> float:
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


def _crossing(fabric: Fabric, cells: Cells, exchange: GroupExchange) -> tuple[Floats, Floats]:
    """Return the bytes that an exchange must send out of every cell, and into it."""
    groups, n = exchange.groups, exchange.groups.shape[1]
    cell = cells.of_host[fabric.devices.host[groups]]
    if exchange.kind is Kind.SEND_RECV:
        return _handed_on(cell, cells.num, exchange.size_bytes)
    key, members = np.unique(cell + np.arange(len(groups))[:, None] * cells.num, return_counts=True)
    apart, share = members < n, members / n
    out, back = np.ones(len(key)), np.ones(len(key))
    if exchange.kind is Kind.ALL_GATHER:
        out, back = share, 1 - share
    elif exchange.kind is Kind.REDUCE_SCATTER:
        out, back = 1 - share, share
    elif exchange.kind is Kind.ALL_TO_ALL and exchange.top_k:
        # Half of the calls are dispatches, half go back: each way as much in as the other way out.
        wanted = members * (1 - share**exchange.top_k) + (n - members) * (1 - (1 - share) ** exchange.top_k)
        out = back = wanted / 2
    elif exchange.kind is Kind.ALL_TO_ALL:
        out = back = members * (1 - share)
    of_cell = (key % cells.num)[apart]
    size = exchange.size_bytes
    sent = np.bincount(of_cell, weights=out[apart] * size, minlength=cells.num)
    received = np.bincount(of_cell, weights=back[apart] * size, minlength=cells.num)
    return sent.astype(np.float64), received.astype(np.float64)


def _handed_on(cell: Longs, num: int, size_bytes: float) -> tuple[Floats, Floats]:
    """Return what leaves and enters cells when the first half of each row hands a buffer to the second half.

    Each half has the whole buffer once, cut or copied over its ranks: sure is what leaves a half that is all in one
    cell for a cell without any of it, and the same on the way in.
    """
    here, there = np.split(cell, 2, axis=1)
    moves = (here[:, :, None] != there[:, None, :]).all(axis=(1, 2))
    sent, received = np.zeros(num), np.zeros(num)
    for half, into in ((here, sent), (there, received)):
        sure = moves & (half == half[:, :1]).all(axis=1)
        np.add.at(into, half[sure, 0], size_bytes)
    return sent, received


def check_floor(time_s: float, floor: float, what: str) -> float:
    """Return the floor, or raise where a time is below it: a defect of the model, not an answer."""
    if time_s < floor * (1 - 1e-9):
        raise BelowBoundError(
            f"{what}: the model says {time_s:.6g} s where the fabric needs at least {floor:.6g} s.",
            hint="This is a bug of the model: report it.",
        )
    return floor
