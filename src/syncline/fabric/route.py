"""Routes between devices: which links a transfer crosses.

Two GPUs of one scale-up domain talk over it. GPUs of one host without scale-up go over PCIe. GPUs of different hosts
go GPU - NIC - network - NIC - GPU; the network may be a cable from NIC to NIC. Through switches a path is one of the
shortest; a policy picks which:

* `ecmp`: each hop picks among equal ones by a hash of the flow (both ends and its number) and the seed, as switches do;
* `first`: always the first (dimension order in a torus);
* `static`: by the digits of the flow number, as a fabric manager's table by destination (D-mod-k) does;
* `valiant`: shortest to a random switch of another group, and shortest from there.

    routes = Routes(fabric)
    routes.path(fabric.gpu(0, 0), fabric.gpu(9, 0))      # link ids
    routes.many(sources, targets, seed=7)                 # one compressed row per flow
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import RouteError
from syncline.fabric.distance import GLOBAL_HOPS, UNREACHABLE, Distances, chips_forward, distances, forwards
from syncline.fabric.fabric import DeviceKind, Fabric, IntArray, LongArray, Tier
from syncline.fabric.inside import Inside

Policy = Literal["ecmp", "first", "static", "valiant"]
CrossRail = Literal["fabric", "nvlink"]
_FLOW_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class RoutePaths:
    """Paths of many flows as compressed rows: flow f crosses `links[start[f]:start[f + 1]]`, in order."""

    start: NDArray[np.int64]
    links: IntArray

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, flow: int) -> IntArray:
        return self.links[self.start[flow] : self.start[flow + 1]]


class Routes:
    """All routes of one fabric; what is costly is computed once, on first use."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric

    @cached_property
    def distances(self) -> Distances:
        """Hop counts in the network."""
        return distances(self.fabric)

    @cached_property
    def inside(self) -> Inside:
        """Routes inside hosts."""
        return Inside(self.fabric)

    @cached_property
    def num_stripes(self) -> int:
        """Over how many ports a GPU's traffic is striped: those of all NICs that it has to itself."""
        return self.inside.num_stripes * self._num_ports

    @cached_property
    def _num_ports(self) -> int:
        """The most ports of a NIC that are up; planes and pairs of leaves give it several."""
        start, nics = self._access_rows[0], self.fabric.nics
        return int((start[nics + 1] - start[nics]).max(initial=1)) or 1

    @cached_property
    def _forwards(self) -> NDArray[np.bool_]:
        return forwards(self.fabric)

    def path(
        self,
        src: int,
        dst: int,
        *,
        seed: int = 0,
        policy: Policy = "ecmp",
        cross_rail: CrossRail = "fabric",
        flow: int = 0,
    ) -> IntArray:
        """Return the links from one GPU or NIC to another; the same as in `many`."""
        return self.many([src], [dst], seed=seed, policy=policy, cross_rail=cross_rail, flow=[flow])[0]

    def paths(
        self,
        src: int,
        dst: int,
        *,
        limit: int = 1024,
        cross_rail: CrossRail = "fabric",
        stripe: int | None = None,
    ) -> list[IntArray]:
        """Return all equal-cost paths between two GPUs or NICs over the NICs of a stripe, at most `limit`."""
        a, b = np.array([src]), np.array([dst])
        self._check_ends(a, b)
        head, tail, ends = self._ends(a, b, cross_rail, stripe)
        fixed_head, fixed_tail = head[0][head[0] >= 0], tail[0][tail[0] >= 0]
        if ends[0, 0] < 0:
            return [np.concatenate((fixed_head, fixed_tail)).astype(np.int32)]
        middles = self._all_network_paths(int(ends[0, 0]), int(ends[0, 1]), limit, self._turn(stripe))
        return [np.concatenate((fixed_head, middle, fixed_tail)).astype(np.int32) for middle in middles]

    def many(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        *,
        seed: int = 0,
        policy: Policy = "ecmp",
        cross_rail: CrossRail = "fabric",
        flow: ArrayLike | None = None,
        stripe: int | None = None,
    ) -> RoutePaths:
        """Return one path per pair of GPUs (or NICs); `flow` numbers (default 0) tell flows of one pair apart.

        A path depends on its own ends, flow number and the seed only, not on the other pairs. Where GPUs have several
        ports of their own (`num_stripes`), `stripe` says which; without, it is the first NIC and a port by hash.
        """
        a, b = np.asarray(src, np.int64), np.asarray(dst, np.int64)
        self._check_ends(a, b)
        number = np.broadcast_to(np.asarray(0 if flow is None else flow, np.int64), a.shape)
        labels = number
        if policy != "static":
            labels = _hash(a * len(self.fabric.devices) + b, 0, stripe or 0, number).view(np.int64)
        blocks = [
            self._block(
                a[i : i + _FLOW_BLOCK],
                b[i : i + _FLOW_BLOCK],
                labels[i : i + _FLOW_BLOCK],
                seed,
                policy,
                cross_rail,
                stripe,
            )
            for i in range(0, max(1, len(a)), _FLOW_BLOCK)
        ]
        lengths = np.concatenate([lengths for lengths, _ in blocks])
        links = np.concatenate([flat for _, flat in blocks]) if len(a) else np.zeros(0, np.int32)
        return RoutePaths(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), links.astype(np.int32))

    def _check_ends(self, a: LongArray, b: LongArray) -> None:
        kinds = self.fabric.devices.kind
        wrong = [ends[(kinds[ends] != DeviceKind.GPU) & (kinds[ends] != DeviceKind.NIC)] for ends in (a, b)]
        for device in np.concatenate(wrong)[:1].tolist():
            raise RouteError(
                f'"{self.fabric.device_name(device)}" is neither a GPU nor a NIC.',
                hint=f'Routes join GPUs and NICs, such as "{self.fabric.device_name(int(self.fabric.gpus[0]))}".',
            )

    def _block(
        self, a: LongArray, b: LongArray, labels: LongArray, seed: int, policy: Policy, cross_rail: CrossRail,
        stripe: int | None,
    ) -> tuple[LongArray, LongArray]:  # fmt: skip
        head, tail, ends = self._ends(a, b, cross_rail, stripe)
        crossing = np.flatnonzero(ends[:, 0] >= 0)
        middle = np.full((len(a), 0), -1, np.int64)
        if len(crossing):
            near, far = ends[crossing, 0], ends[crossing, 1]
            walked = self._network(near, far, labels[crossing], seed, policy, self._turn(stripe))
            middle = np.full((len(a), walked.shape[1]), -1, np.int64)
            middle[crossing] = walked
        padded: LongArray = np.concatenate((head, middle, tail), axis=1)
        return (padded >= 0).sum(axis=1), padded[padded >= 0]

    def _ends(
        self, a: LongArray, b: LongArray, cross_rail: CrossRail, stripe: int | None
    ) -> tuple[LongArray, LongArray, LongArray]:
        """Return links before the network, links after it, and the two devices it joins (-1: network not used)."""
        count = len(a)
        ends = np.full((count, 2), -1, np.int64)
        empty = np.full((count, 1), -1, np.int64)
        if chips_forward(self.fabric):
            kinds = self.fabric.devices.kind
            if ((kinds[a] == DeviceKind.GPU) & (kinds[b] == DeviceKind.GPU)).all():
                ends[:, 0], ends[:, 1] = a, b
                return empty, empty, ends
        direct = self.inside.direct(a, b)
        apart = direct[:, 0] < 0
        apart &= a != b
        if not apart.any():
            return direct, empty, ends
        head, tail, nics = self.inside.to_nics(a[apart], b[apart], cross_rail, (stripe or 0) % self.inside.num_stripes)
        width = max(direct.shape[1], head.shape[1])
        heads = np.full((count, width), -1, np.int64)
        heads[:, : direct.shape[1]] = direct
        heads[apart, : head.shape[1]] = head
        tails = np.full((count, tail.shape[1]), -1, np.int64)
        tails[apart] = tail
        ends[apart] = nics
        return heads, tails, ends

    def _turn(self, stripe: int | None) -> int | None:
        """Return which of a NIC's ports carries a stripe; None: any, by hash."""
        return None if stripe is None or self._num_ports == 1 else stripe // self.inside.num_stripes

    def _network(
        self, a: LongArray, b: LongArray, labels: LongArray, seed: int, policy: Policy, turn: int | None
    ) -> LongArray:
        """Return padded network paths between forwarders or NICs: over a cable between the two, else by switches."""
        order = np.zeros(len(a), np.uint64) if policy == "first" else _hash(labels, seed, 0)
        cable = self.inside.direct_cables.pick(a, b, order)
        rest = np.flatnonzero(cable < 0)
        if len(rest) == len(a):
            return self._switched(a, b, labels, seed, policy, turn)
        walked = self._switched(a[rest], b[rest], labels[rest], seed, policy, turn) if len(rest) else cable[:0, None]
        paths = np.full((len(a), walked.shape[1]), -1, np.int64)
        paths[:, 0] = cable
        paths[rest] = walked
        return paths

    def _switched(
        self, a: LongArray, b: LongArray, labels: LongArray, seed: int, policy: Policy, turn: int | None
    ) -> LongArray:
        """Return padded paths from forwarder to forwarder, with the access links of NICs at both ends."""
        first, last, src, dst = self._access(a, b, labels, seed, policy, turn)
        if policy == "valiant":
            there = self._random_targets(src, dst, labels, seed)
            one = self._walk(src, there, labels, seed, "ecmp")
            two = self._walk(there, dst, labels, seed + 1, "ecmp")
            return np.concatenate((first[:, None], one, two, last[:, None]), axis=1)
        return np.concatenate((first[:, None], self._walk(src, dst, labels, seed, policy), last[:, None]), axis=1)

    def _access(
        self, a: LongArray, b: LongArray, labels: LongArray, seed: int, policy: Policy, turn: int | None
    ) -> tuple[LongArray, ...]:
        """Pick the access links: of all pairs of ports, one with the shortest way between (planes never mix)."""
        none = np.full(len(a), -1, np.int64)
        if self._forwards[a].all() and self._forwards[b].all():
            return none, none, a, b
        up, down = self._access_links(a, True), self._access_links(b, False)
        links, d = self.fabric.links, self.distances
        if len(d.targets) == 0:  # every access link is down
            raise self._no_route(int(a[0]), int(b[0]))
        src = np.where(up >= 0, links.dst[up], -1).astype(np.int64)
        dst = np.where(down >= 0, links.src[down], -1).astype(np.int64)
        hops = d.hops[d.forwarder[src][:, :, None], d.target[dst][:, None, :]].astype(np.int64)
        hops[(src < 0)[:, :, None] | (dst < 0)[:, None, :]] = UNREACHABLE
        flat = hops.reshape(len(a), -1)
        best = flat.min(axis=1)
        if (best >= UNREACHABLE).any():
            bad = int(np.argmax(best >= UNREACHABLE))
            raise self._no_route(int(a[bad]), int(b[bad]))
        order = np.zeros(len(a), np.uint64) if policy == "first" else _hash(labels, seed, 0)
        if turn is not None:  # of equal pairs of ports, another for each turn
            count = (flat == best[:, None]).sum(axis=1)
            further = turn * (count // self._num_ports + (count > self._num_ports))
            order = _hash(a * len(self.fabric.devices) + b, seed, 0) + further.astype(np.uint64)
        pick = _nth_true(flat == best[:, None], order)
        i, j = pick // down.shape[1], pick % down.shape[1]
        rows = np.arange(len(a))
        return up[rows, i], down[rows, j], src[rows, i], dst[rows, j]

    def _access_links(self, nics: LongArray, outward: bool) -> LongArray:
        start, links = self._access_rows
        width = max(1, int((start[nics + 1] - start[nics]).max()))
        if len(links) == 0:
            return np.full((len(nics), width), -1, np.int64)
        slot = start[nics][:, None] + np.arange(width)
        padded = np.where(slot < start[nics + 1][:, None], links[np.minimum(slot, len(links) - 1)], -1).astype(np.int64)
        return padded if outward else np.where(padded >= 0, padded ^ 1, -1)

    @cached_property
    def _access_rows(self) -> tuple[LongArray, IntArray]:
        """Links from each endpoint into the network, as compressed rows by device."""
        links, mask = self.fabric.links, self._forwards
        rows = np.flatnonzero(links.up & mask[links.dst] & ~mask[links.src] & (links.tier >= Tier.ACCESS))
        order = rows[np.argsort(links.src[rows], kind="stable")]
        counts = np.bincount(links.src[order], minlength=len(self.fabric.devices))
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), order.astype(np.int32)

    def _walk(self, src: LongArray, dst: LongArray, labels: LongArray, seed: int, policy: Policy) -> LongArray:
        """Step all flows from switch to switch; returns padded link ids."""
        d, links = self.distances, self.fabric.links
        at, goal = d.forwarder[src].astype(np.int64), d.target[dst].astype(np.int64)
        columns: list[LongArray] = []
        digits = labels.astype(np.uint64)
        lost = d.hops[at, goal] >= UNREACHABLE
        if lost.any():
            raise self._no_route(int(src[np.argmax(lost)]), int(dst[np.argmax(lost)]))
        active = np.flatnonzero(d.hops[at, goal] > 0)
        for hop in range(1, 1 + int(d.hops[at, goal].max(initial=0))):  # each hop comes nearer by one or more
            if len(active) == 0:
                break
            here, there = at[active], goal[active]
            link = self._choices(here, there)
            wanted = link >= 0
            if policy == "static":
                order = digits[active]
                digits[active] //= _num_distinct(np.where(wanted, links.dst[link], -1))
            elif policy == "first":
                order = np.zeros(len(active), np.uint64)
            else:
                order = _hash(labels[active], seed, hop, here)
            chosen = link[np.arange(len(active)), _nth_true(wanted, order)]
            column = np.full(len(src), -1, np.int64)
            column[active] = chosen
            columns.append(column)
            at[active] = d.forwarder[links.dst[chosen]]
            active = active[d.hops[at[active], goal[active]] > 0]
        assert len(active) == 0, "a walk took more hops than the distance to its target"
        return np.stack(columns, axis=1) if columns else np.full((len(src), 0), -1, np.int64)

    def _choices(self, here: LongArray, there: LongArray) -> LongArray:
        """Return for each flow its candidate next links on shortest paths, padded with -1."""
        d, links = self.distances, self.fabric.links
        degree = d.start[here + 1] - d.start[here]
        slot = d.start[here][:, None] + np.arange(int(degree.max()))
        valid = slot < d.start[here + 1][:, None]
        link = d.link[np.minimum(slot, len(d.link) - 1)]
        after = d.hops[d.forwarder[links.dst[link]], there[:, None]].astype(np.int64)
        cost = d.hops[here, there][:, None] - after
        weight = np.where(links.tier[link] == Tier.GROUP_GLOBAL, GLOBAL_HOPS, 1)
        return np.where(valid & (cost == weight), link, -1).astype(np.int64)

    def _random_targets(self, src: LongArray, dst: LongArray, labels: LongArray, seed: int) -> LongArray:
        """Pick an intermediate switch for each flow: in another group than both ends, where one can be reached."""
        order, island, region, island_of, region_of = self._regions
        low, high = np.searchsorted(island, island_of[src]), np.searchsorted(island, island_of[src], "right")
        one, two = np.minimum(region_of[src], region_of[dst]), np.maximum(region_of[src], region_of[dst])
        one_start, one_end = np.searchsorted(region, one), np.searchsorted(region, one, "right")
        two_start, two_end = np.searchsorted(region, two), np.searchsorted(region, two, "right")
        two_size = np.where(one == two, 0, two_end - two_start)
        free = high - low - (one_end - one_start) - two_size
        none_free = free < 1
        draw = (_hash(labels, seed, 99) % np.where(none_free, high - low, free).astype(np.uint64)).astype(np.int64)
        # The draw counts the switches that are neither in the one group nor in the other: step over both.
        place = low + draw
        place += np.where(~none_free & (place >= one_start), one_end - one_start, 0)
        place += np.where(~none_free & (place >= two_start), two_size, 0)
        chosen: LongArray = order[place]
        return chosen

    @cached_property
    def _regions(self) -> tuple[LongArray, ...]:
        """Targets sorted by region, the island and region of each in that order, and those of every device.

        Forwarders that can reach each other form an island (a rail, a plane); a region is one group on one island.
        """
        d, devices = self.distances, self.fabric.devices
        island_of = np.full(len(devices), -1, np.int64)
        island_of[d.forwarders] = np.argmax(d.hops < UNREACHABLE, axis=1)
        group = devices.site.astype(np.int64) * (int(devices.group.max()) + 1) + devices.group
        region_of = island_of * (int(group.max()) + 1) + group
        order = d.targets[np.argsort(region_of[d.targets], kind="stable")].astype(np.int64)
        return order, island_of[order], region_of[order], island_of, region_of

    def _all_network_paths(self, a: int, b: int, limit: int, turn: int | None) -> list[IntArray]:
        if len(cables := self.inside.direct_cables.between(a, b)):
            return [np.array([cable], np.int32) for cable in cables[:limit]]
        d, links = self.distances, self.fabric.links
        if self._forwards[a] and self._forwards[b]:
            if d.hops[d.forwarder[a], d.target[b]] >= UNREACHABLE:
                raise self._no_route(a, b)
            return [np.array(walk, np.int32) for walk in self._all_walks(a, b, limit)]
        up, down = self._access_links(np.array([a]), True)[0], self._access_links(np.array([b]), False)[0]
        pairs = [(int(i), int(j)) for i in up for j in down if i >= 0 and j >= 0]
        cost = {p: int(d.hops[d.forwarder[links.dst[p[0]]], d.target[links.src[p[1]]]]) for p in pairs}
        best = min(cost.values(), default=UNREACHABLE)
        if best >= UNREACHABLE:
            raise self._no_route(a, b)
        paths: list[IntArray] = []
        near = [pair for pair in pairs if cost[pair] == best]
        mine = [pair for pair in near if turn is None or int(np.flatnonzero(up == pair[0])[0]) == turn] or near
        for first, last in mine:
            goal = int(links.src[last])
            middles = self._all_walks(int(links.dst[first]), goal, limit - len(paths))
            paths.extend(np.array([first, *middle, last], np.int32) for middle in middles)
        return paths

    def _all_walks(self, src: int, dst: int, limit: int) -> list[list[int]]:
        d = self.distances
        most = int(d.hops[d.forwarder[src], d.target[dst]])
        stack: list[tuple[int, list[int]]] = [(src, [])]
        done: list[list[int]] = []
        while stack and len(done) < limit:
            here, path = stack.pop()
            if here == dst:
                done.append(path)
                continue
            assert len(path) < most, "a walk took more hops than the distance to its target"
            choices = self._choices(np.array([d.forwarder[here]]), np.array([d.target[dst]]))[0]
            stack.extend((int(self.fabric.links.dst[c]), [*path, int(c)]) for c in choices[::-1] if c >= 0)
        return done

    def _no_route(self, a: int, b: int) -> RouteError:
        names = f"{self.fabric.device_name(a)} and {self.fabric.device_name(b)}"
        return RouteError(
            f"no path in the network of {self.fabric.name} joins {names}.",
            hint="On a rail-only network use cross_rail=nvlink; otherwise look for links that are down. "
            "A host passes nothing on for others.",
        )


def _hash(labels: ArrayLike, seed: int, hop: int, place: ArrayLike = 0) -> NDArray[np.uint64]:
    """Mix flow, seed, hop and switch into 64 well-spread bits (splitmix64 finaliser)."""
    with np.errstate(over="ignore"):
        x = np.asarray(labels, np.int64).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = x + np.uint64((seed * 0xD1B54A32D192ED03 + hop * 0x8CB92BA72F3D8DD7) % 2**64)
        x = x ^ (np.asarray(place, np.int64).astype(np.uint64) * np.uint64(0xA24BAED4963EE407))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
        return mixed


def _nth_true(mask: NDArray[np.bool_], order: NDArray[np.uint64]) -> LongArray:
    """Return for each row the column of its (order mod count)-th true value."""
    count = mask.sum(axis=1)
    wanted = (order % np.maximum(count, 1).astype(np.uint64)).astype(np.int64)
    reached = np.cumsum(mask, axis=1) > wanted[:, None]
    first: LongArray = np.argmax(reached & mask, axis=1).astype(np.int64)
    return first


def _num_distinct(padded: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return how many different values, other than -1, each row has (at least 1)."""
    ordered = np.sort(padded, axis=1)
    fresh = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    count: NDArray[np.uint64] = np.maximum(fresh.sum(axis=1) + (ordered[:, 0] >= 0), 1).astype(np.uint64)
    return count
