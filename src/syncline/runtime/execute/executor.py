"""The executor: any program over torch.distributed, measured.

    with Executor(Group()) as executor:
        timeline = executor.run(program, buffer)             # this rank's spans; t = 0 is the common start
        everyone = executor.gather(timeline)

Every process of the group calls `run` with the same program and its own buffer; rank i of the program is process i of
the group. The buffer is the program's: all blocks of the collective, the rank's own filled in, and the result in place.
Backends: gloo and MPI match messages by tag, so strands run side by side on threads (gloo) or in lockstep (MPI); NCCL
gets the messages of a round in one batch.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from syncline.errors import ExecutionError
from syncline.program.program import Program, ProgramStep, VendorStep
from syncline.runtime.alive.pace import Pace
from syncline.runtime.execute.lane import Lane, LaneRound, Tags, build_round, join_near, seats, sits_with_ranks
from syncline.runtime.execute.play import Player
from syncline.runtime.execute.posting import Deadline, Post
from syncline.runtime.execute.record import LaneColumns, agent_spans, gather, source
from syncline.runtime.execute.vendor_step import VendorCall
from syncline.runtime.group import Group
from syncline.runtime.span_writer import SpanWriter
from syncline.runtime.sync.coding import codec_of, in_codec
from syncline.schedule.collective import PAIRED
from syncline.timeline import SpanKind, Timeline, TimelineBuilder

DEADLINE_S = 60.0
MAX_BOUND = 64
"""Bindings kept ready; the one longest unused is dropped, and its buffers with it."""


class Executor:
    """Runs programs on one group. `deadline_s` is how long one step may take before the silent rank is named.

    `lockstep` makes strands wait for each other after every round; it is chosen by the backend unless given.
    `send_Bps` holds what this rank sends to a rate, in place of a slow link; gloo only.
    """

    def __init__(
        self,
        group: Group | dist.ProcessGroup | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        lockstep: bool | None = None,
        lead_s: float = 0.02,
        send_Bps: float | None = None,
    ) -> None:
        self.group = group if isinstance(group, Group) else Group(group)
        self.deadline_s = deadline_s
        self.lead_s = lead_s
        self.lockstep = self.group.backend != "gloo" if lockstep is None else lockstep
        if send_Bps is not None and self.group.backend != "gloo":
            raise ExecutionError(f"send_Bps does not work with {self.group.backend}.", hint="Use the gloo backend.")
        self._post = Post(self.group, None if send_Bps is None else Pace(send_Bps))
        self._writer = SpanWriter()
        self._bound: dict[tuple[Any, ...], BoundProgram] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._broken = False

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of buffers and threads; the group stays."""
        self._bound.clear()
        self._writer.close()
        if self._post.pace is not None:
            self._post.pace.close()
            self._post.pace = None
        if self._pool is not None:
            self._pool.shutdown(wait=not self._broken)
            self._pool = None

    def bind(self, program: Program, buffer: torch.Tensor, *, size: int | None = None) -> BoundProgram:
        """Return the program made ready for this buffer: tensors allocated, messages laid out.

        `size` is the collective's size in elements where the buffer is larger than one collective needs.
        """
        key = (id(program), buffer.data_ptr(), buffer.numel(), buffer.dtype, size)
        found = self._bound.pop(key, None) or BoundProgram(self, program, buffer, size)
        self._bound[key] = found
        while len(self._bound) > MAX_BOUND:
            self._bound.pop(next(iter(self._bound)))
        return found

    def release(self, bound: BoundProgram) -> None:
        """Let go of a program's buffers; many large ones would fill the memory."""
        self._bound = {key: kept for key, kept in self._bound.items() if kept is not bound}

    def run(self, program: Program, buffer: torch.Tensor, *, size: int | None = None) -> Timeline:
        """Run the program and return this rank's timeline; all ranks begin at the same moment, which is its zero."""
        bound = self.bind(program, buffer, size=size)
        start_s = self.group.agree_start_s(self.lead_s)
        late_s = sleep_until(start_s)
        return bound.run(start_s, late_s)

    def gather(self, timeline: Timeline) -> Timeline:
        """Return the timeline of all ranks, on every rank."""
        return gather(timeline, self.group)

    def pool(self, num_threads: int) -> ThreadPoolExecutor:
        """Return threads for so many lanes, made once."""
        if self._pool is None or self._pool._max_workers < num_threads:
            if self._pool is not None:
                self._pool.shutdown()
            self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="syncline-lane")
        return self._pool


class BoundProgram:
    """A program on a buffer, ready to run again and again without allocating."""

    def __init__(self, executor: Executor, program: Program, buffer: torch.Tensor, size: int | None) -> None:
        self.executor = executor
        self.program = program
        self.buffer = _flat(buffer)
        self.size = _size(program, self.buffer, size)
        self.steps = [self._prepare(number, step) for number, step in enumerate(program.steps)]
        group = executor.group
        seated = any(
            sits_with_ranks(s.proved.schedule, group.size) for s in program.steps if isinstance(s, ProgramStep)
        )  # fmt: skip
        self.metadata = {
            "program": program.name, "backend": group.backend, "ranks": program.num_ranks, "size_elements": self.size,
            "size_bytes": self.size * self.buffer.element_size(), "lockstep": executor.lockstep,
            "helpers": "seated with ranks" if seated else "seated by themselves",
        }  # fmt: skip

    def run(self, start_s: float, late_s: float = 0.0) -> Timeline:
        """Run it now; times count from `start_s` on the monotonic clock."""
        executor = self.executor
        if executor._broken:
            raise ExecutionError("this executor's connections were lost in an earlier run.",
                                 hint="Make a new process group and a new executor.")  # fmt: skip
        executor._post.next_run()
        builder = TimelineBuilder(source(), self.metadata | {"late_s": late_s, "same_clock": executor.group.same_clock})
        try:
            for number, step in enumerate(self.steps):
                self._run_step(number, step, builder, start_s)
        except ExecutionError:
            executor._broken = True
            raise
        timeline = builder.build()
        if executor._writer.is_heard() and len(timeline.spans):
            size_bytes = self.size * self.buffer.element_size()
            executor._writer.send(agent_spans(timeline, executor.group.rank, self.program.name, size_bytes, start_s))
        return timeline

    def _run_step(self, number: int, step: _Prepared | VendorCall, builder: TimelineBuilder, start_s: float) -> None:
        deadline = Deadline(self.executor.deadline_s)
        if isinstance(step, VendorCall):
            began = time.monotonic()
            step.run(deadline)
            builder.add_span(
                self.executor.group.rank, began - start_s, time.monotonic() - start_s, SpanKind.COLLECTIVE,
                self.program.name, step=number, size_bytes=self.size * self.buffer.element_size(),
            )  # fmt: skip
            return
        for scratch in step.helpers.values():
            scratch.zero_()
        threads = len(step.player.lanes) > 1 and not self.executor.lockstep
        step.player.run(deadline, self.executor.pool(len(step.player.lanes)) if threads else None)
        for columns, log in zip(step.columns, step.player.logs, strict=True):
            columns.add(builder, log, start_s, self.program.name)

    def _prepare(self, number: int, step: ProgramStep | VendorStep) -> _Prepared | VendorCall:
        if isinstance(step, VendorStep):
            return VendorCall(self.executor.group, step.collective, self.buffer, self.size)
        return _Prepared(self, number, step)


class _Prepared:
    """One step's lanes on this process, the buffers of helpers that sit here, and the columns of its record."""

    def __init__(self, bound: BoundProgram, number: int, step: ProgramStep) -> None:
        group, schedule = bound.executor.group, step.proved.schedule
        seat = seats(schedule, group.size)
        tags = Tags(len(schedule.strands), schedule.num_vertices)
        single = Program(bound.program.name, (step,), bound.program.placement)
        width = step.collective.total_bytes(bound.size)
        codec = codec_of(step.codec, bound.buffer)
        self.helpers: dict[int, torch.Tensor] = {}
        lanes: list[Lane] = []
        for vertex in (v for v in range(schedule.num_vertices) if seat[v] == group.rank):
            buffer = bound.buffer
            if vertex >= schedule.num_ranks:
                buffer = self.helpers[vertex] = torch.zeros(width, dtype=buffer.dtype, device=buffer.device)
            rounds: dict[int, list[LaneRound]] = {}
            for entry in single.rank_rounds(vertex, bound.size):
                rounds.setdefault(entry.strand, []).append(build_round(entry, vertex, buffer, seat, tags))
            for strand, entries in rounds.items():
                kept = tuple(entry for entry in entries if entry.sends or entry.receives)
                lane = Lane(vertex, strand, kept)
                lanes.append(in_codec(lane, codec) if codec is not None else lane)
        join_near(lanes, group.rank)
        self.player = Player(bound.executor._post, lanes, bound.program.name, bound.executor.lockstep)
        self.columns = [LaneColumns(lane, number) for lane in lanes]


def _flat(buffer: torch.Tensor) -> torch.Tensor:
    if not buffer.is_contiguous():
        raise ExecutionError(f"a buffer of shape {tuple(buffer.shape)} is not contiguous.",
                             hint="Pass buffer.contiguous(), and copy the result back.")  # fmt: skip
    return buffer.detach().view(-1)


def _size(program: Program, buffer: torch.Tensor, size: int | None) -> int:
    """Return the size of the collective in elements: as given, or the one that the buffer is made for."""
    paired = [step.collective.kind in PAIRED for step in program.steps]
    if size is None:
        size, rest = divmod(buffer.numel(), program.num_ranks if any(paired) else 1)
        if rest:
            raise ExecutionError(f"a buffer of {buffer.numel()} elements does not hold the send buffers of "
                                 f"{program.num_ranks} ranks.", hint="Give a multiple of the ranks.")  # fmt: skip
    need = max(step.collective.total_bytes(size) for step in program.steps)
    if need > buffer.numel():
        raise ExecutionError(f"{program.name} needs a buffer of {need} elements; this one has {buffer.numel()}.")
    return size


def sleep_until(start_s: float) -> float:
    """Sleep until a moment of the monotonic clock; returns by how much it was missed."""
    while True:
        left = start_s - time.monotonic()
        if left <= 0:
            return max(0.0, -left)
        time.sleep(left)
