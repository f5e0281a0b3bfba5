"""A kernel: one small collective in rounds; a stage: that kernel on many groups of ranks at once.

A kernel knows only local ranks 0 .. m-1 and local chunks. A stage says which ranks each group has and which chunks of
the strand each local chunk stands for, so that 2,048 hosts that each reduce-scatter over 8 GPUs are one 8-rank kernel
and a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import MAX_CHUNKS, MAX_RANKS, Collective, Ints
from syncline.schedule.moves import Moves, Round, check_round

MAX_ROUNDS = 1 << 22
"""Rounds one kernel may have: twice what a ring of all the ranks a schedule can have needs."""

Axes = tuple[tuple[int, int], ...]
"""(count, stride) per digit, the first digit the slowest: a way to number chunks."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """Rounds that perform `goal` over local vertices: ranks first, then helpers.

    Helpers (parameter servers, reducing switches, scratch buffers) give nothing, need nothing and start at zero. All
    other cells hold unknown data until something is copied there.
    """

    name: str
    goal: Collective
    num_chunks: int
    rounds: tuple[Round, ...]
    num_helpers: int = 0

    def __post_init__(self) -> None:
        self.goal.check_chunks(self.num_chunks)
        if not 0 <= self.num_helpers <= MAX_RANKS:
            raise ScheduleError(f"{self.num_helpers} helpers are outside 0 to {MAX_RANKS}.")
        checked = tuple(
            check_round(entry, self.num_vertices, self.num_chunks, f'kernel "{self.name}" round entry {i}')
            for i, entry in enumerate(self.rounds)
        )
        object.__setattr__(self, "rounds", checked)
        if self.num_rounds > MAX_ROUNDS:
            raise ScheduleError(f'kernel "{self.name}" has {self.num_rounds:,} rounds, more than {MAX_ROUNDS:,}.')

    @property
    def num_ranks(self) -> int:
        return self.goal.num_ranks

    @property
    def num_vertices(self) -> int:
        return self.goal.num_ranks + self.num_helpers

    @cached_property
    def num_rounds(self) -> int:
        """Count the rounds, one after the other."""
        return sum(entry.num_rounds for entry in self.rounds)

    @cached_property
    def num_moves(self) -> int:
        """Count the moves of single chunks."""
        return sum(entry.num_moves() for entry in self.rounds)

    def steps(self) -> Iterator[Moves]:
        """Yield the single moves of one round after the other."""
        for entry in self.rounds:
            for repetitions in entry.rounds():
                yield Moves.join([entry.step(j) for j in repetitions])


@dataclass(frozen=True, eq=False)
class Stage:
    """One kernel at work on every group of `members` at once.

    Row g of `members` gives the global vertex of each local one. Local chunk c of group g stands for the strand's
    chunks `base[g] + index(c) + span`, where `index` numbers the local chunks digit by digit and `spans` says which
    chunks move as one: ((4, 8),) are the four chunks 0, 8, 16 and 24.
    """

    kernel: Kernel
    members: Ints
    base: Ints
    index: Axes
    spans: Axes = ()

    def __post_init__(self) -> None:
        members = np.ascontiguousarray(self.members, dtype=np.int64)
        base = np.ascontiguousarray(self.base, dtype=np.int64)
        if members.ndim != 2 or members.shape[1] != self.kernel.num_vertices or base.shape != members.shape[:1]:
            raise ScheduleError(f'kernel "{self.kernel.name}" has {self.kernel.num_vertices} vertices, its group table '
                                f"has shape {members.shape} and its bases {base.shape}.")  # fmt: skip
        for axes in (self.index, self.spans):
            if any(count < 1 or stride < 0 for count, stride in axes) or prod(count for count, _ in axes) > MAX_CHUNKS:
                raise ScheduleError(f"chunk digits {axes} need positive counts and no negative strides.")
        if prod(count for count, _ in self.index) != self.kernel.num_chunks:
            raise ScheduleError(f"chunk digits {self.index} do not number {self.kernel.num_chunks} chunks.")
        members.flags.writeable = base.flags.writeable = False
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "base", base)

    @property
    def num_groups(self) -> int:
        return len(self.members)

    @property
    def num_moves(self) -> int:
        """Count the moves of single chunks of the strand, in all groups."""
        return self.kernel.num_moves * self.num_groups * self.span_size

    @property
    def span_size(self) -> int:
        """How many chunks of the strand one local chunk stands for."""
        return prod(count for count, _ in self.spans)

    @property
    def is_whole(self) -> bool:
        """Whether the stage is its kernel: one group, the same numbers."""
        same = np.array_equal(self.members, np.arange(self.kernel.num_vertices)[None, :])
        plain = not self.spans and self.base[:1].tolist() == [0] and numbering(self.index) is None
        return self.num_groups == 1 and plain and same

    def chunk_offsets(self) -> Ints:
        """Return the strand chunk that each local chunk starts at, before the group's base is added."""
        return digits(self.index)

    def span_offsets(self) -> Ints:
        """Return the chunks that move as one, relative to the first."""
        return digits(self.spans)

    def spread(self, local: Moves) -> Moves:
        """Return local moves as moves of every group and of every chunk they stand for."""
        groups, spans = np.arange(self.num_groups)[:, None, None], self.span_offsets()[None, None, :]
        shape = (self.num_groups, len(local), spans.shape[2])
        chunk = (self.base[groups] + digits(self.index, local.chunk)[None, :, None] + spans).ravel()
        src, dst = self.members[:, local.src], self.members[:, local.dst]
        src, dst = (np.broadcast_to(column[:, :, None], shape).ravel() for column in (src, dst))
        return Moves(src, dst, chunk, np.broadcast_to(local.op[None, :, None], shape).ravel())

    def steps(self) -> Iterator[Moves]:
        """Yield the single moves of all groups, one round after the other."""
        for local in self.kernel.steps():
            yield self.spread(local)


def whole(kernel: Kernel) -> Stage:
    """Return the stage that is just this kernel."""
    return Stage(
        kernel, np.arange(kernel.num_vertices)[None, :], np.zeros(1, dtype=np.int64), ((kernel.num_chunks, 1),)
    )


def digits(axes: Axes, numbers: Ints | None = None) -> Ints:
    """Return where each number (all of them by default) lies when its digits get these strides."""
    at = np.arange(prod(count for count, _ in axes), dtype=np.int64) if numbers is None else numbers
    out = np.zeros(len(at), dtype=np.int64)
    for count, stride in reversed(axes):
        at, digit = np.divmod(at, count)
        out += digit * stride
    return out


def numbering(axes: Axes) -> Axes | None:
    """Return None when the digits are plain counting from 0, else the digits."""
    step = 1
    for count, stride in reversed(axes):
        if count > 1 and stride != step:
            return axes
        step *= count
    return None
