"""Replay only the cells that some move touches.

An all-to-all over n ranks has n^2 chunks, of which each rank ever sees a sliver: a dense state would need n^3 cells.
Here a slice of chunks is expanded over all rounds, its cells are numbered, and the same arithmetic runs on those.
"""

from __future__ import annotations

import numpy as np

from syncline.schedule.collective import Ints
from syncline.schedule.kernel import Kernel
from syncline.schedule.proof.field import Numbers, Values
from syncline.schedule.proof.replay import Weights, apply, rounds_within, starts


def replay_cells(
    kernel: Kernel, numbers: Numbers, weights: Weights, low: int, high: int, vertex: Ints, chunk: Ints
) -> Values:
    """Return what the given (vertex, chunk) cells hold after the last round; all chunks lie in low .. high - 1."""
    parts = [moves for entry in kernel.rounds for moves in rounds_within(entry, low, high) if len(moves)]
    width = kernel.num_vertices
    reads = [moves.chunk * width + moves.src for moves in parts]
    writes = [moves.chunk * width + moves.dst for moves in parts]
    keys, at = np.unique(np.concatenate([*reads, *writes, chunk * width + vertex]), return_inverse=True)
    state = starts(kernel.goal, kernel.num_chunks, weights, keys % width, keys // width)
    cuts = np.cumsum([len(cells) for cells in (*reads, *writes)])
    split = np.split(at, cuts)
    for k, moves in enumerate(parts):
        apply(moves.op, split[k], split[k + len(parts)], state, numbers)
    return state[split[-1]]
