"""Ways between the switches of a dragonfly, and how routing by load fills them.

    split = Detours(fabric).split(src, dst, amount, most)       # ugal: shortest ways first, then over third switches
    split.level                                                 # how often each amount goes through in a second

Inside a group the shortest way is the cable between two switches; a detour goes over a third switch. Between groups the
shortest ways are the cables that join the two (local, global, local); a detour goes over a third group, and crosses two
global cables. Packets that meet no queue go the shortest way. Where that is full, further ones take detours in equal
parts, as long as these have room: all amounts grow alike until they have what their ports can send or no way is left.
That is progressive filling, as in max-min fairness, with the ways found on the go. No queue is ever longer than another
that a packet could have joined instead, which is what UGAL aims at (Singh 2005; Kim et al., ISCA 2008; Slingshot: De
Sensi et al., SC 2020). By hand: of `a` switches in a group, each sending to the next one only, a cable carries one part
of the direct traffic, and the `a - 2` others that leave a switch each a half for its own detours and a half for its
neighbours': `a / 2` cables in all. With two switches in use nobody else wants the others: `a - 1`. Groups are the same
with `c` cables a pair: `g c / 2` of `(g - 1) c`, and `c` of two groups, which have no third.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.fabric import DeviceKind, Fabric, Tier
from syncline.sim.flow.engine import Paths
from syncline.sim.transport import stated_routing
from syncline.timeline.columns import sum_by

MAX_DETOURS = 128
"""Detours of one pair of switches; of more, so many in equal steps."""
MAX_WAYS = 400_000
"""Detours of all pairs together; many pairs have fewer each."""
MAX_PAIRS = 20_000
"""Pairs of switches that send at once up to which detours are looked for: more of them are even traffic anyhow."""
MAX_STEPS = 200
FEW_WAYS = 20_000
COARSE = 0.02
"""After so many steps, or with more ways, all grow by this part of what they have at least, beyond a full link too."""

Choice = Literal["minimal", "ugal", "valiant"]
Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Bools = NDArray[np.bool_]


def dragonfly_routing(fabric: Fabric) -> Choice | None:
    """Return how the cluster's file lets a dragonfly route (ugal unless it says otherwise); None: it is none."""
    spec = fabric.spec
    networks = [spec.network] if spec.hosts else [site.network for site in spec.sites]
    if not networks or any(each is None or each.topology != "dragonfly" for each in networks):
        return None
    choices: dict[str, Choice] = {"adaptive": "ugal", "ugal": "ugal", "valiant": "valiant"}
    return choices.get(stated_routing(fabric), "minimal")


def detours(fabric: Fabric) -> Detours:
    """Return the ways between the switches of a fabric; kept with it, as it does not change."""
    found: Detours | None = fabric.__dict__.get("_detours")
    if found is None:
        found = fabric.__dict__["_detours"] = Detours(fabric)
    return found


@dataclass(frozen=True, eq=False)
class DetourSplit:
    """What each pair of switches sends over which links: a path with shares a pair, and the level it came to."""

    paths: Paths
    level: Floats


@dataclass(frozen=True, eq=False)
class _Ways:
    """All ways of some pairs: whose each is, how willingly it is taken (0 first), and the edges that it crosses."""

    owner: Longs
    rank: Longs
    edges: Longs  # a row a way, padded with -1


class Detours:
    """The switches of a dragonfly as edges: all cables from one switch to another are one."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        links, devices = fabric.links, fabric.devices
        switch = devices.kind == DeviceKind.SWITCH
        wanted = np.isin(links.tier, (Tier.GROUP_LOCAL, Tier.GROUP_GLOBAL))
        rows = np.flatnonzero(links.up & wanted & switch[links.src] & switch[links.dst])
        ends = np.unique(np.concatenate((links.src[rows], links.dst[rows])))
        self._place = np.full(len(devices), -1, np.int64)
        self._place[ends] = np.arange(len(ends))
        src, dst = self._place[links.src[rows]], self._place[links.dst[rows]]
        edge, of_row = np.unique(src * max(len(ends), 1) + dst, return_inverse=True)
        self._src, self._dst = edge // max(len(ends), 1), edge % max(len(ends), 1)
        self._at = np.full((len(ends), len(ends)), -1, np.int32)
        self._at[self._src, self._dst] = np.arange(len(edge))
        order = np.argsort(of_row.ravel(), kind="stable")
        self._row, self._first = rows[order], np.searchsorted(of_row.ravel()[order], np.arange(len(edge) + 1))
        self.rate_Bps = sum_by(of_row.ravel(), links.rate_Bps[rows], len(edge))
        slowest = np.full(len(edge), np.inf)
        np.minimum.at(slowest, of_row.ravel(), links.rate_Bps[rows])
        self._even_Bps = slowest * np.diff(self._first)
        place = devices.site[ends].astype(np.int64) * (int(devices.group.max(initial=0)) + 2) + devices.group[ends]
        _, self._group = np.unique(place, return_inverse=True)
        self._site = devices.site[ends]
        self._members = [np.flatnonzero(self._group == g) for g in range(int(self._group.max(initial=-1)) + 1)]
        self._cables = self._by_groups()
        self._known: dict[tuple[int, int], tuple[Longs, Longs]] = {}
        self._over: dict[tuple[int, int], tuple[Longs, Longs]] = {}

    def _by_groups(self) -> dict[tuple[int, int], Longs]:
        a, b = self._group[self._src], self._group[self._dst]
        apart = np.flatnonzero(a != b)
        found: dict[tuple[int, int], list[int]] = {}
        for edge, key in zip(apart.tolist(), zip(a[apart].tolist(), b[apart].tolist(), strict=True), strict=True):
            found.setdefault(key, []).append(edge)
        return {key: np.array(edges, dtype=np.int64) for key, edges in found.items()}

    def knows(self, src: Longs, dst: Longs) -> Bools:
        """Return which pairs are two different switches of one dragonfly."""
        a, b = self._place[src], self._place[dst]
        return np.asarray((a >= 0) & (b >= 0) & (a != b) & (self._site[a] == self._site[b]))

    def split(
        self, src: Longs, dst: Longs, amount: Floats, most: Floats | None = None, choice: Choice = "ugal"
    ) -> DetourSplit:
        """Return how pairs of switches that send at once share the links; `most` is what they would send at best."""
        a, b = self._place[src], self._place[dst]
        top = np.full(len(a), np.inf) if most is None else most
        rate = self.rate_Bps if choice == "ugal" else self._even_Bps
        ways = self._ways(a, b, choice, near=True)
        sent, level = _fill(ways, amount, top, rate, fixed=choice != "ugal")
        if choice == "ugal" and len(a) <= MAX_PAIRS and (level < top * (1 - 1e-9)).any():
            ways = self._ways(a, b, choice, near=False)
            sent, level = _fill(ways, amount, top, rate, fixed=False)
        return DetourSplit(self._on_links(ways, sent, len(a), by_rate=choice == "ugal"), level)

    def _on_links(self, ways: _Ways, sent: Floats, num: int, *, by_rate: bool) -> Paths:
        """Return a path a pair, every link of it with the share that goes over it."""
        whole = sum_by(ways.owner, sent, num)
        share = sent / np.maximum(whole[ways.owner], 1e-300)
        crossed = (ways.edges >= 0) & (share > 1e-9)[:, None]
        way, column = np.nonzero(crossed)
        key, at = np.unique(ways.owner[way] * len(self.rate_Bps) + ways.edges[way, column], return_inverse=True)
        part = sum_by(at.ravel(), share[way], len(key))
        owner, edge = key // max(len(self.rate_Bps), 1), key % max(len(self.rate_Bps), 1)
        count = np.diff(self._first)[edge]
        row = np.repeat(np.arange(len(key)), count)
        start = np.cumsum(count) - count
        link = self._row[np.arange(len(row)) - np.repeat(start - self._first[edge], count)]
        among = self.fabric.links.rate_Bps[link] / self.rate_Bps[edge[row]] if by_rate else 1.0 / count[row]
        shares = np.round(part[row] * among, 12)
        return Paths(np.searchsorted(owner[row], np.arange(num + 1)).astype(np.int64), link.astype(np.int32), shares)

    def _ways(self, a: Longs, b: Longs, choice: Choice, *, near: bool) -> _Ways:
        """Return the ways of pairs; `near`: without detours, where there is any other way."""
        owner, rank, edges = [], [], []
        most = max(8, min(MAX_DETOURS, MAX_WAYS // max(len(a), 1)))
        for number, (s, t) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
            found, kind = self._all(s, t) if not near or choice == "valiant" else self._direct(s, t)
            if not len(kind):
                found, kind = self._all(s, t)
            if choice == "valiant" and (kind == 2).any():
                found, kind = found[kind == 2], kind[kind == 2]
            elif choice == "minimal":
                found, kind = found[kind == kind.min(initial=9)], kind[kind == kind.min(initial=9)]
            if len(kind) > most + 8:
                some = _some(np.flatnonzero(kind == 2), most, number)
                kept = np.concatenate((np.flatnonzero(kind < 2), some))
                found, kind = found[kept], kind[kept]
            owner.append(np.full(len(kind), number))
            rank.append(kind)
            edges.append(found)
        if not owner:
            return _Ways(_NONE, _NONE, np.zeros((0, 5), np.int64))
        return _Ways(np.concatenate(owner), np.concatenate(rank), np.concatenate(edges))

    def _direct(self, s: int, t: int) -> tuple[Longs, Longs]:
        """Return the cable between two switches of a group, or those that join two groups, the fewest hops first."""
        g, h = int(self._group[s]), int(self._group[t])
        if g == h:
            cable = self._at[s : s + 1, t : t + 1]
            cable = cable[cable[:, 0] >= 0]
            return _padded(cable), np.zeros(len(cable), np.int64)
        cables = self._cables.get((g, h), _NONE)
        first, ok = self._local(np.full(len(cables), s), self._src[cables])
        last, fine = self._local(self._dst[cables], np.full(len(cables), t))
        kept = ok & fine
        found = np.stack((first, cables, last), axis=1)[kept]
        hops = (found >= 0).sum(axis=1)
        return _padded(found), np.where(hops == hops.min(initial=9), 0, 1)

    def _all(self, s: int, t: int) -> tuple[Longs, Longs]:
        """Return the direct ways and the detours of a pair, and the kind of each: 0 shortest, 1 direct, 2 a detour."""
        if (s, t) not in self._known:
            if len(self._known) > 2 * MAX_PAIRS:
                self._known.clear()
            direct, kind = self._direct(s, t)
            more = self._third_switch(s, t) if self._group[s] == self._group[t] else self._third_group(s, t)
            self._known[s, t] = np.concatenate((direct, more)), np.concatenate((kind, np.full(len(more), 2)))
        return self._known[s, t]

    def _third_switch(self, s: int, t: int) -> Longs:
        others = self._members[int(self._group[s])]
        others = others[(others != s) & (others != t)]
        found = np.stack((self._at[s, others], self._at[others, t]), axis=1)
        return _padded(_some(found[(found >= 0).all(axis=1)], MAX_DETOURS, s + t))

    def _third_group(self, s: int, t: int) -> Longs:
        one, two = self._hops_over(int(self._group[s]), int(self._group[t]))
        first, ok = self._local(np.full(len(one), s), self._src[one])
        middle, fine = self._local(self._dst[one], self._src[two])
        last, good = self._local(self._dst[two], np.full(len(two), t))
        return _some(np.stack((first, one, middle, two, last), axis=1)[ok & fine & good], MAX_DETOURS, s + t)

    def _hops_over(self, g: int, h: int) -> tuple[Longs, Longs]:
        """Return the global cables of all detours between two groups: to a third, and on; each as often as another."""
        if (g, h) not in self._over:
            one, two = [_NONE], [_NONE]
            for k in range(len(self._members)):
                out, back = self._cables.get((g, k), _NONE), self._cables.get((k, h), _NONE)
                if k not in (g, h) and len(out) and len(back):
                    turns = np.arange(max(len(out), len(back)))
                    one.append(out[turns % len(out)])
                    two.append(back[turns % len(back)])
            self._over[g, h] = np.concatenate(one), np.concatenate(two)
        return self._over[g, h]

    def _local(self, a: Longs, b: Longs) -> tuple[Longs, Bools]:
        """Return the edge between two switches of a group (-1: they are the same), and whether one is there."""
        found = self._at[a, b].astype(np.int64)
        same = a == b
        return np.where(same, -1, found), np.asarray(same | (found >= 0))


_NONE: Longs = np.zeros(0, np.int64)


def _padded(edges: NDArray[np.integer]) -> Longs:
    found = np.full((len(edges), 5), -1, np.int64)
    found[:, : edges.shape[1]] = edges
    return found


def _some(ways: Longs, most: int, turn: int) -> Longs:
    """Return all ways, or so many in equal steps, begun at another one for each pair."""
    if len(ways) <= most:
        return ways
    at = np.arange(most) * len(ways) // most
    return ways[(at + turn) % len(ways)]


def _fill(
    ways: _Ways, amount: Floats, most: Floats, rate_Bps: Floats, *, fixed: bool
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return what goes over each way, and the level of each pair: all grow alike until a link or their port is full.

    With `fixed` shares a pair ends with the first of its ways that is full, else with the last.
    """
    num = len(amount)
    way, column = np.nonzero(ways.edges >= 0)
    edge = ways.edges[way, column]
    room, sent, level = rate_Bps.astype(np.float64).copy(), np.zeros(len(ways.owner)), np.zeros(num)
    free, growing = np.ones(len(ways.owner), dtype=bool), amount > 0
    for step in range(10 * MAX_STEPS):
        usable = free & growing[ways.owner]
        lowest = np.full(num, 9)
        np.minimum.at(lowest, ways.owner[usable], ways.rank[usable])
        growing &= lowest < 9
        if fixed:
            growing &= np.bincount(ways.owner[~free], minlength=num) == 0
        if not growing.any():
            break
        taken = usable & growing[ways.owner] & (ways.rank == lowest[ways.owner])
        count = np.bincount(ways.owner[taken], minlength=num)
        pace = np.where(taken, amount[ways.owner] / np.maximum(count, 1)[ways.owner], 0.0)
        flow = sum_by(edge, pace[way], len(room))
        busy = flow > 0
        ahead = min(float((room[busy] / flow[busy]).min(initial=np.inf)), float((most - level)[growing].min()))
        if not np.isfinite(ahead):
            break
        if step >= MAX_STEPS or len(ways.owner) > FEW_WAYS:
            ahead = max(ahead, min(COARSE * float(level.max()), float((most - level)[growing].min())))
        sent += pace * ahead
        room -= flow * ahead
        level[growing] += ahead
        full = busy & (room <= 1e-9 * rate_Bps)
        free[way[full[edge]]] = False
        growing &= level < most * (1 - 1e-12)
    return sent, level
