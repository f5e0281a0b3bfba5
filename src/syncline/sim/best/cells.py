"""The ranks of a collective as nested cells, and what limits each of them: one host of every kind, exits, lines.

A cell is what traffic must leave: a rank, a host (or NVLink domain), the hosts behind the same leaves, a pod, a site.
Hosts that nothing tells apart are one kind, so that a fabric of 131,072 GPUs is a few kinds. Of one host of a kind the
real links are kept: `CellInside` says how much of each link a byte takes that a rank sends out, receives from outside,
or exchanges with the other ranks of its host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import Fabric
from syncline.program import Placement
from syncline.sim.flow.detours import dragonfly_routing
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.reach import fabric_reach
from syncline.timeline.columns import sum_by

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

SAMPLE = 64
"""Cells of a level whose ways to the first one are looked at for its latency."""


@dataclass(frozen=True, eq=False)
class CellInside:
    """Seconds that each link of one host needs a byte, by rank: sent out, received, and exchanged inside.

    `gathered` is for a byte that every other rank of the host sends to this one, `spread` for one that this one sends
    to every other, `moved_out` and `moved_in` for one that it sends to or gets from any one of them.
    """

    link: Longs
    out: Floats
    into: Floats
    gathered: Floats
    spread: Floats
    moved_out: Floats
    moved_in: Floats

    @property
    def turned(self) -> CellInside:
        """The same with every direction turned round."""
        return CellInside(self.link, self.into, self.out, self.spread, self.gathered, self.moved_in, self.moved_out)


@dataclass(frozen=True, eq=False)
class BestLevel:
    """One level of cells: the cell of every rank, what leaves each cell, and the latency between those of a parent."""

    name: str
    of_rank: Longs
    exit_Bps: Floats
    exit_link: Longs  # one of the links that leave each cell
    latency_s: float = 0.0

    @property
    def num(self) -> int:
        return len(self.exit_Bps)


@dataclass(frozen=True, eq=False)
class CellLines:
    """The lines between sites: ends, rate and latency of each, the site of every cell, and latencies between cells."""

    a: Longs
    b: Longs
    rate_Bps: Floats
    latency_s: Floats
    site: Longs
    way_s: Floats
    link: Longs


@dataclass(frozen=True, eq=False)
class CellTree:
    """Nested cells, ranks first and the whole last (one cell); kinds of hosts with one host of each."""

    placement: Placement
    levels: tuple[BestLevel, ...]
    kind_of_host: Longs  # by cell of level 1
    insides: tuple[CellInside, ...]
    members: tuple[Longs, ...]  # the ranks of the host that stands for each kind
    lines: CellLines | None
    overhead_s: float

    @property
    def num_ranks(self) -> int:
        return self.placement.num_ranks

    @property
    def depth(self) -> int:
        """Levels at which cells exchange."""
        return len(self.levels) - 1

    def children(self, level: int) -> Longs:
        """Return how many cells of the level below each cell of a level holds."""
        inner, outer = self.levels[level - 1], self.levels[level]
        first = np.zeros(inner.num, np.int64)
        first[inner.of_rank[::-1]] = outer.of_rank[::-1]
        return np.bincount(first, minlength=outer.num)

    @cached_property
    def shape(self) -> tuple[int, ...] | None:
        """How many cells each cell holds, from the outside in, where all of a level hold equally many."""
        counts = [self.children(level) for level in range(self.depth, 0, -1)]
        return tuple(int(each[0]) for each in counts) if all((each == each[0]).all() for each in counts) else None

    @cached_property
    def order(self) -> Longs:
        """Ranks cell by cell, from the outside in."""
        keys = [level.of_rank for level in self.levels[1:]]
        return np.lexsort((np.arange(self.num_ranks), *keys)).astype(np.int64)


def cell_tree(placement: Placement, network: FlowNetwork, root: int | None = None) -> CellTree:
    """Return the cells of these ranks on their fabric; a level that does not divide the ranks is left out.

    The host of a `root` is a kind of its own.
    """
    fabric, n = placement.fabric, placement.num_ranks
    host = placement.host.astype(np.int64)
    efficiency = network.carrier.efficiency
    reach = fabric_reach(fabric)
    levels = [BestLevel("rank", np.arange(n, dtype=np.int64), np.full(n, np.inf), np.zeros(n, np.int64))]
    for cells in reach.cells:
        used, label = np.unique(cells.of_host[host], return_inverse=True)
        exits = cells.exit_Bps if dragonfly_routing(fabric) is None else reach.pairs_Bps(cells)
        exits = exits[used] * efficiency
        leaving = np.zeros(cells.num, np.int64)
        leaving[cells.out_cell[::-1]] = cells.out_link[::-1]
        leaving = leaving[used]
        if len(used) == 1:
            break
        if len(used) == levels[-1].num and len(levels) > 1:  # the same cells: what leaves the outer ones counts too
            leaving = np.where(exits < levels[-1].exit_Bps, leaving, levels[-1].exit_link)
            exits = np.minimum(exits, levels[-1].exit_Bps)
            levels[-1] = BestLevel(cells.name, levels[-1].of_rank, exits, leaving)
        else:
            levels.append(BestLevel(cells.name, label.astype(np.int64), exits, leaving))
    if levels[-1].num > 1:
        levels.append(BestLevel("all", np.zeros(n, np.int64), np.full(1, np.inf), np.zeros(1, np.int64)))
    levels = [_with_latency(level, levels[at - 1], placement, network) if at else level
              for at, level in enumerate(levels)]  # fmt: skip
    hosts = levels[1]
    kinds, first = _kinds(fabric, placement, levels, root)
    ranks = [np.flatnonzero(hosts.of_rank == cell) for cell in first.tolist()]
    insides = tuple(_inside(placement, network, mine, levels) for mine in ranks)
    overhead = float(network.messages.overhead_s.max(initial=0.0))
    return CellTree(
        placement, tuple(levels), kinds, insides, tuple(ranks), _lines(placement, network, levels), overhead
    )


def rails_of(tree: CellTree) -> Longs:
    """Return the place of every rank in its host."""
    hosts, n = tree.levels[1].of_rank, tree.num_ranks
    order = np.lexsort((np.arange(n), hosts))
    begin = np.searchsorted(hosts[order], np.arange(tree.levels[1].num))
    rail = np.empty(n, np.int64)
    rail[order] = np.arange(n) - begin[hosts[order]]
    return rail


def _with_latency(level: BestLevel, inner: BestLevel, placement: Placement, network: FlowNetwork) -> BestLevel:
    """Return the level with the longest of the ways between cells of its first cell (of sites, of all of them)."""
    at = np.unique(inner.of_rank, return_index=True)[1]
    parent = level.of_rank[at]
    mine = at[parent == parent[0]][:SAMPLE]
    if inner.name == "site":
        a, b = (side.ravel() for side in np.meshgrid(mine, mine))
    else:
        a, b = np.full(len(mine), mine[0]), mine
    keep = a != b
    if not keep.any():
        return level
    device = placement.device.astype(np.int64)
    wires = network.wire(device[a[keep]], device[b[keep]], np.zeros(int(keep.sum()), np.int64))
    return replace(level, latency_s=float(wires.latency_s[wires.first].max()))


def _kinds(fabric: Fabric, placement: Placement, levels: list[BestLevel], root: int | None) -> tuple[Longs, Longs]:
    """Return the kind of every host with ranks, and the first host of each kind."""
    hosts = levels[1]
    links, devices = fabric.links, fabric.devices
    inner = np.full(fabric.num_hosts, -1, np.int64)
    inner[placement.host[::-1].astype(np.int64)] = hosts.of_rank[::-1]
    mark = np.zeros(hosts.num, np.uint64)
    place = devices.local.astype(np.uint64) * np.uint64(64) + devices.kind.astype(np.uint64)
    outside = devices.host < 0
    place[outside] = np.uint64(1) << np.uint64(40)
    state = np.where(links.up, links.rate_Bps, 0.0).view(np.uint64) ^ links.tier.astype(np.uint64)
    link = _mix(_mix(place[links.src], place[links.dst] * np.uint64(3)), state)
    for end in (links.src, links.dst):
        host = devices.host[end]
        cell = np.where(host >= 0, inner[np.maximum(host, 0)], -1)
        keep = cell >= 0
        np.add.at(mark, cell[keep], link[keep])
    np.add.at(mark, hosts.of_rank, _mix(place[placement.device], np.full(placement.num_ranks, 77, np.uint64)))
    if root is not None:
        mark[hosts.of_rank[root]] ^= np.uint64(0x5555)
    if hosts.name == "site":
        mark += np.arange(hosts.num, dtype=np.uint64)  # lines differ
    # Outwards: a cell is what its exit and its children are; then inwards: it is also what its parent is.
    marks = [mark]
    for at in range(2, len(levels)):
        outer = levels[at]
        first = _first_rank(levels[at - 1])
        total = outer.exit_Bps.view(np.uint64).copy()
        np.add.at(total, outer.of_rank[first], _mix(marks[-1], np.full(len(marks[-1]), at, np.uint64)))
        if outer.name == "site":
            total += np.arange(outer.num, dtype=np.uint64)  # lines differ
        marks.append(total)
    for at in range(len(levels) - 2, 0, -1):
        first = _first_rank(levels[at])
        marks[at - 1] = _mix(marks[at - 1], marks[at][levels[at + 1].of_rank[first]])
    _, first, kinds = np.unique(marks[0], return_index=True, return_inverse=True)
    rank = np.argsort(first, kind="stable")
    return np.argsort(rank)[kinds.ravel()].astype(np.int64), first[rank].astype(np.int64)


def _first_rank(level: BestLevel) -> Longs:
    return np.unique(level.of_rank, return_index=True)[1]


def _mix(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = a * np.uint64(0x9E3779B97F4A7C15) ^ (b + np.uint64(0x632BE59BD9B4E019)) * np.uint64(0xD1B54A32D192ED03)
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray(x ^ (x >> np.uint64(29)))


def _inside(placement: Placement, network: FlowNetwork, mine: Longs, levels: list[BestLevel]) -> CellInside:
    """Return what the links of one host need of what its ranks send, receive and exchange."""
    p, device = len(mine), placement.device.astype(np.int64)
    hosts = levels[1].of_rank
    a, b = np.nonzero(~np.eye(p, dtype=bool))
    width = len(network.capacity_Bps)
    near = np.zeros((p, p, 0))
    used: list[Longs] = []
    columns: dict[str, tuple[Longs, Longs, Floats]] = {}
    if p > 1:
        columns["pairs"] = _crossings(network, device[mine[a]], device[mine[b]])
    if levels[1].num > 1:
        other = np.flatnonzero(hosts != hosts[mine[0]])
        cell = hosts[other[len(other) // 2]]  # any other host: what lies inside this one is the same
        peers = np.flatnonzero(hosts == cell)
        peer = peers[np.arange(p) % len(peers)]
        own = np.unique(placement.host[mine])
        for name, src, dst in (("out", mine, peer), ("into", peer, mine)):
            row, link, share = _crossings(network, device[src], device[dst])
            keep = _belongs(network, link, own)
            columns[name] = (row[keep], link[keep], share[keep])
    used = [np.unique(link) for _, link, _ in columns.values()]
    links = np.unique(np.concatenate(used)) if used else np.zeros(0, np.int64)
    number = np.full(width, -1, np.int64)
    number[links] = np.arange(len(links))
    need = 1.0 / np.maximum(network.capacity_Bps[links], 1e-9)
    near = np.zeros((len(links), p, p))
    found = {name: np.zeros((len(links), p)) for name in ("out", "into")}
    for name, (row, link, share) in columns.items():
        if name == "pairs":
            np.add.at(near, (number[link], a[row], b[row]), share)
        else:
            np.add.at(found[name], (number[link], row), share)
    eye = np.eye(p, dtype=bool)
    out_any = np.where(eye, np.inf, near).min(axis=2) if p > 1 else np.zeros((len(links), p))
    in_any = np.where(eye, np.inf, near).min(axis=1) if p > 1 else np.zeros((len(links), p))
    parts = [found["out"], found["into"], near.sum(axis=1), near.sum(axis=2), out_any, in_any]
    rows = np.round(np.concatenate([part * need[:, None] for part in parts], axis=1), 20)
    table, first = np.unique(rows, axis=0, return_index=True)
    return CellInside(links[first], *(table[:, k * p : (k + 1) * p] for k in range(6)))


def _crossings(network: FlowNetwork, src: Longs, dst: Longs) -> tuple[Longs, Longs, Floats]:
    """Return the row, link and share of every link that connections cross; where they may choose, the first way."""
    wires = network.wire(src, dst, np.zeros(len(src), np.int64))
    paths = wires.counted.take(wires.first)
    return paths.row_of_crossing(), paths.link.astype(np.int64), paths.shares()


def _belongs(network: FlowNetwork, link: Longs, hosts: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which links have an end in one of these hosts."""
    fabric = network.fabric
    real = link < network.num_links
    at = np.where(real, link, 0)
    ends = [fabric.devices.host[fabric.links.src[at]], fabric.devices.host[fabric.links.dst[at]]]
    card = fabric.devices.host[np.where(real, 0, (link - network.num_links) // 2)]
    return np.where(real, np.isin(ends[0], hosts) | np.isin(ends[1], hosts), np.isin(card, hosts))


def _lines(placement: Placement, network: FlowNetwork, levels: list[BestLevel]) -> CellLines | None:
    """Return the lines between sites, parallel ones as one, and the latencies between sites with ranks."""
    if len(levels) < 2 or levels[-2].name != "site":
        return None
    fabric, device = placement.fabric, placement.device.astype(np.int64)
    links, site = fabric.links, fabric.devices.site.astype(np.int64)
    a, b = site[links.src], site[links.dst]
    rows = np.flatnonzero(links.up & (a != b) & (a >= 0) & (b >= 0))
    num = int(max(site.max(initial=0), 0)) + 1
    pair, at = np.unique(a[rows] * num + b[rows], return_inverse=True)
    rate = np.asarray(sum_by(at.ravel(), links.rate_Bps[rows], len(pair)) * network.carrier.efficiency)
    latency = np.full(len(pair), np.inf)
    np.minimum.at(latency, at.ravel(), links.latency_s[rows])
    first = _first_rank(levels[-2])
    way = np.zeros((len(first), len(first)))
    x, y = np.nonzero(~np.eye(len(first), dtype=bool))
    wires = network.wire(device[first[x]], device[first[y]], np.zeros(len(x), np.int64))
    way[x, y] = wires.latency_s[wires.first]
    where = fabric.site_of_host[placement.host[first]].astype(np.int64)
    return CellLines(
        pair // num, pair % num, rate, latency, where, way, rows[np.unique(at.ravel(), return_index=True)[1]]
    )
