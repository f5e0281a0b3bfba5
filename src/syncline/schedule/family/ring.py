"""Rings: every rank sends to the next one only.

Cost laws (n ranks, shares of the buffer):
- all-reduce: 2(n-1) rounds, every rank sends 2(n-1)/n: the least any all-reduce can send; latency grows with n;
- reduce-scatter, all-gather: n-1 rounds, (n-1)/n;
- broadcast, reduce (a pipeline of c chunks): c+n-2 rounds, every rank but the last sends the buffer once.
Two directions give each half of the buffer its own way round, so full-duplex links are busy both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import OWNED, Collective, Ints, Kind
from syncline.schedule.kernel import Kernel, Stage
from syncline.schedule.moves import MoveOp, Round, moves_round
from syncline.schedule.schedule import MAX_CHANNELS, Schedule, Strand

KINDS = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.BROADCAST, Kind.REDUCE)
DEFAULT_CHUNKS = 8


def ring_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0, direction: int = 1) -> Kernel:
    """Return one ring. `chunks` is the depth of the pipeline of a broadcast or reduce."""
    if kind not in KINDS:
        raise ScheduleError(f"a ring does not do {kind}.", hint=f"It does {', '.join(KINDS)}.")
    rooted = kind in (Kind.BROADCAST, Kind.REDUCE)
    goal = Collective(kind, num_ranks, root=root if rooted else 0)
    num_chunks = (chunks or DEFAULT_CHUNKS) if rooted else num_ranks
    if num_ranks == 1:
        return Kernel(f"ring {kind}", goal, num_chunks, ())
    rounds = _chain(goal, num_chunks, direction) if rooted else _circle(kind, num_ranks, direction)
    return Kernel(f"ring {kind}", goal, num_chunks, rounds)


def _circle(kind: Kind, num_ranks: int, direction: int) -> tuple[Round, ...]:
    rank = np.arange(num_ranks)
    following = (rank + direction) % num_ranks
    before = (rank - direction) % num_ranks
    scatter = moves_round(rank, following, before, MoveOp.REDUCE, repeat=num_ranks - 1, chunk_step=-direction)
    gather = moves_round(rank, following, rank, MoveOp.COPY, repeat=num_ranks - 1, chunk_step=-direction)
    return {Kind.REDUCE_SCATTER: (scatter,), Kind.ALL_GATHER: (gather,)}.get(kind, (scatter, gather))


def _chain(goal: Collective, num_chunks: int, direction: int) -> tuple[Round, ...]:
    hop = np.arange(goal.num_ranks - 1)
    near: Ints = (goal.root + direction * hop) % goal.num_ranks
    far: Ints = (goal.root + direction * (hop + 1)) % goal.num_ranks
    src, dst, op = (near, far, MoveOp.COPY) if goal.kind is Kind.BROADCAST else (far[::-1], near[::-1], MoveOp.REDUCE)
    repeat = num_chunks + goal.num_ranks - 2
    return (moves_round(src, dst, -hop, op, repeat=repeat, chunk_step=1, wrap=False),)


def ring(
    num_ranks: int,
    kind: Kind = Kind.ALL_REDUCE,
    *,
    root: int = 0,
    channels: int = 1,
    directions: int = 1,
    chunks: int = 0,
    order: Sequence[int] | None = None,
) -> Schedule:
    """Return a ring over all ranks.

    All-reduce: 2(n-1) rounds, each rank sends 2(n-1)/n of the buffer. `channels` cuts the buffer in as many equal
    strands on the same ring; `directions=2` sends every second one the other way. `order` is the order in which the
    ring visits the ranks (all-reduce, broadcast and reduce).
    """
    if not 1 <= channels <= MAX_CHANNELS or directions not in (1, 2):
        raise ScheduleError(f"a ring has 1 to {MAX_CHANNELS} channels and one or two directions, "
                            f"not {channels} and {directions}.")  # fmt: skip
    kernels = [ring_kernel(kind, num_ranks, root=0 if order else root, chunks=chunks, direction=d) for d in (1, -1)]
    members = _members(num_ranks, kind, root, order)
    stages = [Stage(kernel, members, np.zeros(1, np.int64), ((kernel.num_chunks, 1),)) for kernel in kernels]
    share = Fraction(1, channels * directions)
    strands = tuple(
        Strand((stages[k % directions],), kernels[0].num_chunks, share, channel=k) for k in range(channels * directions)
    )
    goal = Collective(kind, num_ranks, root=root if kind in (Kind.BROADCAST, Kind.REDUCE) else 0)
    return Schedule("ring" if directions == 1 else "ring, two directions", goal, strands, family="ring")


def _members(num_ranks: int, kind: Kind, root: int, order: Sequence[int] | None) -> Ints:
    if order is None:
        return np.arange(num_ranks)[None, :]
    if sorted(order) != list(range(num_ranks)):
        raise ScheduleError(f"the order of a ring must name each of the ranks 0 to {num_ranks - 1} once.")
    if kind in OWNED:
        raise ScheduleError(f"a ring {kind} takes the ranks in their own order.", hint="Leave the order out.")
    start = list(order).index(root) if kind in (Kind.BROADCAST, Kind.REDUCE) else 0
    return np.roll(np.asarray(order, dtype=np.int64), -start)[None, :]
