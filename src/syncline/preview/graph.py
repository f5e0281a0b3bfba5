"""A captured step as a graph: the host launches, streams run in order, collectives run beside them.

The host is stream 0 of every rank; a script without GPUs has its operators there too. Two steps after the warm-up are
laid one after the other, so that what the host launches ahead and what the network still carries go over from one to
the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from syncline.preview.compiled import fused_runs
from syncline.preview.launches import launches
from syncline.preview.measured import Cache, OwnHost
from syncline.preview.price import KernelPrice, Pricer, useful_flops
from syncline.preview.record import Capture, CapturedOp
from syncline.workload.graph import Floats, GraphBuilder, Op, Workload

Ints = npt.NDArray[np.int64]
HOST = 0
SYNC_S = 10e-6


@dataclass(frozen=True, eq=False)
class StepGraph:
    """The operations of two steps, of each rank that stands for others."""

    workload: Workload
    captures: tuple[Capture, ...]
    prices: dict[str, float] = field(default_factory=dict)  # seconds of one step by kind of kernel, first rank
    unpriced: dict[str, tuple[int, float]] = field(default_factory=dict)  # calls and seconds guessed
    source: Ints = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # captured operation of each row, -1 for the host's
    step: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    group: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # of the capture of its rank
    peer: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    flops: float = 0.0  # of one step of one rank
    timed: int = 0  # its kernels whose time was taken on a real GPU
    noise_s: tuple[float, ...] = ()  # of each captured rank on a CPU: the variance of its steps a second of them

    @property
    def num_steps(self) -> int:
        return int(self.step.max(initial=0)) + 1


class _Rows:
    """Columns beside the workload's own."""

    def __init__(self) -> None:
        self.source: list[int] = []
        self.step: list[int] = []
        self.group: list[int] = []
        self.peer: list[int] = []

    def add(self, source: int, step: int, group: int = -1, peer: int = -1) -> None:
        self.source.append(source)
        self.step.append(step)
        self.group.append(group)
        self.peer.append(peer)


def step_graph(captures: Sequence[Capture], pricer: Pricer) -> StepGraph:
    """Return the graph of captured ranks; row order is the host's."""
    builder, rows = GraphBuilder("preview"), _Rows()
    prices: dict[str, float] = {}
    unpriced: dict[str, tuple[int, float]] = {}
    sends: dict[tuple[int, int], list[int]] = {}
    receives: dict[tuple[int, int], list[int]] = {}
    flops, timed = 0.0, 0
    for number, captured in enumerate(captures):
        numbers: dict[int, int] = {}
        fused = _fused(captured, pricer)
        launch_s = launches(captured, pricer, fused)
        cache = Cache(pricer.times.cache_bytes if pricer.times is not None else 0, captured.allocations)
        for step, (first, last) in enumerate(captured.laid):
            if len(captured.laid) > len(captured.steady):  # the step before this one is itself
                numbers = {op + first - last: row for op, row in numbers.items()}
            for index in range(first, last):
                op = captured.ops[index]
                if op.kind == "kernel":
                    kernel = captured.kernels[op.signature]
                    warm = cache.warm(*op.extra[1:]) if isinstance(op.extra, list) else 0.0
                    price = fused.get(index) or pricer.price(kernel, warm)
                    if index in fused and price.seconds == 0:
                        continue
                    if captured.on_cpu:
                        price = replace(price, seconds=launch_s[index])
                    row = _kernel(builder, rows, captured, number, index, price, numbers, step, launch_s[index])
                    if number == 0 and step == len(captured.laid) - 1:
                        prices[price.kind] = prices.get(price.kind, 0.0) + price.seconds
                        flops += useful_flops(kernel)
                        timed += (index not in fused) and pricer.timed(kernel)
                        if price.kind == "unknown":
                            calls, seconds = unpriced.get(kernel.name, (0, 0.0))
                            unpriced[kernel.name] = (calls + 1, seconds + price.seconds)
                elif op.kind == "sync":
                    target = numbers.get(op.extra) if isinstance(op.extra, int) else None
                    row = builder.add(
                        number,
                        Op.WAIT,
                        "host waits",
                        stream=HOST,
                        duration_s=SYNC_S,
                        deps=() if target is None else (target,),
                    )
                    rows.add(index, step)
                else:
                    row = _moved(builder, rows, captured, number, index, op, numbers, step, launch_s[index])
                    pair = (captured.rank, int(_extra(op)[3]))
                    if op.kind == "send":
                        sends.setdefault(pair, []).append(row)
                    elif op.kind == "recv":
                        receives.setdefault((pair[1], pair[0]), []).append(row)
                numbers[index] = row
    for pair, got in receives.items():
        for receive, sent in zip(got, sends.get(pair, []), strict=False):
            builder.wait(receive, sent)
    arrays = (np.array(part, dtype=np.int64) for part in (rows.source, rows.step, rows.group, rows.peer))
    source, step_of, group, peer = arrays
    noise = tuple(_noise_s(pricer.own(captured.rank)) if captured.on_cpu else 0.0 for captured in captures)
    work = builder.build()
    return StepGraph(work, tuple(captures), prices, unpriced, source, step_of, group, peer, flops, timed, noise)


def _noise_s(own: OwnHost | None) -> float:
    return own.jitter_s**2 / own.whole_s if own is not None and own.whole_s else 0.0


def _extra(op: CapturedOp) -> list[int]:
    return op.extra if isinstance(op.extra, list) else [0, 0, 0, -1]


def _kernel(
    builder: GraphBuilder,
    rows: _Rows,
    captured: Capture,
    rank: int,
    index: int,
    price: KernelPrice,
    numbers: dict[int, int],
    step: int,
    launch_s: float,
) -> int:
    op = captured.ops[index]
    waits = tuple(numbers[w] for w in op.waits if w in numbers)
    if captured.on_cpu:
        row = builder.add(rank, Op.COMPUTE, price.kind, stream=HOST, duration_s=price.seconds, deps=waits)
        rows.add(index, step)
        return row
    launch = builder.add(rank, Op.COMPUTE, "launch", stream=HOST, duration_s=launch_s)
    rows.add(-1, step)
    row = builder.add(
        rank, Op.COMPUTE, price.kind, stream=op.stream + 1, duration_s=price.seconds, deps=(launch, *waits)
    )
    rows.add(index, step)
    return row


def _moved(
    builder: GraphBuilder,
    rows: _Rows,
    captured: Capture,
    rank: int,
    index: int,
    op: CapturedOp,
    numbers: dict[int, int],
    step: int,
    launch_s: float,
) -> int:
    what, group, size, peer = _extra(op)
    launch = builder.add(rank, Op.COMPUTE, "launch", stream=HOST, duration_s=launch_s)
    rows.add(-1, step)
    waits = tuple(numbers[w] for w in op.waits if w in numbers)
    kind = {"send": Op.SEND, "recv": Op.RECV}.get(op.kind, Op.COLLECTIVE)
    ranks = len(captured.groups[group]) if kind == Op.COLLECTIVE else 2
    row = builder.add(
        rank, kind, str(what), stream=op.stream + 1, size_bytes=float(size), ranks=ranks, deps=(launch, *waits)
    )
    rows.add(index, step, group, peer)
    return row


def _fused(captured: Capture, pricer: Pricer) -> dict[int, KernelPrice]:
    """Return prices of compiled memory-bound kernels: a run reads its inputs and writes what outlives it, once."""
    ends: dict[int, int] = {}
    ends.update({allocation: op for op, allocation, change in captured.memory if change < 0})
    found: dict[int, KernelPrice] = {}
    for run in fused_runs(captured, pricer, captured.steady[0][0], captured.steady[-1][1]):
        found.update(_one(captured, run, ends, pricer))
    return found


def _one(captured: Capture, run: list[int], ends: dict[int, int], pricer: Pricer) -> dict[int, KernelPrice]:
    read, written = set(), set()
    for index in run:
        extra = captured.ops[index].extra
        assert isinstance(extra, list)
        read |= {a for a in extra[1] if a not in written}
        written |= set(extra[2])
    kept = {a for a in written if ends.get(a, 1 << 60) > run[-1]}
    size = float(
        sum(captured.allocations[a].size_bytes for a in read | kept)
        + sum(captured.allocations[a].size_bytes for a in read & kept)
    )
    alone = sum(pricer.price(captured.kernels[captured.ops[i].signature]).bytes for i in run)
    moved = min(size, alone)
    none = KernelPrice(0.0, "memory", 0.0)
    seconds = moved / pricer.machine.hbm_Bps + pricer.constants.held.gap_s
    return dict.fromkeys(run[:-1], none) | {run[-1]: KernelPrice(seconds, "memory", moved)}


def durations(graph: StepGraph) -> Floats:
    """Return what every operation that moves nothing takes."""
    return np.nan_to_num(graph.workload.duration_s, nan=0.0)
