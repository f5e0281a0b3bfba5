"""Cells and messages of an MSCCL program, turned into moves of chunks between vertices.

A vertex has one place a chunk. The first place a GPU has for a chunk (its input, or else its output) is the rank
itself; every further one (scratch, an output apart from the input, data on its way) is a helper at home on the GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, groupby

from syncline.errors import NotProvedError, ScheduleError
from syncline.schedule.collective import OWNED, PAIRED
from syncline.schedule.formats.msccl_buffers import Buffers, Cell
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.moves import MoveOp, Round, moves_round
from syncline.schedule.schedule import Schedule, Strand

Held = tuple[int, int]
"""(vertex, chunk)."""

MAX_MOVES = 1 << 22


@dataclass
class _Sending:
    """A step that sends chunks: the round from which it can be under way, and the one in which it arrived."""

    ready: int
    block: int
    first: int
    last: int
    done: int = -1


class Emitter:
    """Knows what every cell holds, and writes down the moves with the round each can happen in."""

    def __init__(self, buffers: Buffers) -> None:
        self.buffers = buffers
        self.num_ranks = buffers.collective.num_ranks
        self.chunk_of: dict[Cell, int] = dict(buffers.inputs())
        self.outputs = buffers.outputs()
        self.main: dict[tuple[int, int], Cell] = {}
        for cell, chunk in [*self.chunk_of.items(), *self.outputs.items()]:
            self.main.setdefault((cell[0], chunk), cell)
        self.lanes: dict[tuple[int, int], dict[Hashable, int]] = defaultdict(dict)
        self.helper: dict[tuple[int, int], int] = {}
        self.homes: list[int] = []
        self.moves: list[tuple[int, int, int, int, int]] = []
        self.written: dict[Held, int] = defaultdict(lambda: -1)
        self.copied: dict[Held, int] = defaultdict(lambda: -1)
        self.read: dict[Held, int] = defaultdict(lambda: -1)
        self.messages: list[tuple[Held, int]] = []
        self.step_of: list[_Sending] = []
        self.last_step: dict[int, _Sending] = {}
        self.flying: dict[Held, set[int]] = defaultdict(set)
        self.channels: dict[int, set[int]] = defaultdict(set)

    def held(self, cell: Cell) -> Held:
        """Return where the data of a cell is."""
        if cell not in self.chunk_of:
            raise NotProvedError(f"reads chunk {cell[2]} of buffer {cell[1]}, which nothing has been written to.")
        return self._place(cell, self.chunk_of[cell])

    def _place(self, cell: Cell, chunk: int) -> Held:
        if self.main.get((cell[0], chunk)) == cell:
            return cell[0], chunk
        return self._lane(cell[0], chunk, cell)

    def _lane(self, gpu: int, chunk: int, key: Hashable) -> Held:
        lanes = self.lanes[gpu, chunk]
        lane = lanes.setdefault(key, len(lanes))
        if (gpu, lane) not in self.helper:
            self.helper[gpu, lane] = self.num_ranks + len(self.homes)
            self.homes.append(gpu)
        return self.helper[gpu, lane], chunk

    def post(self, sent: list[Held], peer: int, channel: int, block: int) -> list[int]:
        """Send what places hold in one step, which none leaves before all are there; return what is under way."""
        ready = max((self.written[held] + 1 for held in sent), default=0)
        step = _Sending(ready, block, *((sent[0][1], sent[-1][1]) if sent else (-1, -1)))
        first = len(self.messages)
        for number, held in enumerate(sent, start=first):
            self.channels[held[1]].add(channel)
            self.messages.append((held, peer))
            self.step_of.append(step)
            self.flying[held].add(number)
        return list(range(first, len(self.messages)))

    def _ready(self, message: int) -> _Sending:
        """Return the step that sent a message.

        A thread block's steps go in order. Chunks side by side that are sent in two steps are two rounds of a pipeline,
        as they would be one step otherwise; chunks apart need a step each, and may be of one round.
        """
        step = self.step_of[message]
        before = self.last_step.get(step.block)
        if before is not None and before is not step:
            step.ready = max(step.ready, before.done + (1 if step.first == before.last + 1 else 0))
        self.last_step[step.block] = step
        return step

    def _take(self, message: int) -> Held:
        held, _ = self.messages[message]
        self.flying[held].discard(message)
        return held

    def _move(self, src: Held, dst: Held, op: MoveOp, step: _Sending | None = None) -> None:
        if src[1] != dst[1]:
            raise NotProvedError(f"adds chunk {src[1]} to chunk {dst[1]}.")
        if src == dst:
            return
        for message in sorted(self.flying.pop(dst, ())):  # sent but not received: it must not see the new data
            peer = self.messages[message][1]
            self.messages[message] = (self._lane(peer, dst[1], ("on its way", message)), peer)
            self._write_down(dst, self.messages[message][0], MoveOp.COPY)
            self.flying[self.messages[message][0]].add(message)
        self._write_down(src, dst, op, step)

    def _write_down(self, src: Held, dst: Held, op: MoveOp, step: _Sending | None = None) -> None:
        if op is MoveOp.COPY:
            after = max(self.written[dst], self.read[dst]) + 1
        else:  # sums of one round land together
            after = max(self.copied[dst] + 1, self.read[dst])
        number = max(self.written[src] + 1, after, step.ready if step else 0)
        if step:
            step.done = max(step.done, number)
        self.moves.append((number, src[0], dst[0], src[1], int(op)))
        self.read[src] = max(self.read[src], number)
        self.written[dst] = max(self.written[dst], number)
        if op is MoveOp.COPY:
            self.copied[dst] = number
        if len(self.moves) > MAX_MOVES:
            raise ScheduleError(f"more than {MAX_MOVES:,} moves.")

    def receive(self, message: int, cell: Cell) -> Held:
        """Receive into a cell; return where it now is."""
        src = self._take(message)
        dst = self._place(cell, src[1])
        self._move(src, dst, MoveOp.COPY, self._ready(message))
        self.chunk_of[cell] = src[1]
        return dst

    def receive_sum(self, message: int, cell: Cell, target: Cell) -> Held:
        """Receive, add what a cell holds, and put the sum in a target."""
        src = self._take(message)
        own = self.held(cell)
        dst = self._place(target, own[1])
        self._move(own, dst, MoveOp.COPY)
        self._move(src, dst, MoveOp.REDUCE, self._ready(message))
        self.chunk_of[target] = own[1]
        return dst

    def pass_on(self, message: int, cell: Cell, gpu: int, key: Hashable, dies: bool) -> Held:
        """Receive and add what a cell holds, keeping the sum only to send it; return where it is."""
        src, own = self._take(message), self.held(cell)
        if dies:  # the cell is overwritten next: nobody can tell whether the sum was left in it
            self._move(src, own, MoveOp.REDUCE, self._ready(message))
            return own
        sum_ = self._lane(gpu, own[1], ("passing", key))
        self._move(own, sum_, MoveOp.COPY)
        self._move(src, sum_, MoveOp.REDUCE, self._ready(message))
        return sum_

    def copy(self, cell: Cell, target: Cell) -> None:
        """Copy a cell on the same GPU."""
        src = self.held(cell)
        self._move(src, self._place(target, src[1]), MoveOp.COPY)
        self.chunk_of[target] = src[1]

    def add(self, cell: Cell, target: Cell) -> None:
        """Add a cell to another on the same GPU."""
        self._move(self.held(cell), self.held(target), MoveOp.REDUCE)

    def finish(self, name: str, where: str) -> Schedule:
        """Return the schedule, with every result moved to its rank."""
        for cell, chunk in self.outputs.items():
            if self.chunk_of.get(cell) != chunk:
                held = f"chunk {self.chunk_of[cell]}" if cell in self.chunk_of else "nothing"
                raise NotProvedError(f"gpu {cell[0]} ends with {held} where chunk {chunk} must be "
                                     f"(buffer {cell[1]}, chunk {cell[2]}).")  # fmt: skip
            self._move(self._place(cell, chunk), (cell[0], chunk), MoveOp.COPY)
        goal, total = self.buffers.collective, self.buffers.num_chunks
        strands = []
        for channel, chunks in enumerate(self._apart()):
            kernel = Kernel(name, goal, len(chunks), self._rounds(chunks), len(self.homes))
            strands.append(Strand((whole(kernel),), len(chunks), Fraction(len(chunks), total), channel=channel))
        return Schedule(name, goal, tuple(strands), len(self.homes), tuple(self.homes), family="msccl")

    def _apart(self) -> list[range]:
        """Return the chunks of each channel where channels share none: thread blocks do not wait across channels.

        A strand's part of the buffer lies in one piece: chunks that do not, or that ranks own, stay together.
        """
        total = self.buffers.num_chunks
        used = [self.channels.get(chunk, set()) for chunk in range(total)]
        if self.buffers.collective.kind in OWNED | PAIRED or any(len(channels) != 1 for channels in used):
            return [range(total)]
        of_chunk = [next(iter(channels)) for channels in used]
        runs = [len(list(same)) for _, same in groupby(of_chunk)]
        if len(runs) > len(set(of_chunk)):
            return [range(total)]
        return [range(end - length, end) for length, end in zip(runs, accumulate(runs), strict=True)]

    def _rounds(self, chunks: range) -> tuple[Round, ...]:
        by_round: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for number, src, dst, chunk, op in self.moves:
            if chunk in chunks:
                by_round[number].append((src, dst, chunk - chunks.start, op))
        return tuple(moves_round(*zip(*by_round[k], strict=True)) for k in sorted(by_round))
