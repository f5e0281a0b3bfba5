"""Traces that are graphs with durations (Chakra, PyTorch's execution trace), run as recorded to have times."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from syncline.errors import DescriptionError
from syncline.sim.step.executed.run_graph import run_graph
from syncline.timeline.collective import operation_of
from syncline.timeline.recording.recording import CollectiveCall, DeviceActivities, Doing, HostCalls, Recording
from syncline.workload.graph import Floats, Op, Workload
from syncline.workload.trace import read_trace

_LACKS = ("the host, and when operations began: they run as soon as what they wait for is done",)


def read_graph(path: Path) -> tuple[Recording, ...]:
    """Return the ranks of a trace of operations and what each waits for."""
    workload = read_trace(path)
    duration = np.nan_to_num(workload.duration_s, nan=0.0)
    if not duration.any():
        raise DescriptionError(
            "the trace has no durations.", where=str(path), hint="Give the torch.profiler trace of the run."
        )
    start, end = run_graph(workload, duration)
    return tuple(_of_rank(workload, rank, start, end, str(path)) for rank in np.unique(workload.rank).tolist())


def _of_rank(workload: Workload, rank: int, start: Floats, end: Floats, where: str) -> Recording:
    rows = np.flatnonzero((workload.rank == rank) & (workload.kind != Op.WAIT))
    rows = rows[np.argsort(start[rows], kind="stable")]
    moves = np.isin(workload.kind[rows], (Op.COLLECTIVE, Op.SEND, Op.RECV))
    copies = workload.kind[rows] == Op.MEMORY
    calls: dict[CollectiveCall, int] = {}
    number = []
    for row, moved in zip(rows.tolist(), moves.tolist(), strict=True):
        name = workload.names[int(workload.label[row])]
        peer = workload.kind[row] in (Op.SEND, Op.RECV)
        call = CollectiveCall("send-receive" if peer else operation_of(name) or "exchange", "",
                              int(workload.ranks[row]), float(workload.size_bytes[row]))  # fmt: skip
        number.append(calls.setdefault(call, len(calls)) if moved else -1)
    return Recording(
        rank=rank, world=workload.num_ranks, where=where, tool="Chakra", device_name="", names=workload.names,
        device=DeviceActivities(
            workload.label[rows], np.where(moves, Doing.COLLECTIVE, np.where(copies, Doing.COPY, Doing.COMPUTE)),
            start[rows], end[rows], workload.stream[rows], np.full(len(rows), -1, np.int64), np.array(number, np.int64),
        ),
        host=HostCalls.none(), collectives=tuple(calls), lacks=_LACKS,
    )  # fmt: skip
