"""Seats: an allocation cut into units of GPUs that move as one, and the ranks that sit on them.

A unit is a host, or where hosts gave unequal numbers of GPUs, as many GPUs of one host as divide them all: ranks that
share a host keep sharing one, in the order of its GPUs. Seat s holds the ranks s x size .. s x size + size - 1 as the
launcher numbers them; an order says which unit is on each seat. Units past the last seat stay idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray

from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.placing.allocation import Allocation
from syncline.sim.reach import fabric_reach
from syncline.workload.grid import AXES, Grid, grid_of
from syncline.workload.parallel import Parallel

Longs = NDArray[np.int64]
Order = tuple[int, ...]
"""The unit on each seat, then those that stay idle."""


@dataclass(frozen=True, eq=False)
class Seats:
    """The units of an allocation and the ranks of a split over them."""

    fabric: Fabric
    allocation: Allocation
    split: Parallel
    host: Longs
    """The host of each unit."""
    gpus: Longs
    """The GPUs of each unit, one row a unit."""
    cells: Longs
    """The cell of each unit, one row a level: what decides its links, then its rack, pod and site."""
    alike: Longs
    """Cells of a row with the same number can change places, with all that they hold, and nothing is different."""
    dies: int = 1

    @property
    def num_units(self) -> int:
        return len(self.host)

    @property
    def size(self) -> int:
        """Ranks on a unit."""
        return int(self.gpus.shape[1]) * self.dies

    @property
    def num_ranks(self) -> int:
        return self.split.model_ranks * (self.split.dp or 1)

    @property
    def num_seats(self) -> int:
        return -(-self.num_ranks // self.size)

    @property
    def grid(self) -> Grid:
        return grid_of(self.split)

    def launched(self) -> Longs:
        """Return, for ranks numbered tensor, context, data, stage, the number the launcher gives them."""
        plain = grid_of(self.split.model_copy(update={"order": AXES}))
        at = plain.coordinates(np.arange(self.num_ranks))
        grid = self.grid
        return np.asarray(sum(at[axis] * grid.stride(axis) for axis in AXES), dtype=np.int64)

    def by_launch(self, order: Order) -> Longs:
        """Return the GPU of every rank as the launcher numbers them."""
        rank = np.arange(self.num_ranks)
        units = np.asarray(order, dtype=np.int64)[rank // self.size]
        return np.asarray(self.gpus[units, rank % self.size // self.dies])

    def devices(self, order: Order) -> Longs:
        """Return the GPU of every rank, ranks ordered tensor, context, data, stage, as steps are executed."""
        return self.by_launch(order)[self.launched()]

    def scheduler_order(self) -> Order:
        """Return units as the scheduler listed them."""
        return tuple(range(self.num_units))

    def packed_order(self) -> Order:
        """Return units in the order of the fabric: rack after rack."""
        return tuple(np.lexsort((self.gpus[:, 0], self.host)).tolist())

    @cached_property
    def kind(self) -> Longs:
        """Units of the same number can change places and nothing is different."""
        return np.unique(self.cells, axis=1, return_inverse=True)[1].ravel().astype(np.int64)

    def signature(self, order: Sequence[int]) -> bytes:
        """Return a key that orders of the same arrangement share: which seats share a cell, and what kind of cell."""
        units = list(order[: self.num_seats])
        apart = np.arange(len(self.cells))[:, None] * len(self.host)
        _, first, at = np.unique(self.cells[:, units] + apart, return_index=True, return_inverse=True)
        found: Longs = first[at.ravel()] * len(self.host) + self.alike[:, units].ravel()
        return found.tobytes()


def seats_of(fabric: Fabric, allocation: Allocation, split: Parallel, dies: int = 1) -> Seats:
    """Return the units of an allocation for a split whose `dp` is known."""
    needed = split.model_ranks * (split.dp or 1)
    have = allocation.num_gpus * dies
    if needed > have:
        raise UsageError(f"the job needs {needed:,} ranks; the allocation has {have:,} GPUs.", hint="Lower dp.")
    size = gcd(*(len(each) for each in allocation.gpus))
    host, gpus = [], []
    for number, local in zip(allocation.hosts, allocation.gpus, strict=True):
        mine = fabric.gpus[fabric.gpu_host == number][list(local)].astype(np.int64)
        for first in range(0, len(mine), size):
            host.append(number)
            gpus.append(mine[first : first + size])
    hosts = np.array(host, dtype=np.int64)
    return Seats(fabric, allocation, split, hosts, np.stack(gpus), *_cells(fabric, hosts), dies)


def rail_aligned(seats: Seats) -> Seats | None:
    """Return seats whose GPUs stand in the order of their rails, unit by unit; None where they do already.

    Ranks of the same place in different units talk to each other, over one rail if their GPUs have the same number. The
    most common set of GPUs is the pattern; what a unit has of it goes to its place, the rest fills the gaps.
    """
    local = seats.fabric.devices.local[seats.gpus]
    kinds, counts = np.unique(np.sort(local, axis=1), axis=0, return_counts=True)
    pattern = kinds[int(np.argmax(counts))]
    rows = []
    for gpus, numbers in zip(seats.gpus, local, strict=True):
        mine = dict(zip(numbers.tolist(), gpus.tolist(), strict=True))
        left = iter(sorted(set(mine) - set(pattern.tolist())))
        rows.append([mine[wanted] if wanted in mine else mine[next(left)] for wanted in pattern.tolist()])
    found = np.array(rows, dtype=np.int64)
    return None if np.array_equal(found, seats.gpus) else replace(seats, gpus=found)


def _cells(fabric: Fabric, host: Longs) -> tuple[Longs, Longs]:
    """Return the cells of units, one row a level from what tells hosts apart outwards, and which of them are alike."""
    reach = fabric_reach(fabric)
    whole = len(set(host.tolist())) == len(host) and reach.hosts.num == fabric.num_hosts
    if not whole or not reach.outer:  # units that share a host, or a domain, differ by it
        each = np.unique(host, return_inverse=True)[1].ravel()[None]
        return each, each
    health = _health(fabric, host)
    cells = [np.unique(level.of_host[host], return_inverse=True)[1].ravel() for level in reach.outer]
    alike = [np.unique(level.even_Bps[level.of_host[host]], return_inverse=True)[1].ravel() for level in reach.outer]
    return np.stack((health, *cells)), np.stack((health, *alike))


def _health(fabric: Fabric, host: Longs) -> Longs:
    """Number hosts by the rates of all their links: a slow or failed port makes a host one of its own kind."""
    links, devices = fabric.links, fabric.devices
    rate = np.where(links.up, links.rate_Bps, 0.0)
    of_link = devices.host[links.src]
    rates = [tuple(rate[of_link == number].tolist()) for number in host.tolist()]
    number_of = {each: number for number, each in enumerate(sorted(set(rates)))}
    return np.array([number_of[each] for each in rates], dtype=np.int64)
