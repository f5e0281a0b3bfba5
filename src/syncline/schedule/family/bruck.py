"""Bruck's algorithm: ceil(log2 n) rounds for any number of ranks.

Cost laws (n ranks):
- all-gather: ceil(log2 n) rounds, (n-1)/n of the buffer: the fewest rounds and the fewest bytes at once;
- reduce-scatter (the all-gather backwards, adding up) the same, all-reduce both: 2 ceil(log2 n) and 2(n-1)/n;
- all-to-all: ceil(log2 n) rounds; a block travels once for every set bit of its distance, so each rank sends about
  (log2 n)/2 of its buffer instead of (n-1)/n. For many small messages.
"""

from __future__ import annotations

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Kind
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Round, moves_round

KINDS = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE, Kind.ALL_TO_ALL)
MAX_PAIRED_RANKS = 2048
"""An all-to-all lists n^2/2 blocks a round: 2 million at this size."""


def bruck_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return Bruck's algorithm."""
    goal, levels = Collective(kind, num_ranks), (num_ranks - 1).bit_length()
    if kind is not Kind.ALL_TO_ALL:
        up = tuple(_gather(num_ranks, 1 << k) for k in range(levels))
        down = tuple(_backwards(entry) for entry in reversed(up))
        rounds = {Kind.ALL_GATHER: up, Kind.REDUCE_SCATTER: down}.get(kind, down + up)
        return Kernel(f"Bruck {kind}", goal, num_ranks, rounds)
    if num_ranks > MAX_PAIRED_RANKS:
        raise ScheduleError(f"Bruck's all-to-all over {num_ranks:,} ranks lists too many blocks (at most "
                            f"{MAX_PAIRED_RANKS:,} ranks).", hint="Use pairwise.")  # fmt: skip
    rounds = tuple(_shift(num_ranks, 1 << k) for k in range(levels))
    return Kernel("Bruck all-to-all", goal, num_ranks**2, rounds)


def _gather(num_ranks: int, have: int) -> Round:
    """Everyone holds `have` blocks from its own on and sends them that far back."""
    rank = np.arange(num_ranks)
    return moves_round(rank, (rank - have) % num_ranks, rank, MoveOp.COPY, count=min(have, num_ranks - have))


def _backwards(entry: Round) -> Round:
    """Send what was got back to where it came from and add it up there."""
    return moves_round(entry.dst, entry.src, entry.chunk, MoveOp.REDUCE, count=entry.count)


def _shift(num_ranks: int, bit: int) -> Round:
    """Every block whose distance has this bit set goes on by it; lower bits it has already gone."""
    far = np.arange(num_ranks)
    far = far[far & bit > 0]
    giver, distance = (axis.ravel() for axis in np.meshgrid(np.arange(num_ranks), far, indexing="ij"))
    src = (giver + distance % bit) % num_ranks
    taker = (giver + distance) % num_ranks
    return moves_round(src, (src + bit) % num_ranks, taker, MoveOp.COPY, block=giver * num_ranks, window=num_ranks)
