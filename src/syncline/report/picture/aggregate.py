"""What is equal in a network, counted once: a tree of groups with cells, and bundles of cables between cells.

Groups are what stays joined when the upper switches are taken away: hosts under one NVSwitch (domain), hosts and
their leaves (unit), units and their spines (pod), sites. Groups with equal content are one `PictureGroup` with a
count, and hosts or switches with equal looks are one `Cell`. Nothing is estimated: the cells' totals add up to the
fabric's devices and the bundles' to its cables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import DeviceKind
from syncline.report.picture.network import HOST_LEVEL, LONG_TIERS, Cables, DrawnNetwork, Hashes, Ints, components, mix

MAX_OUTER_GROUPS = 8
"""Up to this many outermost groups are drawn each, even if they are equal."""


@dataclass(frozen=True)
class Cell:
    """Equal hosts or equal switches of one group: `count` in each such group, `total` in the fabric."""

    id: int
    vertex: int
    kind: int
    level: int
    lane: int
    count: int
    total: int

    @property
    def is_host(self) -> bool:
        return self.kind < 0


@dataclass(frozen=True)
class PictureGroup:
    """Equal groups: `count` in each parent. `level` is that of its top switches; -1 is a site, -2 the whole."""

    level: int
    number: int
    count: int
    total: int
    cells: tuple[Cell, ...]
    groups: tuple[PictureGroup, ...]

    def all_cells(self) -> list[tuple[Cell, int]]:
        """Return every cell below with how many of its members one such group holds."""
        inner = [(cell, n * group.count) for group in self.groups for cell, n in group.all_cells()]
        return [(cell, cell.count) for cell in self.cells] + inner


@dataclass(frozen=True)
class CableBundle:
    """Equal cables between two drawn things; `total` cables in the fabric, `load` the highest utilisation of them."""

    a: int
    b: int
    tier: int
    medium: int
    rate_Bps: float
    state: int
    lane: int
    total: int
    load: float | None


@dataclass(frozen=True, eq=False)
class Aggregate:
    """A network with what is equal collapsed; `cell_of` maps each vertex to the id of its cell."""

    root: PictureGroup
    cell_of: Ints
    bundles: tuple[CableBundle, ...]
    """Cables between cells (those inside hosts are not among them)."""
    inside: tuple[CableBundle, ...]
    """Cables inside hosts, with the host's cell at both ends."""


def aggregate(network: DrawnNetwork, *, each: bool = False, outer: bool = True, coarse: bool = False) -> Aggregate:
    """Collapse what is equal. `each` keeps every host, switch and group apart, `outer` a few outermost groups.

    `coarse` calls all hosts of a site equal, and all switches of one level and part: for fabrics so uneven (or so
    broken) that nothing else would be small.
    """
    levels, containers = ([], []) if coarse else _containers(network)
    look = _plain_look(network) if coarse else network.vertices.look
    if each:
        look = mix(np.arange(len(network.vertices)))
    elif containers and outer:
        outermost = containers[-1]
        if len(np.unique(outermost[outermost >= 0])) <= MAX_OUTER_GROUPS:
            look = mix(look, outermost + 1)
    key, signs = look, list[Hashes]()
    for container in containers:
        inside = container >= 0
        sign = np.zeros(len(look), np.uint64)  # equal content of two groups, equal number
        np.add.at(sign, container[inside], mix(key[inside]))
        signs.append(sign)
        key = mix(key, np.where(inside, sign[container], np.uint64(0)))
    cell_of = _by_first(key)
    tree = _Tree(network, levels, containers, signs, cell_of)
    ends = cell_of[network.vertex_of]
    outside = network.outside
    return Aggregate(
        root=tree.root(),
        cell_of=cell_of,
        bundles=bundle(network.cables, ends, outside),
        inside=bundle(network.cables, ends, ~outside),
    )


def bundle(cables: Cables, ends: Ints, chosen: NDArray[np.bool_], *, lanes: bool = True) -> tuple[CableBundle, ...]:
    """Return the chosen cables, equal ones between the same ends as one. `ends` maps a device to what is drawn."""
    lane = cables.lane if lanes else np.full(len(cables), -1)
    rows = np.flatnonzero(chosen)
    a, b = ends[cables.a[rows]], ends[cables.b[rows]]
    low, high = np.minimum(a, b), np.maximum(a, b)
    columns = (cables.tier, cables.medium, cables.rate_Bps, cables.state, lane)
    group = _by_first(mix(low, high, *(column[rows] for column in columns)))
    first = np.unique(group, return_index=True)[1]
    totals = np.bincount(group, minlength=len(first))
    load = np.zeros(len(first))
    if cables.load is not None:
        np.maximum.at(load, group, cables.load[rows])
    return tuple(
        CableBundle(
            a=int(low[i]),
            b=int(high[i]),
            tier=int(cables.tier[rows[i]]),
            medium=int(cables.medium[rows[i]]),
            rate_Bps=float(cables.rate_Bps[rows[i]]),
            state=int(cables.state[rows[i]]),
            lane=int(lane[rows[i]]),
            total=int(totals[k]),
            load=None if cables.load is None else float(load[k]),
        )
        for k, i in enumerate(first)
    )


def _plain_look(network: DrawnNetwork) -> Hashes:
    vertices = network.vertices
    part = np.where(vertices.device >= 0, network.fabric.devices.part[vertices.device], -1)
    return mix(vertices.kind + 1, vertices.level, vertices.site, part + 1)


def _by_first(keys: Hashes) -> Ints:
    """Number equal keys 0, 1, 2 ... in the order in which they first appear."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]


def _containers(network: DrawnNetwork) -> tuple[list[int], list[Ints]]:
    """Return the levels that make groups, inner first, and per level the group of each vertex (-1: none).

    A level whose groups are those of the level above adds no box and is left out.
    """
    vertices, cables = network.vertices, network.cables
    va, vb = network.vertex_of[cables.a], network.vertex_of[cables.b]
    near = network.outside & ~np.isin(cables.tier, LONG_TIERS)
    top = np.maximum(vertices.level[va], vertices.level[vb])
    groups: list[tuple[int, Ints]] = []
    sites = np.unique(vertices.site)
    above = len(sites)
    if len(sites) > 1:
        first = np.unique(vertices.site, return_index=True)[1]
        groups.append((-1, first[np.searchsorted(sites, vertices.site)]))
    for level in range(int(vertices.level.max()), HOST_LEVEL - 1, -1):
        label = components(len(vertices), va[near & (top <= level)], vb[near & (top <= level)])
        inside = (vertices.level <= level) & (vertices.kind != DeviceKind.OCS)
        heads = np.unique(label[inside & (vertices.level == level) & (vertices.kind >= 0)])
        member = inside & np.isin(label, heads)
        if len(heads) <= (0 if level == HOST_LEVEL else above):
            continue
        above = len(heads)
        groups.append((level, np.where(member, label, -1)))
    groups.reverse()
    return [level for level, _ in groups], [container for _, container in groups]


@dataclass(frozen=True, eq=False)
class _Tree:
    network: DrawnNetwork
    levels: list[int]
    containers: list[Ints]
    signs: list[Hashes]
    cell_of: Ints

    def root(self) -> PictureGroup:
        everything = np.arange(len(self.network.vertices))
        cells, groups = self._content(everything, len(self.levels) - 1, 1)
        return PictureGroup(-2, 0, 1, 1, cells, groups)

    def _content(self, members: Ints, depth: int, times: int) -> tuple[tuple[Cell, ...], tuple[PictureGroup, ...]]:
        if depth < 0:
            return self._cells(members), ()
        container = self.containers[depth][members]
        inner, free = members[container >= 0], members[container < 0]
        cells, groups = self._content(free, depth - 1, times) if len(free) else ((), ())
        return cells, self._groups(inner, depth, times) + groups

    def _groups(self, members: Ints, depth: int, times: int) -> tuple[PictureGroup, ...]:
        if not len(members):
            return ()
        heads = np.unique(self.containers[depth][members])
        kinds = _by_first(self.signs[depth][heads])
        made = []
        for kind in range(int(kinds.max()) + 1):
            head, count = int(heads[kinds == kind][0]), int((kinds == kind).sum())
            mine = members[self.containers[depth][members] == head]
            number = int(np.searchsorted(self._heads(depth, head), head))
            content = self._content(mine, depth - 1, times * count)
            made.append(PictureGroup(self.levels[depth], number, count, times * count, *content))
        return tuple(made)

    def _heads(self, depth: int, head: int) -> Ints:
        """Return the groups of that depth at the same site (sites themselves: all), from which numbers are counted."""
        container, site = self.containers[depth], self.network.vertices.site
        chosen = (container >= 0) & ((site == site[head]) | (self.levels[depth] == -1))
        return np.unique(container[chosen])

    def _cells(self, members: Ints) -> tuple[Cell, ...]:
        vertices = self.network.vertices
        ids, first, counts = np.unique(self.cell_of[members], return_index=True, return_counts=True)
        cells = [
            Cell(
                id=int(cell),
                vertex=int(vertex),
                kind=int(vertices.kind[vertex]),
                level=int(vertices.level[vertex]),
                lane=int(vertices.lane[vertex]),
                count=int(count),
                total=int(self._totals[cell]),
            )
            for cell, vertex, count in zip(ids, members[first], counts, strict=True)
        ]
        return tuple(sorted(cells, key=lambda cell: (cell.level, cell.lane, cell.vertex)))

    @cached_property
    def _totals(self) -> Ints:
        return np.bincount(self.cell_of)
