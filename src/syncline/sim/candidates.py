"""Schedules worth trying for a collective on a cluster, by name.

Flat families over all ranks, and the same kernels level by level, where the levels are those the fabric has (domain or
host, leaf, pod, site). Where a pipeline helps, schedules are made with one chunk: `sweep` chooses how many.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import prod

import numpy as np

from syncline.errors import ScheduleError, SimulationError
from syncline.fabric import Fabric
from syncline.program import place
from syncline.program.levels import Nest, nest
from syncline.schedule.collective import OWNED, PAIRED, Collective, Kind
from syncline.schedule.cost import fitted
from syncline.schedule.family.all_rails import KINDS as ALL_RAILS
from syncline.schedule.family.all_rails import all_rails
from syncline.schedule.family.families import FAMILIES, Options, build
from syncline.schedule.family.hierarchical import KINDS as LEVELLED
from syncline.schedule.family.hierarchical import hierarchical
from syncline.schedule.family.ring import ring
from syncline.schedule.proof.verify import Proved, verify
from syncline.schedule.schedule import Schedule, Strand, reordered

NAMES = {
    "allreduce": Kind.ALL_REDUCE,
    "allgather": Kind.ALL_GATHER,
    "reducescatter": Kind.REDUCE_SCATTER,
    "broadcast": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
    "alltoall": Kind.ALL_TO_ALL,
    "sendrecv": Kind.SEND_RECV,
}
"""Collectives as nccl-tests names them."""

MAX_RANKS_DIRECT = 2048
"""Past this an all-to-all has more pairs than are simulated one by one."""

MAX_ALL_PAIRS = 128
"""Ranks that exchange with each other in one round of a collective that has other ways."""

MAX_ROUND_FLOWS = 1 << 18
"""Flows of one round of a level in which all pairs exchange; beyond, the level halves and doubles."""

Makers = dict[str, Callable[[], Schedule]]


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


def candidates(fabric: Fabric, kind: Kind, num_ranks: int, *, chunks: int = 0, nested: Nest | None = None) -> Makers:
    """Return makers of the schedules that suit a collective on these ranks.

    `nested` are the levels of their placement (by default of the first `num_ranks` GPUs); `chunks` is the depth of the
    pipelines that families make themselves (0: their own).
    """
    if kind is Kind.SEND_RECV:  # every rank to the next: there is one way to do it
        return {"direct": _maker("direct", num_ranks, kind, chunks)}
    levels = nested or nest(place("auto", fabric, num_ranks))
    found = _flat(kind, num_ranks, chunks)
    for name, fact in (("torus", "torus_shape"), ("dragonfly", "dragonfly_groups")):
        if fabric.facts.get(fact) and kind in FAMILIES[name].kinds and num_ranks == fabric.num_gpus:
            found[name] = _fitted(name, fabric, kind)
    if levels.two_levels and (levels.in_order or kind not in OWNED | PAIRED):
        found |= _levelled(levels, kind)
    if kind is Kind.ALL_REDUCE and len(fabric.switches):
        found["in-network"] = _maker("in-network", num_ranks, kind, chunks)
    return found


def _flat(kind: Kind, num_ranks: int, chunks: int) -> Makers:
    """Return the families that work on all ranks at once."""
    names = ["ring", "tree", "double-tree", "recursive-doubling", "halving-doubling"]
    names += ["bruck"] if kind is not Kind.ALL_REDUCE else []
    if kind in (Kind.ALL_TO_ALL, Kind.ALL_GATHER, Kind.REDUCE_SCATTER) and num_ranks <= MAX_RANKS_DIRECT:
        names += ["direct", "pairwise"]
    elif num_ranks <= MAX_ALL_PAIRS:
        names += ["direct", "one-shot", "scatter-allgather"]
    found: Makers = {name: _maker(name, num_ranks, kind, chunks) for name in names if kind in FAMILIES[name].kinds}
    return found


def _levelled(levels: Nest, kind: Kind) -> Makers:
    """Return the schedules that work level by level: hosts (or domains), and all of them."""
    assert levels.two_levels is not None
    two, found = levels.two_levels, Makers()
    if kind is Kind.ALL_TO_ALL:
        return (
            {"hierarchical": _on(levels, kind, two, ("direct", "direct"))} if prod(two) <= MAX_RANKS_DIRECT else found
        )
    if kind in LEVELLED:
        found["hierarchical"] = _on(levels, kind, two, ("ring", "ring"))
        if _few(two, 0):
            found["hierarchical-direct"] = _on(levels, kind, two, ("direct", "direct"))
    if kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
        found["hierarchical-halving"] = _on(levels, kind, two, ("halving-doubling", "ring"))
    if kind is Kind.ALL_REDUCE and levels.in_order and prod(two) <= MAX_RANKS_DIRECT * 4:
        found["rail-rings"] = lambda: rail_rings(*two)
    if kind in ALL_RAILS:
        found["all-rails"] = _all_rails(
            levels, kind, two, ("scatter-allgather" if _few(two, 0) else "tree", "scatter-allgather")
        )
    return found


def _few(shape: tuple[int, ...], axis: int) -> bool:
    """Whether all pairs of a level may exchange in one round without more flows than can be simulated."""
    return prod(shape) * (shape[axis] - 1) <= MAX_ROUND_FLOWS


def _on(levels: Nest, kind: Kind, shape: tuple[int, ...], families: tuple[str, ...]) -> Callable[[], Schedule]:
    def make() -> Schedule:
        root = _first_rank(levels) if kind in ALL_RAILS else 0
        return _in_place(levels, hierarchical(shape, kind, families=families, root=root, chunks=1))

    return make


def _all_rails(levels: Nest, kind: Kind, shape: tuple[int, ...], families: tuple[str, ...]) -> Callable[[], Schedule]:
    return lambda: _in_place(levels, all_rails(shape, kind, families=families, root=_first_rank(levels)))


def _first_rank(levels: Nest) -> int:
    """Return where rank 0, the root, stands in the order of the levels."""
    return int(np.flatnonzero(levels.order == 0)[0])


def _in_place(levels: Nest, schedule: Schedule) -> Schedule:
    return schedule if levels.in_order else reordered(schedule, levels.order)


def _maker(name: str, num_ranks: int, kind: Kind, chunks: int) -> Callable[[], Schedule]:
    return lambda: build(name, num_ranks, kind=kind, chunks=chunks)


def _fitted(name: str, fabric: Fabric, kind: Kind) -> Callable[[], Schedule]:
    """Return the maker of a family whose shape is that of the fabric."""
    return lambda: FAMILIES[name].make(fitted(Options(fabric.num_gpus, kind=kind), name, fabric))


AUTO_SKIPS = frozenset({"in-network"})
"""Left out of `auto`: reducing switches must be there and be switched on, which only the user knows."""


def usual(fabric: Fabric, kind: Kind, num_ranks: int) -> str:
    """Return the algorithm to take where none is named: a ring, or the first that does this collective."""
    known = candidates(fabric, kind, num_ranks)
    return "ring" if kind in FAMILIES["ring"].kinds or not known else next(iter(known))


def find(
    fabric: Fabric, kind: Kind, num_ranks: int, algorithm: str, *, chunks: int = 0, nested: Nest | None = None
) -> Proved:
    """Return one schedule by name, proved: of the candidates, or any family."""
    known = candidates(fabric, kind, num_ranks, chunks=chunks, nested=nested)
    if algorithm in known:
        return verify(known[algorithm]())
    if algorithm in FAMILIES and kind in FAMILIES[algorithm].kinds:
        return verify(build(algorithm, num_ranks, kind=kind, chunks=chunks))
    if algorithm in FAMILIES:
        raise SimulationError(f"{algorithm} does not do {kind.value}.", hint=f"One of: {', '.join(known)}.")
    raise SimulationError(f'no algorithm is called "{algorithm}".',
                          hint=f"One of: {', '.join(dict.fromkeys((*known, *FAMILIES)))}; "
                               "simulate also takes auto, nccl and files.")  # fmt: skip


def proved(
    fabric: Fabric, kind: Kind, num_ranks: int, *, chunks: int = 0, nested: Nest | None = None
) -> dict[str, Proved]:
    """Return every candidate that can be made for this many ranks, proved."""
    found = {}
    for name, make in candidates(fabric, kind, num_ranks, chunks=chunks, nested=nested).items():
        if name in AUTO_SKIPS:
            continue
        try:
            found[name] = verify(make())
        except ScheduleError:
            continue  # a family that does not do this number of ranks
    return found
