"""Schedules worth trying for a collective on a cluster, by name."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from syncline.errors import ScheduleError, SimulationError
from syncline.fabric import Fabric
from syncline.schedule import FAMILIES, Collective, Kind, Proved, Schedule, Strand, build, hierarchical, ring, verify
from syncline.schedule.cost import fitted
from syncline.schedule.families import Options

NAMES = {
    "allreduce": Kind.ALL_REDUCE,
    "allgather": Kind.ALL_GATHER,
    "reducescatter": Kind.REDUCE_SCATTER,
    "broadcast": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
    "alltoall": Kind.ALL_TO_ALL,
}
"""Collectives as nccl-tests names them."""

MAX_RANKS_DIRECT = 2048
"""Past this an all-to-all has more pairs than are simulated one by one."""


def rail_rings(num_hosts: int, per_host: int) -> Schedule:
    """Return as many rings as GPUs a host, each leaving and entering hosts on another NIC.

    Ring c visits every second host backwards, so that its hops between hosts stay on one rail: with 8 NICs a host all 8
    are busy, where one ring keeps one busy.
    """
    strands = []
    for channel in range(per_host):
        order = []
        for host in range(num_hosts):
            local = (np.arange(per_host) + channel) % per_host
            order.extend((host * per_host + (local if host % 2 == 0 else local[::-1])).tolist())
        part = ring(num_hosts * per_host, order=order).strands[0]
        strands.append(Strand(part.stages, part.num_chunks, Fraction(1, per_host), channel=channel))
    goal = Collective(Kind.ALL_REDUCE, num_hosts * per_host)
    return Schedule("rail-rings", goal, tuple(strands), family="ring")


def candidates(fabric: Fabric, kind: Kind, num_ranks: int) -> dict[str, Callable[[], Schedule]]:
    """Return makers of the schedules that suit a collective on the first `num_ranks` GPUs of a fabric."""
    per_host = int(np.bincount(fabric.gpu_host).max())
    hosts, rest = divmod(num_ranks, per_host)
    grid = per_host > 1 and hosts > 1 and rest == 0
    found: dict[str, Callable[[], Schedule]] = {}
    for name in ("ring", "tree", "double-tree", "recursive-doubling", "halving-doubling", "bruck"):
        if kind in FAMILIES[name].kinds and not (name == "bruck" and kind is Kind.ALL_REDUCE):
            found[name] = _maker(name, num_ranks, kind)
    if kind in (Kind.ALL_TO_ALL, Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
        for name in ("direct", "pairwise"):
            if kind in FAMILIES[name].kinds and num_ranks <= MAX_RANKS_DIRECT:
                found[name] = _maker(name, num_ranks, kind)
    if grid and kind in FAMILIES["hierarchical"].kinds:
        found["hierarchical"] = lambda: hierarchical((hosts, per_host), kind)
        found["hierarchical-halving"] = lambda: hierarchical(
            (hosts, per_host), kind, families=("halving-doubling", "ring")
        )
    for name, fact in (("torus", "torus_shape"), ("dragonfly", "dragonfly_groups")):
        if fabric.facts.get(fact) and kind in FAMILIES[name].kinds and num_ranks == fabric.num_gpus:
            found[name] = _fitted(name, fabric, kind)
    if kind is Kind.ALL_REDUCE:
        if grid and num_ranks <= MAX_RANKS_DIRECT * 4:
            found["rail-rings"] = lambda: rail_rings(hosts, per_host)
        if len(fabric.switches):
            found["in-network"] = _maker("in-network", num_ranks, kind)
    return found


def _maker(name: str, num_ranks: int, kind: Kind) -> Callable[[], Schedule]:
    return lambda: build(name, num_ranks, kind=kind)


def _fitted(name: str, fabric: Fabric, kind: Kind) -> Callable[[], Schedule]:
    """Return the maker of a family whose shape is that of the fabric."""
    return lambda: FAMILIES[name].make(fitted(Options(fabric.num_gpus, kind=kind), name, fabric))


AUTO_SKIPS = frozenset({"in-network"})
"""Left out of `auto`: reducing switches must be there and be switched on, which only the user knows."""


def find(fabric: Fabric, kind: Kind, num_ranks: int, algorithm: str) -> Proved:
    """Return one schedule by name, proved: of the candidates, or any family."""
    known = candidates(fabric, kind, num_ranks)
    if algorithm in known:
        return verify(known[algorithm]())
    if algorithm in FAMILIES:
        return verify(build(algorithm, num_ranks, kind=kind))
    raise SimulationError(f'no algorithm is called "{algorithm}".',
                          hint=f"One of: {', '.join(dict.fromkeys((*known, *FAMILIES)))}; "
                               "`syncline simulate` also takes auto and nccl.")  # fmt: skip


def proved(fabric: Fabric, kind: Kind, num_ranks: int) -> dict[str, Proved]:
    """Return every candidate that can be made for this many ranks, proved."""
    found = {}
    for name, make in candidates(fabric, kind, num_ranks).items():
        if name in AUTO_SKIPS:
            continue
        try:
            found[name] = verify(make())
        except ScheduleError:
            continue  # a family that does not do this number of ranks
    return found
