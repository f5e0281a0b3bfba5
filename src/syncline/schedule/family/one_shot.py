"""One-shot all-reduce: everyone sends its whole buffer to everyone, and adds up what comes.

Cost law (n ranks): 1 round; every rank sends n-1 times the buffer. Nothing has fewer rounds; for messages so small that
only the wait for the network counts.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Kind
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.law import CostLaw
from syncline.schedule.moves import MoveOp, moves_round
from syncline.schedule.schedule import Schedule, alike

KINDS = (Kind.ALL_REDUCE,)


def one_shot_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return the one round in which all exchange all."""
    if kind not in KINDS:
        raise ScheduleError(f"one-shot does not do {kind}.", hint="It does all_reduce; for others use direct.")
    goal = Collective(kind, num_ranks)
    rank = np.arange(num_ranks)
    exchange = moves_round(
        rank, (rank + 1) % num_ranks, 0, MoveOp.REDUCE, repeat=num_ranks - 1, at_once=True, dst_step=1
    )
    return Kernel("one-shot", goal, 1, (exchange,) if num_ranks > 1 else ())


def one_shot(num_ranks: int, kind: Kind = Kind.ALL_REDUCE, *, channels: int = 1) -> Schedule:
    """Return the all-reduce of one round: everyone sends its whole buffer to the n-1 others."""
    work = one_shot_kernel(kind, num_ranks)
    return Schedule("one-shot", work.goal, alike((whole(work),), 1, channels), family="one-shot")


def one_shot_law(num_ranks: int, kind: Kind = Kind.ALL_REDUCE, **_: object) -> CostLaw:
    """Return what `one_shot` promises."""
    n = num_ranks
    return CostLaw(min(1, n - 1), Fraction(n - 1), Fraction(n * (n - 1)))
