"""Replay a kernel on numbers and see what every vertex ends with.

Chunks never mix, so the state is one number (or one row of counts) per (vertex, chunk) and any range of chunks can be
replayed alone: that bounds memory. A kernel whose rows walk the chunks in step is stored skewed, so that what moves
together lies together; this changes where a cell is kept, never what is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from syncline.schedule.collective import ALL, Collective, Ints
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Moves, Ops, Round
from syncline.schedule.proof.field import Numbers, Values


@dataclass(frozen=True)
class Window:
    """The chunks low .. high - 1 of a kernel, and where their cells are kept."""

    low: int
    high: int
    num_vertices: int
    skew: Ints

    def cells(self, vertex: Ints, chunk: Ints) -> Ints:
        """Return the place of each (vertex, chunk)."""
        row = (chunk - self.low - self.skew[vertex]) % (self.high - self.low)
        return row * self.num_vertices + vertex

    @property
    def size(self) -> int:
        return (self.high - self.low) * self.num_vertices


def window(kernel: Kernel, low: int = 0, high: int | None = None) -> Window:
    """Return a window of chunks, skewed by what each vertex sends first when it is the whole kernel."""
    high = kernel.num_chunks if high is None else high
    skew = np.zeros(kernel.num_vertices, dtype=np.int64)
    if (low, high) == (0, kernel.num_chunks) and kernel.rounds:
        first = kernel.rounds[0]
        skew[first.src] = first.chunk
    return Window(low, high, kernel.num_vertices, skew)


@dataclass(frozen=True)
class Weights:
    """The numbers a proof starts from: what each rank gives, and what cells nobody gave hold."""

    given: Values
    unknown: Values

    @classmethod
    def draw(cls, numbers: Numbers, num_ranks: int) -> Weights:
        return cls(numbers.contributions(num_ranks), numbers.unknowns(num_ranks))


def starts(goal: Collective, num_chunks: int, weights: Weights, vertex: Ints, chunk: Ints) -> Values:
    """Return what each (vertex, chunk) holds before the first round: helpers zero, others given or unknown."""
    giver = goal.givers(num_chunks, chunk)
    rank = np.minimum(vertex, goal.num_ranks - 1)
    gives = ((giver == ALL) | (giver == vertex)).reshape(-1, *(1,) * (weights.given.ndim - 1))
    out = np.where(gives, weights.given[rank], weights.unknown[rank])
    out[vertex >= goal.num_ranks] = 0
    return out


def expected(goal: Collective, num_chunks: int, numbers: Numbers, weights: Weights, chunk: Ints) -> Values:
    """Return what each chunk must become where it is taken."""
    giver = goal.givers(num_chunks, chunk)
    out = weights.given[np.maximum(giver, 0)].copy()
    out[giver == ALL] = numbers.total(weights.given, axis=0)
    return out


def replay(kernel: Kernel, numbers: Numbers, weights: Weights, view: Window) -> Values:
    """Return the state after the last round, one cell per (vertex, chunk) of the window."""
    state = _start(kernel, weights, view)
    for entry in kernel.rounds:
        if entry.repeat and entry.num_rows:
            _play(entry, state, numbers, view)
    return state


def _start(kernel: Kernel, weights: Weights, view: Window) -> Values:
    num_ranks = kernel.num_ranks
    shape = (view.high - view.low, view.num_vertices, *weights.given.shape[1:])
    state = np.zeros(shape, dtype=weights.given.dtype)
    chunk = np.arange(view.low, view.high)
    giver = kernel.goal.givers(kernel.num_chunks, chunk)
    if giver[0] == ALL:
        state[:, :num_ranks] = weights.given
    else:
        state[:, :num_ranks] = weights.unknown
        state.reshape(-1, *shape[2:])[view.cells(giver, chunk)] = weights.given[giver]
    return state.reshape(-1, *shape[2:])


def _play(entry: Round, state: Values, numbers: Numbers, view: Window) -> None:
    aligned = _aligned(entry, view)
    if aligned is not None:
        _play_aligned(entry, state, numbers, view, *aligned)
        return
    for moves in rounds_within(entry, view.low, view.high):
        apply(moves.op, view.cells(moves.src, moves.chunk), view.cells(moves.dst, moves.chunk), state, numbers)


def rounds_within(entry: Round, low: int, high: int) -> Iterator[Moves]:
    """Yield each round of an entry as single moves of chunks low .. high - 1."""
    for repetitions in entry.rounds():
        yield Moves.join([entry.runs(j).within(low, high).singles() for j in repetitions])


def apply(op: Ops, read: Ints, write: Ints, state: Values, numbers: Numbers) -> None:
    """Do one round: everything is read first, then copies land, then reductions are added."""
    values = state[read]
    reduces = op == MoveOp.REDUCE
    if not reduces.any():
        state[write] = values
        return
    if not reduces.all():
        copies = ~reduces
        state[write[copies]] = values[copies]
        write, values = write[reduces], values[reduces]
    if _all_different(write):
        state[write] = numbers.add(state[write], values)
    else:
        numbers.add_at(state, write, values)


def _all_different(cells: Ints) -> bool:
    ordered = np.sort(cells)
    return not bool((ordered[1:] == ordered[:-1]).any())


def _aligned(entry: Round, view: Window) -> tuple[int, int] | None:
    """Return the rows of the skewed state that are read and written when a whole repetition shares one of each."""
    whole = view.low == 0 and entry.window == view.high
    if not (whole and entry.wrap and entry.fixed and not entry.at_once and len(np.unique(entry.count)) == 1):
        return None
    if entry.count[0] != 1 or len(np.unique(entry.op)) != 1 or not _all_different(entry.dst):
        return None
    read = np.unique((entry.chunk - view.skew[entry.src]) % entry.window)
    write = np.unique((entry.chunk - view.skew[entry.dst]) % entry.window)
    return (int(read[0]), int(write[0])) if len(read) == len(write) == 1 else None


def _play_aligned(entry: Round, state: Values, numbers: Numbers, view: Window, read: int, write: int) -> None:
    rows = state.reshape(view.high, view.num_vertices, *state.shape[1:])
    src, dst, reduces = entry.src, entry.dst, bool(entry.op[0] == MoveOp.REDUCE)
    for j in range(entry.repeat):
        at = j * entry.chunk_step
        values = rows[(read + at) % view.high].take(src, axis=0)
        row = rows[(write + at) % view.high]
        row[dst] = numbers.add(row.take(dst, axis=0), values) if reduces else values
