"""Seeded faults: one move of a kernel dropped, doubled, sent to the wrong place, or done at the wrong time.

A fault is planted in the expanded rounds. Not every change is harmful: a move may be needless, or a round later may be
early enough. What counts as a fault is decided by `reference.performs`, which knows nothing of the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Moves, moves_round

Rounds = list[list[list[int]]]
"""Per round, per move: [src, dst, chunk, op]."""

Draw = np.random.Generator


def _drop(rounds: Rounds, at: int, row: int, kernel: Kernel, draw: Draw) -> None:
    del rounds[at][row]


def _double(rounds: Rounds, at: int, row: int, kernel: Kernel, draw: Draw) -> None:
    """The move happens again, in the same round or right after it."""
    if draw.random() < 0.5:
        rounds[at].append(list(rounds[at][row]))
    else:
        rounds.insert(at + 1, [list(rounds[at][row])])


def _misdirect(rounds: Rounds, at: int, row: int, kernel: Kernel, draw: Draw) -> None:
    move = rounds[at][row]
    others = [v for v in range(kernel.num_vertices) if v not in (move[0], move[1])]
    if others:
        move[1] = int(draw.choice(others))
    else:
        move[0], move[1] = move[1], move[0]


def _reorder(rounds: Rounds, at: int, row: int, kernel: Kernel, draw: Draw) -> None:
    """The move happens in another round."""
    move = rounds[at].pop(row)
    others = [k for k in range(len(rounds)) if k != at]
    rounds[int(draw.choice(others)) if others else at].append(move)


def _swap(rounds: Rounds, at: int, row: int, kernel: Kernel, draw: Draw) -> None:
    """Two whole rounds change places."""
    other = int(draw.integers(len(rounds)))
    rounds[at], rounds[other] = rounds[other], rounds[at]


def _wrong_chunk(rounds: Rounds, at: int, row: int, kernel: Kernel, draw: Draw) -> None:
    if kernel.num_chunks > 1:
        step = 1 + int(draw.integers(kernel.num_chunks - 1))
        rounds[at][row][2] = (rounds[at][row][2] + step) % kernel.num_chunks


def _wrong_op(rounds: Rounds, at: int, row: int, kernel: Kernel, draw: Draw) -> None:
    rounds[at][row][3] = int(MoveOp.COPY if rounds[at][row][3] == MoveOp.REDUCE else MoveOp.REDUCE)


def _wrong_source(rounds: Rounds, at: int, row: int, kernel: Kernel, draw: Draw) -> None:
    move = rounds[at][row]
    others = [v for v in range(kernel.num_vertices) if v not in (move[0], move[1])]
    if others:
        move[0] = int(draw.choice(others))


FAULTS: dict[str, Callable[[Rounds, int, int, Kernel, Draw], None]] = {
    "dropped": _drop,
    "doubled": _double,
    "misdirected": _misdirect,
    "wrong source": _wrong_source,
    "reordered": _reorder,
    "rounds swapped": _swap,
    "wrong chunk": _wrong_chunk,
    "wrong op": _wrong_op,
}


def plant(kernel: Kernel, fault: str, seed: int) -> Kernel:
    """Return the kernel with one fault of this kind, at a place that the seed picks."""
    if fault not in FAULTS:
        raise ScheduleError(f'no fault is called "{fault}".', hint=f"One of: {', '.join(FAULTS)}.")
    draw = np.random.default_rng(seed)
    rounds = [_listed(moves) for moves in kernel.steps()]
    busy = [k for k, moves in enumerate(rounds) if moves]
    if not busy:
        return kernel
    at = int(draw.choice(busy))
    FAULTS[fault](rounds, at, int(draw.integers(len(rounds[at]))), kernel, draw)
    entries = tuple(moves_round(*np.asarray(moves, dtype=np.int64).T) for moves in rounds if moves)
    return replace(kernel, name=f"{kernel.name}, {fault}", rounds=entries)


def _listed(moves: Moves) -> list[list[int]]:
    rows: list[list[int]] = np.stack([moves.src, moves.dst, moves.chunk, moves.op.astype(np.int64)], axis=1).tolist()
    return rows
