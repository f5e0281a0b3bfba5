"""Buffer safety: no round overwrites what the same round still needs.

In one round a (vertex, chunk) that is written by a copy must not be read or written by any other move: the copy lands
in place at a time nobody knows. Reductions may meet reads and each other, because they are added after the batch.
"""

from __future__ import annotations

import numpy as np

from syncline.errors import NotProvedError
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Moves, Round
from syncline.schedule.proof.replay import rounds_within

SLICE = 1 << 21
"""Moves looked at together: bounds the memory."""


def check_safety(kernel: Kernel, look_at: int) -> None:
    """Return when every round is safe for chunks 0 .. look_at - 1, or raise `NotProvedError` with vertex and round."""
    first = 0
    for entry in kernel.rounds:
        rounds = 1 if _same_every_time(entry) else entry.num_rounds
        if entry.repeat and not (entry.op == MoveOp.REDUCE).all():
            _check_entry(kernel, entry, first, rounds, look_at)
        first += entry.num_rounds


def _same_every_time(entry: Round) -> bool:
    """Whether moves that meet in one repetition meet in all: every row goes round the same circle in step."""
    return entry.wrap and entry.fixed and not (entry.block % entry.window).any()


def _check_entry(kernel: Kernel, entry: Round, first: int, rounds: int, look_at: int) -> None:
    per_round = max(1, int(entry.count.sum()) * (entry.repeat if entry.at_once else 1))
    width = max(1, kernel.num_chunks * SLICE // per_round)
    for low in range(0, look_at, width):
        for k, moves in zip(range(rounds), rounds_within(entry, low, min(low + width, look_at)), strict=False):
            _check_round(kernel, moves, first + k)


def _check_round(kernel: Kernel, moves: Moves, number: int) -> None:
    width = kernel.num_vertices
    write, read = moves.chunk * width + moves.dst, moves.chunk * width + moves.src
    copies = write[moves.op == MoveOp.COPY]
    ordered, times = np.unique(write, return_counts=True)
    twice = copies[np.isin(copies, ordered[times > 1])]
    clash = twice if len(twice) else copies[np.isin(copies, read)]
    if len(clash):
        chunk, vertex = divmod(int(clash[0]), width)
        other = "written by another move" if len(twice) else "sent on"
        raise NotProvedError(
            f"rank {vertex} gets a copy of chunk {chunk} in round {number}, in which that chunk is also {other}.",
            where=kernel.name,
            hint="Put the two moves in different rounds.",
        )
