"""The slow plain-Python twin of `verify`: sets and counters, one move at a time.

It shares no code with the proof but the expansion of rounds into moves, and is what tests compare the proof with.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from syncline.schedule.collective import ALL
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Moves

Cell = tuple[int, int]
UNKNOWN = -1


def performs(kernel: Kernel) -> bool:
    """Whether the kernel does its goal, safely, from any starting data."""
    givers, takers = kernel.goal.givers(kernel.num_chunks).tolist(), kernel.goal.takers(kernel.num_chunks).tolist()
    state: dict[Cell, Counter[int]] = {}
    for vertex in range(kernel.num_vertices):
        for chunk, giver in enumerate(givers):
            given = vertex < kernel.num_ranks and giver in (ALL, vertex)
            unknown = vertex < kernel.num_ranks and not given
            state[vertex, chunk] = Counter({vertex: 1} if given else {UNKNOWN: 1} if unknown else {})
    for moves in kernel.steps():
        if not _safe(moves):
            return False
        _do(moves, state)
    for chunk, (giver, taker) in enumerate(zip(givers, takers, strict=True)):
        want = Counter(range(kernel.num_ranks) if giver == ALL else [giver])
        for rank in range(kernel.num_ranks) if taker == ALL else [taker]:
            if state[rank, chunk] != want:
                return False
    return True


def _rows(moves: Moves) -> list[tuple[int, int, int, int]]:
    columns = (moves.src.tolist(), moves.dst.tolist(), moves.chunk.tolist(), moves.op.tolist())
    return list(zip(*columns, strict=True))


def _safe(moves: Moves) -> bool:
    reads: set[Cell] = set()
    writes: dict[Cell, list[int]] = defaultdict(list)
    for src, dst, chunk, op in _rows(moves):
        reads.add((src, chunk))
        writes[dst, chunk].append(op)
    return all(MoveOp.COPY not in ops or (len(ops) == 1 and cell not in reads) for cell, ops in writes.items())


def _do(moves: Moves, state: dict[Cell, Counter[int]]) -> None:
    arriving = [(dst, chunk, op, state[src, chunk].copy()) for src, dst, chunk, op in _rows(moves)]
    for dst, chunk, op, value in arriving:
        if op == MoveOp.COPY:
            state[dst, chunk] = value
    for dst, chunk, op, value in arriving:
        if op == MoveOp.REDUCE:
            state[dst, chunk] = state[dst, chunk] + value
