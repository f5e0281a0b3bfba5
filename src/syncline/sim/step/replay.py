"""A traced workload on another fabric: compute as measured, communication at the price of this network."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from syncline.fabric.fabric import Fabric
from syncline.sim.nccl.measured import OPS
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.executed.run_graph import run_graph
from syncline.sim.step.machine import Machine, machine_from_fabric
from syncline.sim.step.network import group_of
from syncline.timeline import Source, SourceKind, SpanKind, Timeline, TimelineBuilder
from syncline.timeline.collective import operation_of
from syncline.version import __version__
from syncline.workload.graph import Floats, Ints, Op, Workload

Bools = npt.NDArray[np.bool_]

IGNORES = ("what the host did", "contention between collectives", "algorithm changes of the collective library")
# Copies inside a device are its own work, not communication: SpanKind.COPY is for what a collective moves.
_KINDS = (SpanKind.COMPUTE, SpanKind.COLLECTIVE, SpanKind.SEND, SpanKind.RECV, SpanKind.OTHER, SpanKind.WAIT)
MOVES = (Op.COLLECTIVE, Op.SEND, Op.RECV)
OWN_WORK = (SpanKind.COMPUTE, SpanKind.OTHER)


def replay(
    workload: Workload,
    fabric: Fabric | Machine | None = None,
    times: tuple[Floats, Floats] | None = None,
) -> Timeline:
    """Return a traced step as a timeline: as recorded, or with its communication priced on a fabric.

    `times` are starts and ends that another level found (`execute_trace`).
    """
    machine = machine_from_fabric(fabric) if isinstance(fabric, Fabric) else fabric
    duration = np.nan_to_num(workload.duration_s, nan=0.0)
    if machine is not None:
        duration = priced(workload, machine, default_constants())
    start, end = times if times is not None else run_graph(workload, duration)
    kind = SourceKind.SIMULATED_ANALYTIC if machine is not None else SourceKind.RECORDED
    if times is not None:
        kind = SourceKind.SIMULATED_FLOW
    builder = TimelineBuilder(Source(kind, "syncline replay", __version__, ignores=IGNORES), dict(workload.metadata))
    names = np.array([builder.name(text) for text in workload.names], dtype=np.int32)
    if len(workload):
        builder.add_spans(
            rank=workload.rank.astype(np.int32), start_s=start, end_s=end,
            kind=np.array(_KINDS)[workload.kind].astype(np.uint8), name=names[workload.label],
            stream=workload.stream.astype(np.int16), size_bytes=workload.size_bytes.astype(np.int64),
        )  # fmt: skip
    return builder.build()


def priced(workload: Workload, machine: Machine, k: Constants) -> Floats:
    """Return the duration of each operation on a machine; compute keeps what the trace measured."""
    measured = workload.duration_s
    estimate = workload.flops / (k.fitted.e_gemm * machine.rate("bf16")) + k.held.gap_s
    compute = np.where(np.isnan(measured), estimate, measured)
    ranks = np.maximum(workload.ranks, 1).astype(np.float64)
    total = float(max(workload.num_ranks, 1))
    moves, size = np.isin(workload.kind, MOVES), workload.size_bytes.astype(np.float64)
    sent = group_of(machine, k, ranks, total).takes_s("send_recv", size)
    operation = np.array([operation_of(name).replace("-", "_") for name in workload.names] or [""])[workload.label]
    for name in np.unique(operation[workload.kind == Op.COLLECTIVE]).tolist():
        mine = (workload.kind == Op.COLLECTIVE) & (operation == name)
        group = group_of(machine, k, ranks[mine], total, pairs=name == "all_to_all")
        sent[mine] = group.takes_s(name if name in OPS else "all_gather", size[mine])
    sent = np.where(ranks > 1, sent, 0.0)
    sent[_received(workload)] = 0.0
    return np.where(moves & ~unpriced(workload), sent, compute)


def sent_bytes(workload: Workload) -> Floats:
    """Return what a rank sends in each operation that moves bytes: an all-reduce's buffer crosses the ring twice."""
    ranks = np.maximum(workload.ranks, 1).astype(np.float64)
    times = np.array([1.0 + (operation_of(name) == "all-reduce") for name in workload.names])[workload.label]
    part = np.where(workload.kind == Op.COLLECTIVE, times * (ranks - 1) / ranks, 1.0)
    return np.asarray(part * workload.size_bytes)


def unpriced(workload: Workload) -> Bools:
    """Return what moves bytes that the trace does not tell: it keeps the time that was measured."""
    moves: Bools = np.isin(workload.kind, MOVES) & (workload.ranks > 1)
    unknown: Bools = moves & (workload.size_bytes == 0) & ~np.isnan(workload.duration_s)
    return unknown


def _received(workload: Workload) -> Ints:
    """Return the receives whose send is in the trace: they end with it."""
    owner = np.repeat(np.arange(len(workload)), np.diff(workload.dep_start))
    from_send = (workload.kind[owner] == Op.RECV) & (workload.kind[workload.deps] == Op.SEND)
    return np.unique(owner[from_send & (workload.rank[owner] != workload.rank[workload.deps])])
