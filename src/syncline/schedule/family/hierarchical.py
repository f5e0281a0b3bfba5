"""Level by level: inside the host first, then across hosts, then (three levels) across pods.

Cost laws for all-reduce on levels of sizes m (inside) and h (across), n = mh:
- scattered (families that can reduce-scatter inside): every rank sends 2(m-1)/m + (what the outer family sends)/m;
  across hosts each rank sends 1/m of what a flat schedule that ignores hosts does;
- by leaders (trees inside): leaders send across hosts what the outer family sends, the others wait;
- everywhere (one-shot inside): every level all-reduces the whole buffer, all groups at once; fewest rounds.
An all-to-all first hands every block to the rank of its host that has its taker's place there, then across: each rank
sends (m-1)/m + (h-1)/h of its buffer in m + h - 2 messages, where a flat one sends (n-1)/n in n - 1.
Rounds add up over the levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Kind
from syncline.schedule.family.grid import axis_groups, coordinates, grid_size, nested_stage, nested_strides
from syncline.schedule.family.kernels import kernel, offers
from syncline.schedule.kernel import Kernel, Stage
from syncline.schedule.schedule import Schedule, alike

KINDS = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.BROADCAST, Kind.REDUCE, Kind.ALL_TO_ALL)


def hierarchical(
    shape: Sequence[int],
    kind: Kind = Kind.ALL_REDUCE,
    *,
    families: Sequence[str] = (),
    root: int = 0,
    channels: int = 1,
    chunks: int = 0,
) -> Schedule:
    """Return a schedule in levels; `shape` counts from the outside in: (64, 8) is 64 hosts of 8 ranks.

    All-reduce: 2(m-1)/m of the buffer inside the host, and across hosts 1/m of what the outer family sends.
    `families` names one family a level, in the order of `shape` (by default rings; direct for all-to-all).
    """
    num_ranks, names = grid_size(shape), tuple(families) or _usual(shape, kind)
    if len(names) != len(shape) or len(shape) < 2:
        raise ScheduleError(f"{len(shape)} levels of ranks and {len(names)} families: two levels or more, "
                            "one family each.")  # fmt: skip
    if kind not in KINDS:
        raise ScheduleError(f"a hierarchical schedule does not do {kind}.", hint=f"It does {', '.join(KINDS)}.")
    rooted = kind in (Kind.BROADCAST, Kind.REDUCE)
    goal = Collective(kind, num_ranks, root=root if rooted else 0)
    if rooted:
        stages, num_chunks = _rooted(goal, shape, names, chunks)
    elif kind is Kind.ALL_REDUCE:
        stages, num_chunks = _all_reduce(shape, names, chunks)
    elif kind is Kind.ALL_TO_ALL:
        stages, num_chunks = _all_to_all(shape, names), num_ranks**2
    else:
        stages, num_chunks = _scattered(kind, shape, names), num_ranks
    name = f"hierarchical {' x '.join(f'{size} {family}' for size, family in zip(shape, names, strict=True))}"
    return Schedule(name, goal, alike(stages, num_chunks, channels), family="hierarchical")


def _usual(shape: Sequence[int], kind: Kind) -> tuple[str, ...]:
    return ("direct" if kind is Kind.ALL_TO_ALL else "ring",) * len(shape)


def scatters(names: Sequence[str]) -> bool:
    """Whether the inner levels can reduce-scatter and all-gather; if not, one leader a group goes on."""
    return all(offers(name, Kind.REDUCE_SCATTER) and offers(name, Kind.ALL_GATHER) for name in names[1:])


def _all_reduce(shape: Sequence[int], names: Sequence[str], chunks: int) -> tuple[tuple[Stage, ...], int]:
    """Reduce-scatter from the inside out, all-reduce across the outermost level, all-gather back."""
    if everywhere(names):
        return _everywhere(shape, names, chunks)
    if not scatters(names):
        return _by_leaders(shape, names, chunks)
    top = kernel(names[0], Kind.ALL_REDUCE, shape[0], chunks=chunks)
    order = list(reversed(range(len(shape))))
    counts = [*(shape[axis] for axis in order[:-1]), top.num_chunks]
    strides = nested_strides(counts)
    down, up = [], []
    for depth, axis in enumerate(order[:-1]):
        scatter = kernel(names[axis], Kind.REDUCE_SCATTER, shape[axis])
        gather = kernel(names[axis], Kind.ALL_GATHER, shape[axis])
        down.append(nested_stage(shape, order, depth, scatter, strides, counts))
        up.append(nested_stage(shape, order, depth, gather, strides, counts))
    across = nested_stage(shape, order, len(order) - 1, top, strides, counts)
    return (*down, across, *reversed(up)), strides[0] * counts[0]


def everywhere(names: Sequence[str]) -> bool:
    """Whether the inner levels only all-reduce: then every rank goes on with the whole sum of its group."""
    return all(not offers(name, Kind.REDUCE_SCATTER) and not offers(name, Kind.REDUCE) for name in names[1:])


def _everywhere(shape: Sequence[int], names: Sequence[str], chunks: int) -> tuple[tuple[Stage, ...], int]:
    """All-reduce the whole buffer level by level, from the inside out."""
    works = [kernel(name, Kind.ALL_REDUCE, size, chunks=chunks) for name, size in zip(names, shape, strict=True)]
    num_chunks = lcm(*(work.num_chunks for work in works))
    stages = []
    for axis, work in reversed(list(enumerate(works))):
        members, wide = axis_groups(shape, axis), num_chunks // work.num_chunks
        stages.append(Stage(work, members, members[:, 0] * 0, ((work.num_chunks, wide),), ((wide, 1),)))
    return tuple(stages), num_chunks


def _scattered(kind: Kind, shape: Sequence[int], names: Sequence[str]) -> tuple[Stage, ...]:
    """Reduce-scatter from the inside out, or all-gather from the outside in; blocks lie in rank order."""
    order = list(reversed(range(len(shape))))
    counts = [shape[axis] for axis in order]
    rank_strides = nested_strides(shape)
    strides = [rank_strides[axis] for axis in order]
    stages = tuple(
        nested_stage(shape, order, depth, kernel(names[axis], kind, shape[axis]), strides, counts)
        for depth, axis in enumerate(order)
    )
    return stages if kind is Kind.REDUCE_SCATTER else stages[::-1]


def _all_to_all(shape: Sequence[int], names: Sequence[str]) -> tuple[Stage, ...]:
    """Exchange along one axis after the other, from the inside out.

    A block (giver, taker) stands where its taker's coordinates are along axes that are done, and where its giver's are
    along the others; blocks that differ in the coordinates left over move as one.
    """
    n = prod(shape)
    takes = nested_strides(shape)
    gives = [n * stride for stride in takes]
    stages: list[Stage] = []
    for axis in reversed(range(len(shape))):
        members = axis_groups(shape, axis)
        base = np.zeros(len(members), dtype=np.int64)
        spans = []
        for other in range(len(shape)):
            if other != axis:
                own, free = (takes, gives) if other > axis else (gives, takes)
                base += coordinates(shape, other, members[:, 0]) * own[other]
                spans.append((shape[other], free[other]))
        work = kernel(names[axis], Kind.ALL_TO_ALL, shape[axis])
        index = ((shape[axis], gives[axis]), (shape[axis], takes[axis]))
        stages.append(Stage(work, members, base, index, tuple(spans)))
    return tuple(stages)


def _by_leaders(shape: Sequence[int], names: Sequence[str], chunks: int) -> tuple[tuple[Stage, ...], int]:
    """Reduce to one leader a group, level by level, all-reduce over the last leaders, broadcast back."""
    ups = [kernel(names[axis], Kind.REDUCE, shape[axis], chunks=chunks) for axis in range(1, len(shape))]
    downs = [kernel(names[axis], Kind.BROADCAST, shape[axis], chunks=chunks) for axis in range(1, len(shape))]
    top = kernel(names[0], Kind.ALL_REDUCE, shape[0], chunks=chunks)
    num_chunks = lcm(*(k.num_chunks for k in (*ups, *downs, top)))
    reduce = [_leader_stage(shape, axis, ups[axis - 1], 0, num_chunks) for axis in reversed(range(1, len(shape)))]
    spread = [_leader_stage(shape, axis, downs[axis - 1], 0, num_chunks) for axis in range(1, len(shape))]
    return (*reduce, _leader_stage(shape, 0, top, 0, num_chunks), *spread), num_chunks


def _rooted(goal: Collective, shape: Sequence[int], names: Sequence[str], chunks: int) -> tuple[tuple[Stage, ...], int]:
    """Broadcast from the outside in over the ranks that share the root's inner coordinates; reduce the other way."""
    strides = nested_strides(shape)
    at = [goal.root // strides[axis] % shape[axis] for axis in range(len(shape))]
    kernels = [kernel(names[axis], goal.kind, shape[axis], root=at[axis], chunks=chunks) for axis in range(len(shape))]
    num_chunks = lcm(*(k.num_chunks for k in kernels))
    stages = tuple(_leader_stage(shape, axis, kernels[axis], goal.root, num_chunks) for axis in range(len(shape)))
    return (stages if goal.kind is Kind.BROADCAST else stages[::-1]), num_chunks


def _leader_stage(shape: Sequence[int], axis: int, work: Kernel, leader: int, num_chunks: int) -> Stage:
    """Return the stage along an axis of only those groups whose inner coordinates are the leader's."""
    members = axis_groups(shape, axis)
    keep = members[:, 0] >= 0
    for inner in range(axis + 1, len(shape)):
        stride = nested_strides(shape)[inner]
        keep &= coordinates(shape, inner, members[:, 0]) == leader // stride % shape[inner]
    members = members[keep]
    wide = num_chunks // work.num_chunks
    return Stage(work, members, members[:, 0] * 0, ((work.num_chunks, wide),), ((wide, 1),))
