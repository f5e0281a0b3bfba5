"""One data-parallel training step on shaped links, where ranks share the processors of a machine.

    work = Work(forward_s=0.12, backward_s=(0.08, 0.1, 0.07), elements=(7_000_000, ...), optimizer_s=0.03)
    predict_step(work, Exchanged("int8", wire_bytes, encode_s, decode_s), wiring, host)        # seconds
    step_timeline(work, Exchanged(...), wiring, host)                                          # the same as a Timeline

Processors are a link: it carries as many seconds of work a second as there are cores, a thread takes at most one, and
threads share it fairly. Every byte that TCP moves takes its part of it too. So what hides behind what, and what is slow
because everybody wants the processor, comes out of the same engine that shares the wires.

The order of things is the runtime's: one thread encodes pieces and posts them, one sums what came, posts the sums and
decodes the sums of others (`runtime/sync/conveyor.py`); plain DDP hands each bucket to the backend's ring.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from syncline.program.overlap import (
    NS,
    RING_LANES,
    Exchanged,
    Machine,
    Ring,
    Stages,
    Work,
)
from syncline.program.pieces import DEPTH, piece_sizes, shard_sizes
from syncline.sim.emulate.emulation import IGNORES, HostCosts, Wiring
from syncline.sim.emulate.marks import Mark, timeline_of
from syncline.sim.flow.engine import Course, Paths, Tasks, run
from syncline.timeline import SpanKind, Timeline

__all__ = ["Exchanged", "Machine", "Ring", "Stages", "Work", "predict_step", "shard_sizes", "step_timeline"]


@dataclass
class _Tasks:
    """Tasks of a step under construction."""

    wiring: Wiring
    machine: Machine
    costs: HostCosts
    paths: dict[tuple[tuple[int, float], ...], int] = field(default_factory=dict)
    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    waits: list[list[int]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def _add(self, path: tuple[tuple[int, float], ...], size: float, delay: float, cap: float, after: list[int]) -> int:
        self.rows.append((self.paths.setdefault(path, len(self.paths)), size, delay, cap))
        self.waits.append(after)
        return len(self.rows) - 1

    def work(self, seconds: float, after: list[int], rank: int = -1, kind: SpanKind = SpanKind.COMPUTE) -> int:
        """Append work of one thread, marked as its rank's where one is given."""
        task = self._add(((len(self.wiring.rate_Bps), 1.0),), max(seconds, 0.0) / NS, 0.0, 1 / NS, after)
        if rank >= 0 and seconds > 0:
            self.marks.append(Mark(rank, kind, task))
        return task

    def send(self, src: int, dst: int, size_bytes: float, after: list[int], message_s: float | None = None) -> int:
        """Append a message: the processor's time to post it, then its bytes on wire and processor."""
        links = self.wiring.links(src, dst)
        posted = self.work(self.machine.message_s if message_s is None else message_s, after)
        away = float(sum(self.wiring.delay_s[link] for link in links))
        path = tuple((link, 1.0) for link in links)
        if self.machine.byte_s > 0 or not path:
            path = (*path, (len(self.wiring.rate_Bps), max(self.machine.byte_s / NS, 1e-6)))
        task = self._add(path, size_bytes, self.costs.latency_s + away, np.inf, [posted])
        self.marks += [
            Mark(src, SpanKind.SEND, task, -1, size_bytes, dst),
            Mark(dst, SpanKind.RECV, task, -1, size_bytes, src),
        ]
        return task

    def run(self, *, record: bool = False) -> Course:
        """Return the course of everything."""
        path, size, delay, cap = np.array(self.rows, dtype=np.float64).T.copy()
        rows = list(self.paths)
        links = Paths.of([[link for link, _ in row] for row in rows])
        paths = Paths(links.start, links.link, np.array([share for row in rows for _, share in row]))
        wait_start = np.concatenate(([0], np.cumsum([len(row) for row in self.waits]))).astype(np.int64)
        count = len(size)
        wait_for = np.array([task for row in self.waits for task in row], dtype=np.int32)
        tasks = Tasks(
            paths, path.astype(np.int32), (size > 0).astype(np.int32), size, delay, np.zeros(count), np.ones(count),
            cap, np.zeros(count, np.uint8), wait_start, wait_for,
        )  # fmt: skip
        capacity = np.append(self.wiring.rate_Bps * self.costs.efficiency, self.machine.num_cores / NS)
        return run(capacity, tasks, burst_bytes=np.append(self.wiring.burst_bytes, 0.0), record=record)


def predict_step(work: Work, how: Exchanged | Ring, wiring: Wiring, machine: Machine, costs: HostCosts) -> float:
    """Return the seconds of one step in a long run of equal steps."""
    return _lay(work, how, wiring, machine, costs).run().makespan_s


def step_timeline(work: Work, how: Exchanged | Ring, wiring: Wiring, machine: Machine, costs: HostCosts) -> Timeline:
    """Return the same step as a Timeline: what every rank does when, and what every link carries."""
    tasks = _lay(work, how, wiring, machine, costs)
    name = how.name if isinstance(how, Exchanged) else "ring"
    return timeline_of(name, tasks.marks, tasks.run(record=True), wiring.names, wiring.rate_Bps, IGNORES)


def _lay(work: Work, how: Exchanged | Ring, wiring: Wiring, machine: Machine, costs: HostCosts) -> _Tasks:
    """Return all tasks of one step."""
    tasks = _Tasks(wiring, machine, costs)
    ranks = range(len(wiring.host_of_rank))
    gradients = []
    for rank in ranks:
        last, ready = tasks.work(work.forward_s, [], rank), []
        for seconds in work.backward_s:
            last = tasks.work(seconds, [last], rank)
            ready.append(last)
        gradients.append(ready)
    if isinstance(how, Ring):
        averaged = _ring(tasks, how, work, gradients)
    else:
        averaged = _exchange(tasks, how, work, gradients)
    for rank in ranks:
        tasks.work(work.optimizer_s, [averaged[rank], gradients[rank][-1]], rank)
    return tasks


def _exchange(tasks: _Tasks, how: Exchanged, work: Work, gradients: list[list[int]]) -> list[int]:
    """Append the compressed exchange of all buckets; returns the task that ends it on each rank."""
    ranks = range(len(gradients))
    front: list[int | None] = [None] * len(gradients)
    back: list[int | None] = [None] * len(gradients)
    pieces = [(bucket, size) for bucket, elements in enumerate(work.elements)
              for size in piece_sizes(elements, how.piece_bytes)]  # fmt: skip
    shards = [shard_sizes(size, len(gradients)) for _, size in pieces]
    sums: list[dict[tuple[int, int], int]] = []

    costs = [how.stages(size, len(gradients)) for _, size in pieces]

    def collect(number: int) -> None:
        for rank in ranks:
            arrived = [sums[number][owner, rank] for owner in ranks if owner != rank]
            back[rank] = tasks.work(costs[number].collect_s, _after(back[rank], *arrived), rank, SpanKind.DECODE)

    for number, (bucket, _) in enumerate(pieces):
        cost, sizes = costs[number], [how.wire_bytes(shard) for shard in shards[number]]
        flows: dict[tuple[int, int], int] = {}
        for rank in ranks:
            before = _after(front[rank], gradients[rank][bucket])
            front[rank] = coded = tasks.work(cost.send_s, before, rank, SpanKind.ENCODE)
            for peer in ranks:
                if peer != rank:
                    flows[rank, peer] = tasks.send(rank, peer, sizes[peer], [coded], how.message_s)
        out: dict[tuple[int, int], int] = {}
        for rank in ranks:
            arrived = [flows[peer, rank] for peer in ranks if peer != rank]
            before = _after(back[rank], *arrived, front[rank])
            back[rank] = summed = tasks.work(cost.reduce_s, before, rank, SpanKind.REDUCE)
            for peer in ranks:
                if peer != rank:
                    out[rank, peer] = tasks.send(rank, peer, sizes[rank], [summed], how.message_s)
        sums.append(out)
        if number >= DEPTH:
            collect(number - DEPTH)
    for number in range(max(0, len(pieces) - DEPTH), len(pieces)):
        collect(number)
    return [task for task in back if task is not None]


def _ring(tasks: _Tasks, how: Ring, work: Work, gradients: list[list[int]]) -> list[int]:
    """Append plain DDP: each bucket by a ring, two at a time; returns the task that ends it on each rank."""
    num = len(gradients)
    lanes: list[list[int | None]] = [[None] * num for _ in range(RING_LANES)]
    for bucket, elements in enumerate(work.elements):
        lane = lanes[bucket % RING_LANES]
        chunk = elements / num
        ready = [tasks.work(0.0, _after(lane[rank], gradients[rank][bucket])) for rank in range(num)]
        for step in range(2 * (num - 1)):
            flows = [tasks.send(rank, (rank + 1) % num, 4 * chunk, [ready[rank], ready[(rank + 1) % num]])
                     for rank in range(num)]  # fmt: skip
            seconds = how.add_s * chunk if step < num - 1 else 0.0
            ready = [tasks.work(seconds, [flows[(rank - 1) % num], flows[rank]], rank, SpanKind.REDUCE)
                     for rank in range(num)]  # fmt: skip
        lanes[bucket % RING_LANES] = list(ready)
    return [tasks.work(0.0, _after(*(lane[rank] for lane in lanes))) for rank in range(num)]


def _after(*tasks: int | None) -> list[int]:
    return [task for task in tasks if task is not None]
