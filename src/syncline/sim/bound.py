"""What no execution of a collective can beat on a fabric: bytes over the rate of what must carry them, and propagation.

    bound = bound_of(fabric, Kind.ALL_TO_ALL, gpus, direct=True)
    bound.at(size_bytes)

Four arguments, each true of every execution; the largest counts.

* A GPU, and a cell with some of the ranks (host, rack, pod, site: `sim/reach.py`), must send or receive what the others
  need of it. The last byte that leaves a site still has to travel over a line.
* All cells together must send what a tree of them needs: an all-reduce over D cells joins D sums and hands D the
  result, 2(D-1) buffers. Switches that reduce (`in_network`) spare it.
* What a rank of one site needs of a rank of another takes the latency of the way between them.
* Where every message goes straight from its giver to its taker (`direct`, as NCCL's all-to-all does), a line between
  two sites carries whatever has no other shortest way. A schedule that relays at a third site could spare it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import Fabric
from syncline.schedule.collective import Kind
from syncline.sim.reach import Floats, Longs, fabric_reach

_PAIRS = (Kind.ALL_TO_ALL, Kind.ALL_TO_ALLV)
_HALVES = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
_TO_ALL = (Kind.ALL_REDUCE, *_HALVES, *_PAIRS)


@dataclass(frozen=True)
class Bound:
    """Lower bounds of a time by the size of the buffer: each a latency and a time per byte."""

    terms: tuple[tuple[float, float], ...] = ()

    @overload
    def at(self, size_bytes: float) -> float: ...
    @overload
    def at(self, size_bytes: Floats) -> Floats: ...
    def at(self, size_bytes: float | Floats) -> float | Floats:
        """Return the time that a buffer of this size takes at least; nothing has to be sent of an empty one."""
        size = np.asarray(size_bytes, dtype=np.float64)
        least = np.zeros(size.shape)
        for latency_s, s_per_byte in self.terms:
            least = np.maximum(least, np.where(size > 0, latency_s + s_per_byte * np.maximum(size, 0.0), 0.0))
        return least if isinstance(size_bytes, np.ndarray) else float(least)

    @property
    def s_per_byte(self) -> float:
        """What every byte more takes at least, latency aside."""
        return max((each for _, each in self.terms), default=0.0)


def bound_of(
    fabric: Fabric,
    kind: Kind,
    devices: Sequence[int] | NDArray[np.integer[Any]],
    *,
    in_network: bool = False,
    direct: bool = False,
    to_next: bool = False,
) -> Bound:
    """Return what no execution of a collective on these GPUs can beat, faults of the fabric included.

    Every rank of a send/receive sends to the next one with `to_next`; otherwise one of them sends to another.
    """
    n = len(devices)
    if n < 2:
        return Bound()
    reach = fabric_reach(fabric)
    position = np.searchsorted(fabric.gpus, np.asarray(devices, dtype=np.int64))
    host = fabric.gpu_host[position].astype(np.int64)
    # NVSwitches reduce too (NVLS), so of ranks only what each must send by itself counts.
    terms = [(0.0, _s_per_byte(kind, np.ones(n, np.int64), reach.sent_Bps[position], True, to_next))]
    lines = SiteLines.of(fabric, host)
    for cells in reach.cells:
        members = np.bincount(cells.of_host[host], minlength=cells.num)
        used = members > 0
        if used.sum() > 1:
            each = _s_per_byte(kind, members[used], cells.exit_Bps[used], in_network, to_next)
            terms.append((lines.shortest_s if cells.name == "site" else 0.0, each))
    if lines.num > 1:
        terms.append((lines.farthest_s(kind), 0.0))
        if direct and kind in _PAIRS:
            terms.append((lines.shortest_s, lines.direct_s_per_byte(n)))
    return Bound(tuple(terms))


def uneven_bound(fabric: Fabric, sent_bytes: Floats, devices: Sequence[int] | NDArray[np.integer[Any]]) -> Bound:
    """Return what no exchange of these bytes between pairs of GPUs can beat, by the mean send buffer.

    `sent_bytes` has a row for each giver and a column for each taker; what a GPU keeps counts for nothing.
    """
    reach, position = fabric_reach(fabric), np.searchsorted(fabric.gpus, np.asarray(devices, dtype=np.int64))
    host, moved = fabric.gpu_host[position].astype(np.int64), sent_bytes - np.diag(np.diag(sent_bytes))
    mean = float(sent_bytes.sum()) / len(sent_bytes)
    lines = SiteLines.of(fabric, host)
    terms = [(0.0, float((np.maximum(moved.sum(axis=0), moved.sum(axis=1)) / reach.sent_Bps[position]).max()) / mean)]
    for cells in reach.cells:
        cell = cells.of_host[host].astype(np.int64)
        between = np.zeros((cells.num, cells.num))
        np.add.at(between, (cell[:, None], cell[None, :]), moved)
        np.fill_diagonal(between, 0.0)
        load = np.maximum(between.sum(axis=0), between.sum(axis=1))
        if load.any():
            used = load > 0
            latency = lines.shortest_s if cells.name == "site" else 0.0
            terms.append((latency, float((load[used] / cells.exit_Bps[used]).max()) / mean))
    return Bound(tuple(terms))


def _s_per_byte(kind: Kind, members: Longs, exit_Bps: Floats, in_network: bool, to_next: bool) -> float:
    """Return the time a byte of the buffer takes at least where cells with so many of the ranks exchange."""
    n, num = int(members.sum()), len(members)
    if (exit_Bps <= 0).any():
        return float("inf")
    others = n - members
    if kind is Kind.SEND_RECV and not to_next:
        return float(1.0 / exit_Bps.max())
    if kind in _HALVES:
        each, total = np.maximum(members, others) / n, float(others.sum()) / n
    elif kind in _PAIRS:
        each = members * others / n
        total = float(each.sum())
    else:
        each, total = np.ones(num), float(num - 1)
        total = {Kind.ALL_REDUCE: 2.0 * total, Kind.SEND_RECV: float(num)}.get(kind, total)
    together = 0.0 if in_network else total / float(exit_Bps.sum())
    return max(float((each / exit_Bps).max()), together)


@dataclass(frozen=True, eq=False)
class SiteLines:
    """The sites of some ranks: how many ranks each has, and what joins sites (rates, latencies of lines, ways)."""

    members: Floats
    rate_Bps: Floats
    line_s: Floats
    way_s: Floats

    @classmethod
    def of(cls, fabric: Fabric, host: Longs) -> SiteLines:
        """Return the lines of a fabric, and the sites of ranks on these hosts."""
        links, site = fabric.links, fabric.devices.site.astype(np.int64)
        num = int(fabric.site_of_host.max(initial=0)) + 1
        members = np.bincount(fabric.site_of_host[host], minlength=num).astype(np.float64)
        a, b = site[links.src], site[links.dst]
        rows = np.flatnonzero(links.up & (a != b) & (a >= 0) & (b >= 0) & (a < num) & (b < num))
        rate, line = np.zeros((num, num)), np.full((num, num), np.inf)
        np.add.at(rate, (a[rows], b[rows]), links.rate_Bps[rows])
        np.minimum.at(line, (a[rows], b[rows]), links.latency_s[rows])
        way = np.where(np.eye(num, dtype=bool), 0.0, line)
        for k in range(num):
            way = np.minimum(way, way[:, k : k + 1] + way[k : k + 1, :])
        return cls(members, rate, line, way)

    @property
    def num(self) -> int:
        """Sites with some of the ranks."""
        return int((self.members > 0).sum())

    @property
    def shortest_s(self) -> float:
        """The latency of the shortest line, which whatever leaves a site takes at least."""
        finite = self.line_s[np.isfinite(self.line_s)]
        return float(finite.min(initial=np.inf)) if len(finite) else 0.0

    def farthest_s(self, kind: Kind) -> float:
        """Return the longest way that data must travel; where there is a root, of the root that is best placed."""
        used = np.flatnonzero(self.members > 0)
        farthest = self.way_s[np.ix_(used, used)].max(axis=1)
        if kind is Kind.SEND_RECV:
            return self.shortest_s if self.num > 1 else 0.0
        longest = float(farthest.max() if kind in _TO_ALL else farthest.min())
        return longest if np.isfinite(longest) else 0.0

    def direct_s_per_byte(self, num_ranks: int) -> float:
        """Return what a byte of every rank's send buffer takes on the busiest line of an all-to-all sent straight.

        Routers take the ways with the fewest lines. A line counts for a pair of sites if all such ways pass it.
        """
        joined = self.rate_Bps > 0
        hops = np.where(np.eye(len(joined), dtype=bool), 0.0, np.where(joined, 1.0, np.inf))
        for k in range(len(hops)):
            hops = np.minimum(hops, hops[:, k : k + 1] + hops[k : k + 1, :])
        ways = _shortest_ways(hops, joined)
        wanted = np.outer(self.members, self.members) / num_ranks
        most = 0.0
        for a, b in zip(*np.nonzero(joined), strict=True):
            on_way = (hops[:, [a]] + 1 + hops[[b], :]) == hops
            all_ways = on_way & np.isfinite(hops) & (ways[:, [a]] * ways[[b], :] == ways)
            most = max(most, float(wanted[all_ways].sum() / self.rate_Bps[a, b]))
        return most


def _shortest_ways(hops: Floats, joined: NDArray[np.bool_]) -> Floats:
    """Return the number of ways with the fewest lines between every two sites."""
    ways = np.eye(len(hops))
    for length in range(1, len(hops)):
        at = hops == length
        # The last line of a way comes from a site that is one line nearer.
        nearer = np.where(hops == length - 1, ways, 0.0)
        ways = np.where(at, nearer @ joined, ways)
    return ways
