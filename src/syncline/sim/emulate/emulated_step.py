"""One data-parallel training step on shaped links, where ranks share the processors of a machine.

    work = Work(forward_s=0.12, backward_s=(0.08, 0.1, 0.07), elements=(7_000_000, ...), optimizer_s=0.03)
    predict_step(work, Exchanged("int8", wire_bytes, encode_s, decode_s), wiring, host)        # seconds
    step_timeline(work, Exchanged(...), wiring, host)                                          # the same as a Timeline

What is priced are the stages of `program/stages.py` in the order of `program/laying.py`, for every rank; the Timeline
has a span for each, under the names that the runtime records, so that the two align span by span.

Processors are a link: it carries as many seconds of work a second as there are cores, a thread takes at most one, and
threads share it fairly. Every byte that TCP moves takes its part of it too. So what hides behind what, and what is slow
because everybody wants the processor, comes out of the same engine that shares the wires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from syncline.program.laying import COMPUTED, OPTIMIZED
from syncline.program.overlap import NS, How, RingCosts, SharedMachine, Work, lay_step
from syncline.program.stages import BucketStage
from syncline.sim.emulate.emulation import IGNORES, HostCosts, HostLinks
from syncline.sim.emulate.marks import Mark, timeline_of
from syncline.sim.flow.engine import Course, Paths, Tasks, run
from syncline.timeline import SpanKind, Timeline

__all__ = ["predict_step", "step_timeline"]


@dataclass
class _Tasks:
    """Tasks of a step under construction: a ledger that plays every rank."""

    wiring: HostLinks
    machine: SharedMachine
    costs: HostCosts
    paths: dict[tuple[tuple[int, float], ...], int] = field(default_factory=dict)
    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    waits: list[list[int]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def ranks(self) -> Sequence[int]:
        """All of them."""
        return range(len(self.wiring.host_of_rank))

    def work(
        self, rank: int, seconds: float, after: list[int], stage: BucketStage | None, piece: int, peer: int
    ) -> int:
        """Append work of one thread, marked as its rank's where it is a stage; a GPU's own takes no processor."""
        if self.machine.computes_apart and stage in (COMPUTED, OPTIMIZED):
            return self._add((), 0.0, max(seconds, 0.0), np.inf, after)
        task = self._add(((len(self.wiring.rate_Bps), 1.0),), max(seconds, 0.0) / NS, 0.0, 1 / NS, after)
        if stage is not None and seconds > 0:
            self.marks.append(Mark(rank, stage.kind, task, -1, 0.0, -1, piece, stage.name))
        return task

    def send(self, rank: int, peer: int, size_bytes: float, after: list[int], post_s: float | None) -> int:
        """Append a message: the processor's time to post it, then its bytes on wire and processor."""
        links = self.wiring.links(rank, peer)
        posted = self.work(rank, self.machine.message_s if post_s is None else post_s, after, None, -1, -1)
        path = tuple((link, 1.0) for link in links)
        if self.machine.byte_s > 0 or not path:
            path = (*path, (len(self.wiring.rate_Bps), max(self.machine.byte_s / NS, 1e-6)))
        return self._add(path, size_bytes, self.costs.latency_s + self.wiring.away_s(links), np.inf, [posted])

    def arrived(self, rank: int, name: str, piece: int, posted: int, size_bytes: float, tasks: list[int]) -> None:
        """Mark the time from a rank's own posting until everything has come."""
        last = self.work(rank, 0.0, [*tasks, posted], None, -1, -1)
        self.marks.append(Mark(rank, SpanKind.RECV, last, posted, size_bytes, -1, piece, name))

    def _add(self, path: tuple[tuple[int, float], ...], size: float, delay: float, cap: float, after: list[int]) -> int:
        self.rows.append((self.paths.setdefault(path, len(self.paths)), size, delay, cap))
        self.waits.append(after)
        return len(self.rows) - 1

    def run(self, *, record: bool = False) -> Course:
        """Return the course of everything."""
        path, size, delay, cap = np.array(self.rows, dtype=np.float64).T.copy()
        rows = list(self.paths)
        links = Paths.of([[link for link, _ in row] for row in rows])
        paths = Paths(links.start, links.link, np.array([share for row in rows for _, share in row]))
        tasks = Tasks.of(
            paths,
            size_bytes=size,
            first_path=path,
            num_paths=size > 0,
            delay_s=delay,
            cap_Bps=cap,
            wait_for=self.waits,
        )
        capacity = np.append(self.wiring.rate_Bps * self.costs.efficiency, self.machine.num_cores / NS)
        return run(capacity, tasks, burst_bytes=np.append(self.wiring.burst_bytes, 0.0), record=record)


def predict_step(work: Work, how: How, wiring: HostLinks, machine: SharedMachine, costs: HostCosts) -> float:
    """Return the seconds of one step in a long run of equal steps."""
    return _lay(work, how, wiring, machine, costs).run().makespan_s


def step_timeline(work: Work, how: How, wiring: HostLinks, machine: SharedMachine, costs: HostCosts) -> Timeline:
    """Return the same step as a Timeline: what every rank does when, and what every link carries."""
    tasks = _lay(work, how, wiring, machine, costs)
    name = "ring" if isinstance(how, RingCosts) else how.name
    return timeline_of(name, tasks.marks, tasks.run(record=True), wiring.names, wiring.rate_Bps, IGNORES)


def _lay(work: Work, how: How, wiring: HostLinks, machine: SharedMachine, costs: HostCosts) -> _Tasks:
    """Return all tasks of one step."""
    tasks = _Tasks(wiring, machine, costs)
    lay_step(tasks, work, [how] * len(work.elements), len(wiring.host_of_rank), take_turns=machine.take_turns)
    return tasks
