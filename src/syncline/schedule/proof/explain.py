"""Say what is wrong with one cell: which contributors are missing or doubled, and in which rounds it was written."""

from __future__ import annotations

import numpy as np

from syncline.schedule.collective import ALL, Ints
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp
from syncline.schedule.proof.field import Counts
from syncline.schedule.proof.replay import Weights, replay, rounds_within, window

COUNTED_CELLS = 1 << 26
SHOWN = 6


def explain(kernel: Kernel, rank: int, chunk: int) -> str:
    """Return expected and found contributions of one (rank, chunk), and the rounds that wrote it."""
    return f"{_found(kernel, rank, chunk)} {_written(kernel, rank, chunk)}"


def _found(kernel: Kernel, rank: int, chunk: int) -> str:
    giver = int(kernel.goal.givers(kernel.num_chunks, np.asarray([chunk]))[0])
    every = f"one contribution of every rank 0 to {kernel.num_ranks - 1}"
    want = every if giver == ALL else f"the data of rank {giver}"
    if kernel.num_vertices * (kernel.num_ranks + 1) > COUNTED_CELLS:
        return f"Expected {want}."
    numbers, view = Counts(kernel.num_ranks), window(kernel, chunk, chunk + 1)
    counts = replay(kernel, numbers, Weights.draw(numbers, kernel.num_ranks), view)[rank]
    right = np.ones(kernel.num_ranks) if giver == ALL else np.eye(kernel.num_ranks)[giver]
    missing = np.flatnonzero((counts[:-1] < right) & (right > 0))
    extra = np.flatnonzero(counts[:-1] > right)
    parts = [f"rank {_some(missing)} missing"] if len(missing) else []
    parts += [f"rank {_some(extra)} {_often(int(counts[extra[0]]), int(right[extra[0]]))}"] if len(extra) else []
    parts += ["what its buffer held before"] if counts[-1] else []
    return f"Expected {want}; found {', '.join(parts)}."


def _often(times_given: int, right: int) -> str:
    times = "twice" if times_given == 2 else f"{times_given} times" if times_given > 1 else "once"
    return times if right else f"{times}, which should not be there"


def _some(ranks: Ints) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:SHOWN])
    return shown + (f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else "")


def _written(kernel: Kernel, rank: int, chunk: int) -> str:
    rounds, first = [], 0
    for entry in kernel.rounds:
        for k, moves in enumerate(rounds_within(entry, chunk, chunk + 1)):
            hits = np.flatnonzero(moves.dst == rank)
            rounds += [f"{first + k} ({MoveOp(int(moves.op[i])).name.lower()} from {moves.src[i]})" for i in hits]
        first += entry.num_rounds
    if not rounds:
        return "No round writes it."
    shown = ", ".join(rounds[-SHOWN:])
    return f"Written in round{'s' if len(rounds) > 1 else ''} {'..., ' if len(rounds) > SHOWN else ''}{shown}."
