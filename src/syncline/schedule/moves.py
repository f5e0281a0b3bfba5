"""Rounds of moves in columns: many moves at once, repeated with a step.

A round is what happens together. A ring of n ranks is one `Round` of n rows repeated n - 1 times, in which the chunk
each rank sends goes back by one; it stays n rows however often it repeats and is expanded one repetition at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import ScheduleError

Ints = NDArray[np.int64]
Ops = NDArray[np.uint8]


class MoveOp(IntEnum):
    """What a chunk that arrives does: take the place of what is there, or be added to it."""

    COPY = 0
    REDUCE = 1


@dataclass(frozen=True, eq=False, slots=True)
class Moves:
    """Single moves in columns: chunk `chunk[i]` goes from vertex `src[i]` to `dst[i]` and does `op[i]` there."""

    src: Ints
    dst: Ints
    chunk: Ints
    op: Ops

    def __len__(self) -> int:
        return len(self.src)

    def pick(self, rows: Ints) -> Moves:
        """Return some of the moves."""
        return Moves(self.src[rows], self.dst[rows], self.chunk[rows], self.op[rows])

    @staticmethod
    def join(parts: Sequence[Moves]) -> Moves:
        """Return all these moves as one set."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            none = np.zeros(0, dtype=np.int64)
            return Moves(none, none, none, none.astype(np.uint8))
        return Moves(
            np.concatenate([part.src for part in parts]),
            np.concatenate([part.dst for part in parts]),
            np.concatenate([part.chunk for part in parts]),
            np.concatenate([part.op for part in parts]),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Runs:
    """Moves of runs of chunks in columns: `count[i]` chunks from `first[i]` on."""

    src: Ints
    dst: Ints
    first: Ints
    count: Ints
    op: Ops

    def within(self, low: int, high: int) -> Runs:
        """Return what these runs move of chunks low .. high - 1."""
        first = np.maximum(self.first, low)
        count = np.minimum(self.first + self.count, high) - first
        keep = np.flatnonzero(count > 0)
        return Runs(self.src[keep], self.dst[keep], first[keep], count[keep], self.op[keep])

    def singles(self) -> Moves:
        """Return the runs as moves of single chunks."""
        if self.count.max(initial=1) == 1 and self.count.min(initial=1) == 1:
            return Moves(self.src, self.dst, self.first, self.op)
        row = np.repeat(np.arange(len(self.src)), self.count)
        skipped = np.cumsum(self.count) - self.count - self.first
        return Moves(self.src[row], self.dst[row], np.arange(len(row)) - skipped[row], self.op[row])


@dataclass(frozen=True, eq=False)
class Round:
    """Columns of moves between local vertices, repeated `repeat` times.

    In repetition j row i sends `count[i]` chunks from `src` to `dst`, each walking its own circle:

        src    src_base + (src - src_base + j * src_step) mod src_size        (dst alike)
        chunk  block + (chunk + j * chunk_step + 0 .. count - 1) mod window

    With `wrap` off a chunk that walks out of the window is not moved: a pipeline that fills and drains. The
    repetitions are rounds one after the other, or with `at_once` one round. A size or window of 0 stands for all
    vertices or chunks of the kernel.
    """

    src: Ints
    dst: Ints
    chunk: Ints
    count: Ints
    op: Ops
    block: Ints
    repeat: int = 1
    at_once: bool = False
    src_step: int = 0
    dst_step: int = 0
    chunk_step: int = 0
    src_base: int = 0
    src_size: int = 0
    dst_base: int = 0
    dst_size: int = 0
    window: int = 0
    wrap: bool = True

    @property
    def num_rows(self) -> int:
        return len(self.src)

    @property
    def num_rounds(self) -> int:
        return 1 if self.at_once else self.repeat

    @property
    def fixed(self) -> bool:
        """Whether every repetition is between the same vertices."""
        return self.src_step == 0 and self.dst_step == 0

    def vertices(self, j: int) -> tuple[Ints, Ints]:
        """Return source and destination of every row in repetition j."""
        src = self.src if self.src_step == 0 else _walk(self.src, j * self.src_step, self.src_base, self.src_size)
        dst = self.dst if self.dst_step == 0 else _walk(self.dst, j * self.dst_step, self.dst_base, self.dst_size)
        return src, dst

    def runs(self, j: int) -> Runs:
        """Return the moves of repetition j as runs of neighbouring chunks, a run that wraps cut in two."""
        src, dst = self.vertices(j)
        low = self.chunk + j * self.chunk_step
        if not self.wrap:
            keep = np.flatnonzero((low >= 0) & (low < self.window))
            return Runs(src[keep], dst[keep], (self.block + low)[keep], self.count[keep], self.op[keep])
        low %= self.window
        over = low + self.count - self.window
        cut = np.flatnonzero(over > 0)
        head = Runs(src, dst, self.block + low, self.count - np.maximum(over, 0), self.op)
        if not len(cut):
            return head
        more = np.concatenate([np.arange(self.num_rows), cut])
        first = np.concatenate([head.first, self.block[cut]])
        return Runs(src[more], dst[more], first, np.concatenate([head.count, over[cut]]), self.op[more])

    def step(self, j: int) -> Moves:
        """Return the single moves of repetition j."""
        return self.runs(j).singles()

    def rounds(self) -> Sequence[Sequence[int]]:
        """Return the repetitions that happen in each round."""
        return [range(self.repeat)] if self.at_once else [range(j, j + 1) for j in range(self.repeat)]

    def num_moves(self) -> int:
        """Count the single moves of all repetitions."""
        if self.wrap:
            return int(self.count.sum()) * self.repeat
        return int(self.active_repetitions().sum())

    def active_repetitions(self) -> Ints:
        """Return in how many repetitions each row moves something."""
        if self.wrap:
            return np.full(self.num_rows, self.repeat, dtype=np.int64)
        first, last = self.active_range()
        active: Ints = np.maximum(last - first + 1, 0)
        return active

    def active_range(self) -> tuple[Ints, Ints]:
        """Return the first and last repetition in which each row of a pipeline moves something."""
        step, low = self.chunk_step, self.chunk
        if step == 0:
            inside = (low >= 0) & (low < self.window)
            return np.where(inside, 0, 1), np.where(inside, self.repeat - 1, 0)
        reach = low if step > 0 else self.window - 1 - low
        pace = abs(step)
        first = np.maximum(-(reach // pace), 0)
        last = np.minimum((self.window - 1 - reach) // pace, self.repeat - 1)
        return first, last


def _walk(at: Ints, by: int, base: int, size: int) -> Ints:
    return base + (at - base + by) % size


def moves_round(
    src: ArrayLike,
    dst: ArrayLike,
    chunk: ArrayLike,
    op: ArrayLike,
    *,
    count: ArrayLike = 1,
    block: ArrayLike = 0,
    repeat: int = 1,
    at_once: bool = False,
    src_step: int = 0,
    dst_step: int = 0,
    chunk_step: int = 0,
    src_circle: tuple[int, int] = (0, 0),
    dst_circle: tuple[int, int] = (0, 0),
    window: int = 0,
    wrap: bool = True,
) -> Round:
    """Make a `Round` from anything array-like, single numbers standing for whole columns."""
    columns = [np.atleast_1d(np.asarray(column)) for column in (src, dst, chunk, count, op, block)]
    rows = max((len(column) for column in columns if column.shape != (1,)), default=1)
    rows = 0 if any(len(column) == 0 for column in columns) else rows
    wide = [_column(column, rows) for column in columns]
    return Round(
        wide[0],
        wide[1],
        wide[2],
        wide[3],
        wide[4].astype(np.uint8),
        wide[5],
        repeat,
        at_once,
        src_step,
        dst_step,
        chunk_step,
        *src_circle,
        *dst_circle,
        window,
        wrap,
    )


def _column(column: NDArray[np.generic], rows: int) -> Ints:
    if column.ndim != 1 or (rows and len(column) not in (1, rows)):
        raise ScheduleError(f"a round has columns of {rows} and of {len(column)} rows.")
    out: Ints = np.ascontiguousarray(np.broadcast_to(column, rows) if rows else column[:0], dtype=np.int64)
    out.flags.writeable = False
    return out


def check_round(entry: Round, num_vertices: int, num_chunks: int, where: str) -> Round:
    """Return the round with its sizes filled in, or say which row is out of range."""
    filled = _fill(entry, num_vertices, num_chunks)
    if entry.repeat < 0 or entry.repeat > 1 << 31:
        raise ScheduleError(f"a round cannot repeat {entry.repeat} times.", where=where)
    for name, base, size in (("src", filled.src_base, filled.src_size), ("dst", filled.dst_base, filled.dst_size)):
        if base < 0 or size < 1 or base + size > num_vertices:
            raise ScheduleError(
                f"{name} walks {base} to {base + size - 1}; there are {num_vertices} vertices.", where=where
            )
        column = filled.src if name == "src" else filled.dst
        _in_range(column, base, base + size - 1, name, where)
    if not 0 < filled.window <= num_chunks:
        raise ScheduleError(f"window of {filled.window} chunks; the kernel has {num_chunks}.", where=where)
    _in_range(filled.block, 0, num_chunks - filled.window, "block", where)
    _in_range(filled.count, 0 if filled.wrap else 1, filled.window if filled.wrap else 1, "count", where)
    _in_range(filled.chunk, -(1 << 40), 1 << 40, "chunk", where)
    _in_range(filled.op.astype(np.int64), 0, 1, "op", where)
    _no_self_moves(filled, where)
    return filled


def _fill(entry: Round, num_vertices: int, num_chunks: int) -> Round:
    return replace(
        entry,
        src_size=entry.src_size or num_vertices - entry.src_base,
        dst_size=entry.dst_size or num_vertices - entry.dst_base,
        window=entry.window or num_chunks,
    )


def _in_range(column: Ints, low: int, high: int, name: str, where: str) -> None:
    bad = np.flatnonzero((column < low) | (column > high))
    if len(bad):
        raise ScheduleError(f"{name} {column[bad[0]]} in row {bad[0]} is outside {low} to {high}.", where=where)


def _no_self_moves(entry: Round, where: str) -> None:
    if entry.fixed:
        bad = np.flatnonzero(entry.src == entry.dst)
        if len(bad):
            raise ScheduleError(f"row {bad[0]} moves a chunk from vertex {entry.src[bad[0]]} to itself.", where=where)
