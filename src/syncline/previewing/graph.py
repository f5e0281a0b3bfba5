"""A captured step as a graph: the host launches, streams run in order, collectives run beside them.

The host is stream 0 of every rank; a script without GPUs has its operators there too. Two steps after the warm-up are
laid one after the other, so that what the host launches ahead and what the network still carries go over from one to
the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.previewing.compiled import fused_runs
from syncline.previewing.kernels import convolution
from syncline.previewing.launches import launches
from syncline.previewing.measured import Cache, OwnHost
from syncline.previewing.price import KernelPrice, Pricer, useful_flops
from syncline.previewing.record import Capture, CapturedOp, KernelCall
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
    source: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # captured operation, -1 of the host
    step: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    group: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # of the capture of its rank
    peer: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    flops: float = 0.0  # of one step of one rank
    timed: int = 0  # its kernels whose time was taken on a real GPU
    noise_s: tuple[float, ...] = ()  # of each captured rank on a CPU: the variance of its steps a second of them

    @property
    def num_steps(self) -> int:
        return int(self.step.max(initial=0)) + 1

    @property
    def kernels_s(self) -> float:
        """What the kernels of a step take, one after the other."""
        return sum(seconds for kind, seconds in self.prices.items() if kind != "host copy")

    @property
    def host_s(self) -> float:
        """What the host of the first rank does in a step: Python, dispatch and launches."""
        work = self.workload
        mine = (work.rank == 0) & (work.stream == HOST) & (work.kind == Op.COMPUTE)
        return float(work.duration_s[mine & (self.step == self.num_steps - 1)].sum())


def step_graph(captures: Sequence[Capture], pricer: Pricer) -> StepGraph:
    """Return the graph of captured ranks; row order is the host's."""
    layer = _Layer(pricer)
    for number, captured in enumerate(captures):
        layer.lay(number, captured)
    for pair, received in layer.receives.items():
        for receive, sent in zip(received, layer.sends.get(pair, []), strict=False):
            layer.builder.wait(receive, sent)
    source, step, group, peer = np.array(layer.beside, dtype=np.int64).reshape(-1, 4).T
    noise = tuple(_noise_s(pricer.own(captured.rank)) if captured.on_cpu else 0.0 for captured in captures)
    return StepGraph(
        layer.builder.build(), tuple(captures), layer.prices, layer.unpriced, source, step, group, peer, layer.flops,
        layer.timed, noise,
    )  # fmt: skip


class _Layer:
    """Lays captured operations down, row by row; `beside` has source, step, group and peer of each."""

    def __init__(self, pricer: Pricer) -> None:
        self.pricer, self.builder = pricer, GraphBuilder("preview")
        self.beside: list[tuple[int, int, int, int]] = []
        self.prices: dict[str, float] = {}
        self.unpriced: dict[str, tuple[int, float]] = {}
        self.sends: dict[tuple[int, int], list[int]] = {}
        self.receives: dict[tuple[int, int], list[int]] = {}
        self.flops, self.timed = 0.0, 0

    def lay(self, number: int, captured: Capture) -> None:
        """Lay down the steps of one rank."""
        pricer, steps = self.pricer, captured.laid
        self.rank, self.captured = number, captured
        self.rows: dict[int, int] = {}  # by captured operation
        fused = _fused(captured, pricer)
        self.launch_s = launches(captured, pricer, fused)
        cache = Cache(pricer.times.cache_bytes if pricer.times is not None else 0, captured.allocations)
        for self.step, (first, last) in enumerate(steps):
            if len(steps) > len(captured.steady):  # the step before this one is itself
                self.rows = {op + first - last: row for op, row in self.rows.items()}
            for index in range(first, last):
                op = captured.ops[index]
                if op.kind == "kernel":
                    kernel = captured.kernels[op.signature]
                    warm = cache.warm(*op.extra[1:3]) if isinstance(op.extra, list) else 0.0
                    price = fused.get(index) or pricer.price(kernel, warm)
                    if index in fused and price.seconds == 0:
                        continue
                    if captured.on_cpu:
                        price = replace(price, seconds=self.launch_s[index])
                    self._kernel(index, op, price)
                    if number == 0 and self.step == len(steps) - 1:
                        self._count(kernel, price, is_timed=index not in fused and pricer.timed(kernel))
                elif op.kind == "sync":
                    waited = [self.rows[op.extra]] if isinstance(op.extra, int) and op.extra in self.rows else []
                    self._add(index, Op.WAIT, "host waits", HOST, deps=waited, duration_s=SYNC_S)
                else:
                    self._moved(index, op)

    def _add(
        self, source: int, kind: Op, name: str, stream: int, group: int = -1, peer: int = -1, **columns: Any
    ) -> int:
        row = self.builder.add(self.rank, kind, name, stream=stream, **columns)
        self.beside.append((source, self.step, group, peer))
        if source >= 0:
            self.rows[source] = row
        return row

    def _waits(self, index: int, op: CapturedOp) -> list[int]:
        """Return what an operation of a stream waits for: the host's launch, and operations of other streams."""
        launch = self._add(-1, Op.COMPUTE, "launch", HOST, duration_s=self.launch_s[index])
        return [launch, *(self.rows[wait] for wait in op.waits if wait in self.rows)]

    def _kernel(self, index: int, op: CapturedOp, price: KernelPrice) -> None:
        if self.captured.on_cpu:
            waits, stream = [self.rows[wait] for wait in op.waits if wait in self.rows], HOST
        else:
            waits, stream = self._waits(index, op), op.stream + 1
        self._add(index, Op.COMPUTE, price.kind, stream, deps=waits, duration_s=price.seconds)

    def _count(self, kernel: KernelCall, price: KernelPrice, *, is_timed: bool) -> None:
        self.prices[price.kind] = self.prices.get(price.kind, 0.0) + price.seconds
        self.flops += useful_flops(kernel)
        self.timed += is_timed
        if price.kind == "unknown":
            calls, seconds = self.unpriced.get(kernel.name, (0, 0.0))
            self.unpriced[kernel.name] = (calls + 1, seconds + price.seconds)

    def _moved(self, index: int, op: CapturedOp) -> None:
        what, group, size, peer = op.extra if isinstance(op.extra, list) else [0, 0, 0, -1]
        kind = {"send": Op.SEND, "recv": Op.RECV}.get(op.kind, Op.COLLECTIVE)
        ranks = len(self.captured.groups[group]) if kind == Op.COLLECTIVE else 2
        columns = {"deps": self._waits(index, op), "size_bytes": float(size), "ranks": ranks}
        row = self._add(index, kind, str(what), op.stream + 1, group, peer, **columns)
        if op.kind == "send":
            self.sends.setdefault((self.captured.rank, int(peer)), []).append(row)
        elif op.kind == "recv":
            self.receives.setdefault((int(peer), self.captured.rank), []).append(row)


def _noise_s(own: OwnHost | None) -> float:
    return own.jitter_s**2 / own.whole_s if own is not None and own.whole_s else 0.0


def _fused(captured: Capture, pricer: Pricer) -> dict[int, KernelPrice]:
    """Return prices of compiled kernels that are not as captured.

    A run of memory-bound ones reads its inputs and writes what outlives it, once; images have channels innermost.
    """
    ends = {allocation: op for op, allocation, change in captured.memory if change < 0}
    first, last = captured.steady[0][0], captured.steady[-1][1]
    found = _convolved(captured, pricer, first, last)
    for run in fused_runs(captured, pricer, first, last):
        found.update(_one(captured, run, ends, pricer))
    return found


def _convolved(captured: Capture, pricer: Pricer, first: int, last: int) -> dict[int, KernelPrice]:
    """Return prices of compiled convolutions, where the compiler lays images otherwise than the script does."""
    ops = {
        i: captured.ops[i] for i in range(first, min(last + 1, len(captured.ops))) if captured.ops[i].kind == "kernel"
    }
    own = {i: captured.kernels[op.signature] for i, op in ops.items() if isinstance(op.extra, list) and op.extra[0]}
    mine = {i: kernel for i, kernel in own.items() if convolution.is_convolution(kernel)}
    ahead = [i for i in own if ops[i].phase == "forward"]
    forward = [mine[i] for i in ahead if i in mine]
    if not convolution.laid_innermost(forward, len(ahead)):
        return {}
    return {i: pricer.price(convolution.innermost(kernel)) for i, kernel in mine.items()}


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
