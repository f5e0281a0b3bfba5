"""Sites of different size: reduced inside each, exchanged once between all of them, spread again.

Cost law for an all-reduce of V over D sites of h_i hosts with m ranks each: a rank sends 2(m-1)/m of V inside its host
and 2(h_i-1)/h_i of V/m inside its site; each site sends 2V/D to each other one, whatever its size. Hosts that ignored
sites would send 2 h_i h_j V / sum(h) from site i to site j.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Ints, Kind
from syncline.schedule.family.direct import direct_kernel
from syncline.schedule.kernel import Stage
from syncline.schedule.schedule import Schedule, alike

MAX_CHUNKS = 1 << 16
"""Chunks of one schedule: sites whose sizes have no common measure would need more."""


def uneven(hosts: Sequence[int], per_host: int, *, channels: int = 1) -> Schedule:
    """Return an all-reduce of sites with so many hosts each, ranks numbered site by site and host by host."""
    if len(hosts) < 2 or min(hosts) < 1 or per_host < 1:
        raise ScheduleError(f"sites of {', '.join(map(str, hosts))} hosts with {per_host} ranks are no levels.")
    cuts = lcm(*hosts)
    num_chunks = per_host * cuts * len(hosts)
    if num_chunks > MAX_CHUNKS:
        raise ScheduleError(f"sites of {', '.join(map(str, hosts))} hosts need {num_chunks:,} chunks.")
    goal = Collective(Kind.ALL_REDUCE, sum(hosts) * per_host)
    down = [*_in_hosts(Kind.REDUCE_SCATTER, hosts, per_host), *_in_sites(Kind.REDUCE_SCATTER, hosts, per_host)]
    up = [*_in_sites(Kind.ALL_GATHER, hosts, per_host), *_in_hosts(Kind.ALL_GATHER, hosts, per_host)]
    stages = (*down, _between(hosts, per_host), *up)
    name = f"hierarchical {len(hosts)} sites of {', '.join(map(str, hosts))} x {per_host} direct"
    return Schedule(name, goal, alike(stages, num_chunks, channels), family="hierarchical")


def _in_hosts(kind: Kind, hosts: Sequence[int], per_host: int) -> list[Stage]:
    """Each rank of a host gets (gives) the part of its place in it."""
    if per_host == 1:
        return []
    members = np.arange(sum(hosts) * per_host, dtype=np.int64).reshape(-1, per_host)
    wide = lcm(*hosts) * len(hosts)
    return [Stage(direct_kernel(kind, per_host), members, members[:, 0] * 0, ((per_host, wide),), ((wide, 1),))]


def _in_sites(kind: Kind, hosts: Sequence[int], per_host: int) -> list[Stage]:
    """Each host of a site gets (gives) an equal run of what its ranks hold; sites do not wait for each other."""
    cuts, sites = lcm(*hosts), len(hosts)
    stages = []
    for site, size in enumerate(hosts):
        if size == 1:
            continue
        wide = cuts // size * sites
        place = np.arange(per_host, dtype=np.int64)
        members = place[:, None] + per_host * (sum(hosts[:site]) + np.arange(size, dtype=np.int64))[None, :]
        stages.append(Stage(direct_kernel(kind, size), members, place * cuts * sites, ((size, wide),), ((wide, 1),)))
    return stages


def _between(hosts: Sequence[int], per_host: int) -> Stage:
    """Those who hold the same run in each site all-reduce it, each site a part."""
    cuts, sites = lcm(*hosts), len(hosts)
    run, place = np.divmod(np.arange(cuts * per_host, dtype=np.int64), per_host)
    first = np.cumsum([0, *hosts[:-1]])
    owners: Ints = np.stack(
        [per_host * (first[site] + run * size // cuts) + place for site, size in enumerate(hosts)], axis=1
    )
    return Stage(direct_kernel(Kind.ALL_REDUCE, sites), owners, (place * cuts + run) * sites, ((sites, 1),))
