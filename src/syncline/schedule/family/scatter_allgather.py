"""Broadcast as scatter and all-gather, reduce as reduce-scatter and gather: two rounds at the full rate of all ranks.

The root gives each of the n-1 others a part of its own, and each hands its part to the rest (van de Geijn's broadcast,
with direct exchanges). Reduce is the same backwards.

Cost law (n ranks): 2 rounds (1 for two ranks). Broadcast: the root sends the buffer once, any other (n-2)/(n-1) of it.
Reduce: every rank but the root sends its buffer once. No rank can send less, so only the rounds' latency is to pay.
"""

from __future__ import annotations

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Kind
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Round, moves_round

KINDS = (Kind.BROADCAST, Kind.REDUCE)
MAX_RANKS = 4096


def scatter_allgather_kernel(kind: Kind, num_ranks: int, *, root: int = 0, chunks: int = 0) -> Kernel:
    """Return the two rounds; chunk a is the part of the a-th rank after the root."""
    goal = Collective(kind, num_ranks, root=root)
    if num_ranks > MAX_RANKS:
        raise ScheduleError(f"scatter-allgather over {num_ranks:,} ranks has more pairs than fit.",
                            hint=f"It takes up to {MAX_RANKS:,}. Use all-rails, by levels.")  # fmt: skip
    parts = max(1, num_ranks - 1)
    share_out, exchange = _share_out(goal), _exchange(goal)
    rounds = (*share_out, *exchange) if kind is Kind.BROADCAST else (*exchange, *share_out)
    return Kernel(f"scatter-allgather {kind}", goal, parts, rounds)


def _share_out(goal: Collective) -> tuple[Round, ...]:
    """The root gives every other rank its part, or gets from it its part of the sum."""
    n, root = goal.num_ranks, goal.root
    other = (root + 1 + np.arange(n - 1)) % n
    if goal.kind is Kind.BROADCAST:
        return (moves_round(root, other, np.arange(n - 1), MoveOp.COPY),) if n > 1 else ()
    return (moves_round(other, root, np.arange(n - 1), MoveOp.REDUCE),) if n > 1 else ()


def _exchange(goal: Collective) -> tuple[Round, ...]:
    """Every rank but the root gives its part to all others, or adds up what all others have of it."""
    parts = goal.num_ranks - 1
    if parts < 2:
        return ()
    owner = np.repeat(np.arange(parts), parts - 1)
    peer = (owner + np.tile(np.arange(1, parts), parts)) % parts
    near, far = ((goal.root + 1 + part) % goal.num_ranks for part in (owner, peer))
    if goal.kind is Kind.BROADCAST:
        return (moves_round(near, far, owner, MoveOp.COPY),)
    return (moves_round(far, near, owner, MoveOp.REDUCE),)
