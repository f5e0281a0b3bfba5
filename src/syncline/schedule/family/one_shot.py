"""One-shot all-reduce: everyone sends its whole buffer to everyone, and adds up what comes.

Cost law (n ranks): 1 round; every rank sends n-1 times the buffer. Nothing has fewer rounds; for messages so small that
only the wait for the network counts.
"""

from __future__ import annotations

import numpy as np

from syncline.schedule.collective import Collective, Kind
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, moves_round

KINDS = (Kind.ALL_REDUCE,)


def one_shot_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return the one round in which all exchange all."""
    goal = Collective(kind, num_ranks)
    rank = np.arange(num_ranks)
    exchange = moves_round(
        rank, (rank + 1) % num_ranks, 0, MoveOp.REDUCE, repeat=num_ranks - 1, at_once=True, dst_step=1
    )
    return Kernel("one-shot", goal, 1, (exchange,) if num_ranks > 1 else ())
