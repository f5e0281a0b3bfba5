"""Parameter servers: every worker pushes its data to a server, which adds it up, and pulls the sum back.

Cost law (n workers): 2 rounds; each worker sends its buffer once and gets it once, so 2n times the buffer is moved,
and with one server all of it through that server's link. s servers each hold 1/s of the buffer. Servers may be
machines of their own or live with the first workers (`colocated`), which then keep their own part at home.
"""

from __future__ import annotations

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Kind
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.moves import MoveOp, Round, moves_round
from syncline.schedule.schedule import Schedule, alike


def parameter_server(num_ranks: int, *, servers: int = 1, colocated: bool = False, channels: int = 1) -> Schedule:
    """Return push and pull through `servers` servers: 2 rounds, 2n times the buffer moved in all."""
    goal = Collective(Kind.ALL_REDUCE, num_ranks)
    if servers < 1 or (colocated and servers > num_ranks):
        raise ScheduleError(f"{servers} servers for {num_ranks} workers: at least one, and no more than workers when "
                            "they live with them.")  # fmt: skip
    work = Kernel("push and pull", goal, servers, (_push(num_ranks, servers), _pull(num_ranks, servers)), servers)
    name = "parameter server" if servers == 1 else f"parameter server, {servers} shards"
    homes = tuple(range(servers)) if colocated else ()
    strands = alike((whole(work),), servers, channels)
    return Schedule(name, goal, strands, servers, homes, family="parameter-server")


def _push(n: int, servers: int) -> Round:
    worker = np.arange(n)
    shard = worker % servers
    return moves_round(
        worker,
        n + shard,
        shard,
        MoveOp.REDUCE,
        repeat=servers,
        at_once=True,
        dst_step=1,
        chunk_step=1,
        src_circle=(0, n),
        dst_circle=(n, servers),
    )


def _pull(n: int, servers: int) -> Round:
    worker = np.arange(n)
    shard = worker % servers
    return moves_round(
        n + shard,
        worker,
        shard,
        MoveOp.COPY,
        repeat=servers,
        at_once=True,
        src_step=1,
        chunk_step=1,
        src_circle=(n, servers),
        dst_circle=(0, n),
    )
