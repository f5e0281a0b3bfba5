"""All equal-cost paths of many connections: to choose from (adaptive routing), or merged with shares (spraying).

What lies between two leaves is the same for all pairs behind them, so it is looked up once per pair of leaves. One
`MultiPath` serves all programs on a network: ten algorithms look their ways up once.
"""

from __future__ import annotations

from functools import cached_property
from math import gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import Tier
from syncline.fabric.route import Routes
from syncline.sim.flow.engine import Paths
from syncline.timeline.columns import sum_by

MAX_PATHS = 4096
"""Equal-cost paths of one connection that are spread over."""
MAX_CHOICES = 256
"""Of those, how many adaptive routing looks at; fewer where connections are very many."""
MAX_ROWS = 2_000_000
MAX_KEPT = 1 << 18
"""Paths that are kept for the next program."""

Longs = NDArray[np.int64]
Row = NDArray[np.int32]


class Multipath:
    """All ways between two places, and what each of their links gets when packets are spread over them."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    @cached_property
    def merged(self) -> tuple[Row, NDArray[np.float64]]:
        """Every link once, with its share."""
        link, at = np.unique(np.concatenate(self.rows), return_inverse=True)
        return link.astype(np.int32), sum_by(at, np.full(len(at), 1.0 / len(self.rows)), len(link))


class MultiPath:
    """Equal-cost paths over one fabric."""

    def __init__(
        self, routes: Routes, cross_rail: Literal["fabric", "nvlink"], seed: int, stripe: int | None = None
    ) -> None:
        self.routes = routes
        self.cross_rail: Literal["fabric", "nvlink"] = cross_rail
        self.seed = seed
        self.stripe = stripe
        self._between: dict[tuple[int, int], Multipath] = {}
        self._none = Multipath([np.empty(0, np.int32)])

    def choices(self, src: Longs, dst: Longs) -> tuple[Paths, NDArray[np.int32]]:
        """Return the paths of all connections, one after the other, and how many each has."""
        most = max(8, min(MAX_CHOICES, MAX_ROWS // max(1, len(src))))
        rows: list[Row] = []
        count = np.empty(len(src), np.int32)
        for i, (head, ways, tail) in enumerate(self._parts(src, dst)):
            middles = ways.rows
            kept = middles if len(middles) <= most else [middles[at] for at in spread(len(middles), most)]
            rows.extend(np.concatenate((head, middle, tail)) for middle in kept)
            count[i] = len(kept)
        return Paths.of(rows), count

    def sprayed(self, src: Longs, dst: Longs) -> Paths:
        """Return one path per connection that crosses each link with the share of packets it gets."""
        links, shares, length = [], [], []
        for head, ways, tail in self._parts(src, dst):
            link, share = ways.merged
            links += [head, link, tail]
            shares += [np.ones(len(head)), share, np.ones(len(tail))]
            length.append(len(head) + len(link) + len(tail))
        start = np.concatenate(([0], np.cumsum(length))).astype(np.int64)
        return Paths(start, np.concatenate(links).astype(np.int32), np.concatenate(shares))

    def _parts(self, src: Longs, dst: Longs) -> list[tuple[Row, Multipath, Row]]:
        """Return for each connection what comes before the choice, all ways between, and what comes after."""
        base = self.routes.many(src, dst, seed=self.seed, cross_rail=self.cross_rail, stripe=self.stripe)
        fabric = self.routes.fabric
        ends, begins = fabric.links.dst, fabric.links.src
        nothing, found = self._none.rows[0], []
        crossing = np.flatnonzero(fabric.links.tier[base.links] == Tier.ACCESS)
        count = np.searchsorted(crossing, base.start)
        for i, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
            row, access = base[i], crossing[count[i] : count[i + 1]] - base.start[i]
            if not self._one_port or len(access) != 2:
                if a == b or (self._one_port and not len(access)):
                    found.append((row, self._none, nothing))
                    continue
                if (a, b) not in self._between:
                    self._between[a, b] = Multipath(self._all(a, b))
                found.append((nothing, self._between[a, b], nothing))
                continue
            first, last = int(access[0]) + 1, int(access[1])
            key = (int(ends[row[first - 1]]), int(begins[row[last]]))
            if key not in self._between:
                self._between[key] = Multipath([p[first : len(p) - (len(row) - last)] for p in self._all(a, b)])
            found.append((row[:first], self._between[key], row[last:]))
        if sum(len(ways.rows) for ways in self._between.values()) > MAX_KEPT:
            self._between.clear()
        return found

    def _all(self, a: int, b: int) -> list[Row]:
        return self.routes.paths(a, b, limit=MAX_PATHS, cross_rail=self.cross_rail, stripe=self.stripe)

    @cached_property
    def _one_port(self) -> bool:
        """Whether every NIC has one port, so that a path's ends leave no choice."""
        links = self.routes.fabric.links
        ports = np.bincount(
            links.src[(links.tier == Tier.ACCESS) & links.up], minlength=len(self.routes.fabric.devices)
        )
        return bool((ports[self.routes.fabric.nics] <= 1).all()) and len(self.routes.fabric.nics) > 0


def spread(num: int, most: int) -> list[int]:
    """Return `most` of so many paths, in steps of about 0.618 of them: of equal ways up and down, each as often.

    >>> len({at % 64 for at in spread(4096, 256)}), len({at // 64 for at in spread(4096, 256)})
    (64, 64)
    """
    step = next(step for step in range(int(0.618 * num), num) if gcd(step, num) == 1)
    return [turn * step % num for turn in range(most)]
