"""Trees over the sites of a collective: who sums and passes on what, and which lines that takes.

A tree has one site as its root. With `relay`, sites on the way sum what they get before they pass it on; without, every
site sends straight to the root, over whatever lines the shortest way has.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from syncline.sim.best.cells import CellLines, Floats, Longs


@dataclass(frozen=True, eq=False)
class SiteTree:
    """The parent of every site (-1: the root), and for each line how many of the tree's edges cross it towards it."""

    root: int
    parent: tuple[int, ...]
    up: Floats  # by line: edges that cross it on their way to the root
    down: Floats
    latency_s: float

    @property
    def children(self) -> Longs:
        """How many sites each site sums up."""
        found = np.zeros(len(self.parent), np.int64)
        np.add.at(found, [p for p in self.parent if p >= 0], 1)
        return found

    @property
    def rounds(self) -> list[list[int]]:
        """The sites that send up in each round, the deepest first."""
        depth = [0] * len(self.parent)
        for site in range(len(self.parent)):
            at = site
            while self.parent[at] >= 0:
                at, depth[site] = self.parent[at], depth[site] + 1
        return [[s for s, d in enumerate(depth) if d == level] for level in range(max(depth), 0, -1)]


def site_trees(lines: CellLines, *, relay: bool) -> list[SiteTree]:
    """Return the trees that are shared out: one or two for every root, by shortest ways with ties broken both ways."""
    found: dict[tuple[int, ...], SiteTree] = {}
    for root in range(len(lines.site)):
        for last in (False, True):
            tree = _tree(lines, root, relay, last)
            if tree is not None:
                found.setdefault((root, *tree.parent, int(tree.up.argmax())), tree)
    return list(found.values())


def ways_from(lines: CellLines, root: int, *, last: bool = False) -> dict[int, list[int]]:
    """Return the lines of a shortest way from every site (by number) to the root; `last` breaks ties the other way."""
    into: dict[int, list[tuple[int, int]]] = {}
    for line, (a, b) in enumerate(zip(lines.a.tolist(), lines.b.tolist(), strict=True)):
        into.setdefault(b, []).append((a, line))
    goal = int(lines.site[root])
    ways: dict[int, list[int]] = {goal: []}
    queue = deque([goal])
    while queue:
        at = queue.popleft()
        for other, line in sorted(into.get(at, []), reverse=last):
            if other not in ways:
                ways[other] = [line, *ways[at]]
                queue.append(other)
    return ways


def _tree(lines: CellLines, root: int, relay: bool, last: bool) -> SiteTree | None:
    ways = ways_from(lines, root, last=last)
    number = {int(site): cell for cell, site in enumerate(lines.site.tolist())}
    back = {(a, b): line for line, (a, b) in enumerate(zip(lines.a.tolist(), lines.b.tolist(), strict=True))}
    parent, up, down = [-1] * len(number), np.zeros(len(lines.a)), np.zeros(len(lines.a))
    latency = [0.0] * len(number)
    for cell in sorted(number.values(), key=lambda cell: len(ways.get(int(lines.site[cell]), []))):
        if cell == root:
            continue
        way = ways.get(int(lines.site[cell]))
        if way is None:
            return None  # failed lines part the sites
        stops = [int(lines.b[line]) for line in way]
        length = next(k + 1 for k, stop in enumerate(stops) if stop in number and (relay or number[stop] == root))
        parent[cell] = number[stops[length - 1]]
        for line in way[:length]:
            up[line] += 1
            reverse = back.get((int(lines.b[line]), int(lines.a[line])))
            if reverse is None:
                return None
            down[reverse] += 1
        latency[cell] = latency[parent[cell]] + float(lines.way_s[cell, parent[cell]])
    return SiteTree(root, tuple(parent), up, down, max(latency))
