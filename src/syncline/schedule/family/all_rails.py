"""Broadcast and reduce over every NIC of every host, on any number of levels.

The root's host gets all of the buffer first; then each of its ranks carries a share of its own across to the ranks of
the same place in the other hosts, and the ranks of those hosts gather the shares from each other. With more levels the
same again from group to group. A rank's NIC carries 1/m of the buffer where m ranks share a host, and with
pipelining all levels work at once. Reduce is the same backwards: reduce-scatter in hosts, reduce across, reduce at the
root's.

Cost law (levels h, m with scatter-allgather at both): 2 + 2 + 1 rounds; across hosts no rank sends more than
1/m of the buffer, inside hosts the root's ranks send it once and the others (m-1)/m of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Ints, Kind
from syncline.schedule.family.grid import axis_groups, coordinates, grid_size, nested_strides
from syncline.schedule.family.kernels import kernel
from syncline.schedule.kernel import Axes, Kernel, Stage
from syncline.schedule.schedule import Schedule, alike

KINDS = (Kind.BROADCAST, Kind.REDUCE)


def all_rails(
    shape: Sequence[int],
    kind: Kind = Kind.BROADCAST,
    *,
    families: Sequence[str] = (),
    root: int = 0,
    channels: int = 1,
) -> Schedule:
    """Return a broadcast or reduce in levels in which every rank carries a share across; (64, 8) is 64 hosts of 8.

    `families` names what each level broadcasts with, outside first (scatter-allgather everywhere by default).
    """
    num_ranks = grid_size(shape)
    names = tuple(families) or ("scatter-allgather",) * len(shape)
    if len(names) != len(shape):
        raise ScheduleError(f"{len(shape)} levels of ranks and {len(names)} families: one family each.")
    if kind not in KINDS:
        raise ScheduleError(f"an all-rails schedule does not do {kind}.", hint=f"It does {', '.join(KINDS)}.")
    work = _Levels(tuple(shape), Collective(kind, num_ranks, root=root), names)
    stages = work.stages()
    name = f"all rails {' x '.join(f'{size} {family}' for size, family in zip(shape, names, strict=True))}"
    ordered = stages if kind is Kind.BROADCAST else stages[::-1]
    return Schedule(name, work.goal, alike(tuple(ordered), work.num_chunks, channels), family="all-rails")


class _Levels:
    """The chunks of a strand are numbered by one digit for each axis but the first, and a last digit that kernels cut.

    Who stands at coordinates x_1, ..., x_k of the inner axes carries the chunks whose digits are these.
    """

    def __init__(self, shape: tuple[int, ...], goal: Collective, names: Sequence[str]) -> None:
        self.shape, self.goal = shape, goal
        at = [goal.root // stride % size for stride, size in zip(nested_strides(shape), shape, strict=True)]
        self.root_at = at
        self.kernels = [
            kernel(name, goal.kind, size, root=place, chunks=1)
            for name, size, place in zip(names, shape, at, strict=True)
        ]
        self.fine = lcm(*(work.num_chunks for work in self.kernels))
        self.strides = [0, *(stride * self.fine for stride in nested_strides(shape[1:]))]
        self.num_chunks = prod(shape[1:]) * self.fine

    def stages(self) -> list[Stage]:
        """Return the stages of a broadcast, inside out; a reduce does them the other way round."""
        stages = []
        for axis in reversed(range(len(self.shape))):
            if self.shape[axis] == 1:
                continue
            stages.append(self._across(axis))
            stages += [self._gather(axis, inner) for inner in range(axis + 1, len(self.shape)) if self.shape[inner] > 1]
        return stages

    def _across(self, axis: int) -> Stage:
        """Broadcast along an axis from the root's coordinate, in the root's group, each place its own share."""
        members = self._in_roots_group(axis_groups(self.shape, axis), axis)
        work = self.kernels[axis]
        cut = self.fine // work.num_chunks
        free = [(cut, 1), *self._digits(range(1, axis + 1))]
        return Stage(work, members, self._base(members, axis), ((work.num_chunks, cut),), _axes(free))

    def _gather(self, axis: int, inner: int) -> Stage:
        """Gather along an inner axis what came across `axis`, in all groups but the root's."""
        members = self._in_roots_group(axis_groups(self.shape, inner), axis)
        members = members[coordinates(self.shape, axis, members[:, 0]) != self.root_at[axis]]
        kind = Kind.ALL_GATHER if self.goal.kind is Kind.BROADCAST else Kind.REDUCE_SCATTER
        work: Kernel = kernel("direct", kind, self.shape[inner])
        free = [(self.fine, 1), *self._digits(range(1, inner))]
        index = ((self.shape[inner], self.strides[inner]),)
        return Stage(work, members, self._base(members, inner), index, _axes(free))

    def _in_roots_group(self, members: Ints, axis: int) -> Ints:
        keep = np.ones(len(members), dtype=bool)
        for outer in range(axis):
            keep &= coordinates(self.shape, outer, members[:, 0]) == self.root_at[outer]
        return members[keep]

    def _base(self, members: Ints, axis: int) -> Ints:
        """Return the first chunk of each group's share: the digits of the axes inside `axis`."""
        base = np.zeros(len(members), dtype=np.int64)
        for inner in range(axis + 1, len(self.shape)):
            base += coordinates(self.shape, inner, members[:, 0]) * self.strides[inner]
        return base

    def _digits(self, axes: range) -> list[tuple[int, int]]:
        return [(self.shape[axis], self.strides[axis]) for axis in axes]


def _axes(digits: list[tuple[int, int]]) -> Axes:
    return tuple((count, stride) for count, stride in sorted(digits, key=lambda d: -d[1]) if count > 1)
