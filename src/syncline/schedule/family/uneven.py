"""Sites of different size: reduced inside each, exchanged once between all of them, spread again.

Cost law for an all-reduce of V over D sites of h_i hosts with m ranks each: a rank sends 2(m-1)/m of V inside its host
and 2(h_i-1)/h_i of V/m inside its site; each site sends 2V/D to each other one, whatever its size, in two rounds (two
sites hand each other V in one). Hosts that ignored sites would send 2 h_i h_j V / sum(h) from site i to site j.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Kind
from syncline.schedule.family.direct import direct_kernel
from syncline.schedule.kernel import Kernel, Stage
from syncline.schedule.moves import MoveOp, moves_round
from syncline.schedule.schedule import Schedule, alike

MAX_CHUNKS = 1 << 16
"""Chunks of one schedule: sites whose sizes have no common measure would need more."""


def uneven(hosts: Sequence[int], per_host: int, *, channels: int = 1) -> Schedule:
    """Return an all-reduce of sites with so many hosts each, ranks numbered site by site and host by host."""
    if len(hosts) < 2 or min(hosts) < 1 or per_host < 1:
        raise ScheduleError(f"sites of {', '.join(map(str, hosts))} hosts with {per_host} ranks are no levels.")
    wide = lcm(*hosts) * _parts(len(hosts))
    num_chunks = per_host * wide
    if num_chunks > MAX_CHUNKS:
        raise ScheduleError(f"sites of {', '.join(map(str, hosts))} hosts need {num_chunks:,} chunks.")
    members = np.arange(per_host * sum(hosts), dtype=np.int64).reshape(-1, per_host)
    place = np.arange(per_host, dtype=np.int64)
    across = Stage(_over_sites(hosts), members.T, place * wide, ((wide, 1),))
    down, up = (
        [Stage(direct_kernel(kind, per_host), members, members[:, 0] * 0, ((per_host, wide),), ((wide, 1),))]
        if per_host > 1
        else []
        for kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)
    )
    name = f"hierarchical {len(hosts)} sites of {', '.join(map(str, hosts))} x {per_host} direct"
    goal = Collective(Kind.ALL_REDUCE, sum(hosts) * per_host)
    return Schedule(name, goal, alike((*down, across, *up), num_chunks, channels), family="hierarchical")


def _parts(sites: int) -> int:
    """Return the parts of a run: one for every site, or the whole where two hand each other all they have."""
    return 1 if sites == 2 else sites


def _over_sites(hosts: Sequence[int]) -> Kernel:
    """Return the all-reduce of one rank a host: all sites reduce at once, exchange, and spread at once.

    The buffer has a run for every cut, each with a part for every site. Of a site of h hosts each sums every h-th part
    of the runs; those who hold the same run in each site exchange it.
    """
    cuts, sites, parts = lcm(*hosts), len(hosts), _parts(len(hosts))
    first = np.cumsum([0, *hosts[:-1]])
    pairs = [
        (start + i, start + j, j * (cuts // size) * parts, cuts // size * parts)
        for start, size in zip(first.tolist(), hosts, strict=True)
        for i in range(size)
        for j in range(size)
        if i != j
    ]
    src, dst, chunk, count = np.array(pairs, dtype=np.int64).reshape(-1, 4).T
    run, a, b = (part.ravel() for part in np.meshgrid(np.arange(cuts), *2 * [np.arange(sites)], indexing="ij"))
    run, a, b = (part[a != b] for part in (run, a, b))
    size = np.array(hosts)
    near, far = (first[site] + run * size[site] // cuts for site in (a, b))
    exchange = [moves_round(near, far, run, MoveOp.REDUCE)]
    if parts > 1:
        exchange = [moves_round(near, far, run * parts + b, MoveOp.REDUCE),
                    moves_round(far, near, run * parts + b, MoveOp.COPY)]  # fmt: skip
    rounds = [
        moves_round(src, dst, chunk, MoveOp.REDUCE, count=count),
        *exchange,
        moves_round(dst, src, chunk, MoveOp.COPY, count=count),
    ]
    goal = Collective(Kind.ALL_REDUCE, sum(hosts))
    used = tuple(entry for entry in rounds if len(entry.src))
    return Kernel(f"over sites of {', '.join(map(str, hosts))}", goal, cuts * parts, used)
