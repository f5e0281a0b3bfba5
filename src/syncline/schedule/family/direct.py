"""Everyone to everyone without a go-between: all at once (`direct`), or one partner a round (`pairwise`).

Cost laws (n ranks), rounds first for direct and then for pairwise:
- all-reduce: 2 or 2(n-1) rounds, 2(n-1)/n of the buffer; reduce-scatter, all-gather: 1 or n-1 rounds, (n-1)/n;
- all-to-all: 1 or n-1 rounds, (n-1)/n of the send buffer: nobody can send less; uneven sizes send what they say;
- broadcast, reduce: 1 or n-1 rounds, the root (or everyone) sends the buffer; scatter, gather: (n-1)/n by the root
  (or 1/n by everyone); send/recv: 1 round.
Fewest rounds; wants a network in which every pair has a path of its own.
"""

from __future__ import annotations

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import PAIRED, ROOTED, Collective, Kind
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.moves import MoveOp, Round, moves_round
from syncline.schedule.schedule import Schedule, alike

_COPIES = (Kind.BROADCAST, Kind.SCATTER, Kind.GATHER)


def direct_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return the kernel in which all pairs exchange in one round."""
    return direct_goal(Collective(kind, num_ranks, root=root if kind in ROOTED else 0), at_once=True)


def pairwise_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return the kernel in which everyone has one partner a round."""
    return direct_goal(Collective(kind, num_ranks, root=root if kind in ROOTED else 0), at_once=False)


def direct_goal(goal: Collective, *, at_once: bool) -> Kernel:
    """Return the direct kernel for any collective."""
    n, name = goal.num_ranks, f"{'direct' if at_once else 'pairwise'} {goal.kind}"
    rounds: tuple[Round, ...]
    if n == 1:
        rounds = ()
    elif goal.to_next:
        rounds = (moves_round(np.arange(n), (np.arange(n) + 1) % n, np.arange(n), MoveOp.COPY),)
    elif goal.kind is Kind.SEND_RECV:
        rounds = (moves_round(goal.root, goal.peer, 0, MoveOp.COPY),)
    elif goal.kind in ROOTED:
        rounds = (_rooted(goal, at_once),)
    elif goal.kind is Kind.ALL_REDUCE:
        rounds = (_exchange(n, Kind.REDUCE_SCATTER, at_once), _exchange(n, Kind.ALL_GATHER, at_once))
    else:
        rounds = (_exchange(n, goal.kind, at_once),)
    return Kernel(name, goal, n if goal.kind is Kind.ALL_REDUCE else goal.num_blocks, rounds)


def _exchange(n: int, kind: Kind, at_once: bool) -> Round:
    """Everyone sends to the rank 1, 2, ... further on: its block of the sum, its own block, or the block for it."""
    rank, peer = np.arange(n), (np.arange(n) + 1) % n
    gather = kind is Kind.ALL_GATHER
    return moves_round(
        rank,
        peer,
        rank if gather else peer,
        MoveOp.REDUCE if kind is Kind.REDUCE_SCATTER else MoveOp.COPY,
        repeat=n - 1,
        at_once=at_once,
        dst_step=1,
        chunk_step=0 if gather else 1,
        block=rank * n if kind in PAIRED else 0,
        window=n,
    )


def _rooted(goal: Collective, at_once: bool) -> Round:
    n, first = goal.num_ranks, (goal.root + 1) % goal.num_ranks
    out = goal.kind in (Kind.BROADCAST, Kind.SCATTER)
    src, dst = (goal.root, first) if out else (first, goal.root)
    blocks = goal.num_blocks > 1
    return moves_round(
        src,
        dst,
        first if blocks else 0,
        MoveOp.COPY if goal.kind in _COPIES else MoveOp.REDUCE,
        repeat=n - 1,
        at_once=at_once,
        src_step=0 if out else 1,
        dst_step=1 if out else 0,
        chunk_step=1 if blocks else 0,
    )


def direct(num_ranks: int, kind: Kind = Kind.ALL_TO_ALL, *, at_once: bool = True, channels: int = 1, root: int = 0,
           peer: int = -1, sizes: tuple[int, ...] = ()) -> Schedule:  # fmt: skip
    """Return the direct schedule: one round (two for all-reduce), or n-1 (twice) with `at_once` off.

    Nobody sends data that is not for its receiver: all-to-all sends (n-1)/n of the send buffer.
    """
    goal = Collective(kind, num_ranks, root=root if kind in ROOTED else 0, peer=peer, sizes=sizes)
    if kind is Kind.SEND_RECV and num_ranks < 2:
        raise ScheduleError("send_recv needs two ranks.")
    work = direct_goal(goal, at_once=at_once)
    name = "direct" if at_once else "pairwise"
    return Schedule(name, goal, alike((whole(work),), work.num_chunks, channels), family=name)
