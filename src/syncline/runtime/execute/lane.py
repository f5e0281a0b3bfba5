"""A lane: what one vertex does in one strand, ready to run: every message with its tensors, made once.

A message carries all rows (chunks) that go to one peer in one round with one operation. Rows that lie side by side in
the buffer are sent from where they lie and, when they are copies, received where they belong; others are packed in a
staging tensor that is allocated with the lane. What is to be added always arrives in staging.

A rank of the schedule is its own process. A helper with a home (a scratch buffer, a server that lives with a worker)
sits with that rank. One without (a server or a reducing switch of its own) gets a spare process when the group has more
processes than the program has ranks, and otherwise sits with a rank, in turn: the result is the same, the traffic
through that rank's NIC is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from threading import Semaphore

import numpy as np
import torch
from numpy.typing import NDArray

from syncline.errors import ExecutionError
from syncline.program.program import Messages, RankRound
from syncline.schedule.schedule import NO_HOME, Schedule

MAX_TAG = 1 << 31


@dataclass(frozen=True)
class Slice:
    """One chunk of a message: its part of the vertex's buffer, and its place in the buffer by number of elements."""

    offset: int
    data: torch.Tensor


@dataclass(eq=False)
class Message:
    """One message of one round. `wire` is what is posted; `rows` say what of the buffer it carries.

    `near` is the other end of a message that stays in this process: then the two semaphores stand for the wire.
    """

    peer: int
    process: int
    tag: int
    reduce: bool
    rows: tuple[Slice, ...]
    wire: torch.Tensor
    packed: bool
    near: Message | None = None
    ready: Semaphore = field(default_factory=lambda: Semaphore(0))
    taken: Semaphore = field(default_factory=lambda: Semaphore(0))

    @property
    def num_elements(self) -> int:
        return sum(row.data.numel() for row in self.rows)

    def pack(self) -> None:
        """Bring the rows into `wire`, unless they are sent from where they lie."""
        if self.packed:
            at = 0
            for row in self.rows:
                size = row.data.numel()
                self.wire[at : at + size].copy_(row.data)
                at += size

    def unpack(self) -> None:
        """Bring what came to its place: added, or copied where it did not land there by itself."""
        if not self.packed:
            return
        at = 0
        for row in self.rows:
            size = row.data.numel()
            came = self.wire[at : at + size]
            if self.reduce:
                row.data.add_(came)
            else:
                row.data.copy_(came)
            at += size


@dataclass(eq=False)
class LaneRound:
    """What a lane posts together and then waits for."""

    number: int
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


@dataclass(eq=False)
class Lane:
    """The rounds of one vertex in one strand, in order."""

    vertex: int
    strand: int
    rounds: tuple[LaneRound, ...]

    @property
    def messages(self) -> Iterator[Message]:
        """Every message, round by round, sends first."""
        for entry in self.rounds:
            yield from entry.sends
            yield from entry.receives


@dataclass(frozen=True)
class Tags:
    """Numbers that tell apart the messages of two processes: by strand and by the vertices at both ends."""

    num_strands: int
    num_vertices: int

    def __post_init__(self) -> None:
        if self.num_strands * self.num_vertices**2 >= MAX_TAG:
            raise ExecutionError(f"{self.num_strands} strands of {self.num_vertices} ranks and helpers need more tags "
                                 f"than there are.", hint="Use fewer channels.")  # fmt: skip

    def of(self, strand: int, src: int, dst: int) -> int:
        """Return the tag of messages from one vertex to another in a strand."""
        return 1 + (strand * self.num_vertices + src) * self.num_vertices + dst


def build_round(
    entry: RankRound, vertex: int, buffer: torch.Tensor, seat: np.ndarray[tuple[int], np.dtype[np.int64]], tags: Tags
) -> LaneRound:
    """Return one round of a lane on this buffer, of which program offsets count elements."""
    sends = tuple(
        _message(peer, int(seat[peer]), tags.of(entry.strand, vertex, peer), reduce, rows, buffer, coming=False)
        for peer, reduce, rows in _grouped(entry.sends, buffer)
    )
    receives = tuple(
        _message(peer, int(seat[peer]), tags.of(entry.strand, peer, vertex), reduce, rows, buffer, coming=True)
        for peer, reduce, rows in _grouped(entry.receives, buffer)
    )
    return LaneRound(entry.round, sends, receives)


def _grouped(messages: Messages, buffer: torch.Tensor) -> Iterator[tuple[int, bool, tuple[Slice, ...]]]:
    """Yield what goes to (or comes from) each peer with each operation; chunks without elements are left out."""
    rows = zip(
        messages.peer.tolist(), messages.reduce.tolist(), messages.offset_bytes.tolist(), messages.size_bytes.tolist(),
        strict=True,
    )  # fmt: skip
    kept = sorted((row for row in rows if row[3] > 0), key=lambda row: row[:2])  # stable: chunks stay in order
    for (peer, reduce), same in groupby(kept, key=lambda row: row[:2]):
        yield peer, reduce, tuple(Slice(offset, buffer[offset : offset + size]) for _, _, offset, size in same)


def _message(
    peer: int, process: int, tag: int, reduce: bool, rows: tuple[Slice, ...], buffer: torch.Tensor, *, coming: bool
) -> Message:
    low, high = rows[0].offset, rows[-1].offset + rows[-1].data.numel()
    total = sum(row.data.numel() for row in rows)
    if high - low == total and not (coming and reduce):
        return Message(peer, process, tag, reduce, rows, buffer[low:high], packed=False)
    wire = torch.empty(total, dtype=buffer.dtype, device=buffer.device)
    return Message(peer, process, tag, reduce, rows, wire, packed=True)


def join_near(lanes: list[Lane], process: int) -> None:
    """Tie the two ends of every message that stays in this process: the k-th sent on a tag is the k-th received."""
    sent: dict[int, list[Message]] = {}
    for lane in lanes:
        for entry in lane.rounds:
            for message in entry.sends:
                if message.process == process:
                    sent.setdefault(message.tag, []).append(message)
    for lane in lanes:
        for entry in lane.rounds:
            for message in entry.receives:
                if message.process == process:
                    message.near = sent[message.tag].pop(0)
                    message.near.near = message


def seats(schedule: Schedule, num_processes: int) -> NDArray[np.int64]:
    """Return the process of each vertex."""
    ranks = schedule.num_ranks
    if num_processes < ranks:
        raise ExecutionError(f"{schedule.name} is for {ranks} ranks, but the group has {num_processes}.",
                             hint="Start more processes, or lower the schedule for fewer ranks.")  # fmt: skip
    seat = schedule.device_rank().copy()
    loose = np.flatnonzero(seat == NO_HOME)
    spare = num_processes >= ranks + len(loose)
    seat[loose] = ranks + np.arange(len(loose)) if spare else np.arange(len(loose)) % ranks
    return seat


def sits_with_ranks(schedule: Schedule, num_processes: int) -> bool:
    """Whether helpers that are devices of their own had to be seated with ranks: then their traffic is not modelled."""
    loose = int((schedule.device_rank() == NO_HOME).sum())
    return loose > 0 and num_processes < schedule.num_ranks + loose
