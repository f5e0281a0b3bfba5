"""Which links each connection of a program crosses, under the routing that users have.

* `ecmp`      each connection keeps one of the equal-cost paths, drawn by a hash of its ends, channel and seed
* `adaptive`  a flow takes the least loaded of the equal-cost paths when it starts
* `spray`     packets go over all equal-cost paths in equal parts
* `ugal`      dragonflies: packets go the shortest way as long as it has room, then over third switches and groups too
              (`detours.py`); `adaptive` means that there, and `ugal` means `adaptive` elsewhere
* `valiant`   dragonflies: always over a third switch or group
* `static`    the path that destination and rail fix (D-mod-k): the fabric manager's table, no hash
* `auto`      what the cluster's file says (`network: {routing: ...}`; `ugal` for a dragonfly whose file says nothing),
              else what the transport does: SRD sprays

A connection is an ordered pair of devices on a channel. Between GPUs that have several NICs of their own it is striped
over them in equal parts, as NCCL's channels and plugins for several rails do. Links that are half duplex, the copy
through host memory and a transport's cost per byte become links too, so that the engine has to know nothing of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SimulationError
from syncline.fabric import Fabric
from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Tier
from syncline.fabric.route import Policy, Routes
from syncline.sim.flow.by_load import laid_by_load, only
from syncline.sim.flow.detours import Choice, detours, dragonfly_routing
from syncline.sim.flow.engine import Paths
from syncline.sim.flow.multipath import MultiPath
from syncline.sim.flow.rails import on_rails
from syncline.sim.transport import (
    AUTO,
    MessageCosts,
    Transport,
    message_costs,
    rails_apart,
    stated_routing,
    transport,
    transport_on,
)
from syncline.timeline.columns import sum_by

Routing = Literal["auto", "ecmp", "adaptive", "spray", "static", "ugal", "valiant"]
ROUTINGS: tuple[str, ...] = get_args(Routing)
FILED: dict[str, Routing] = {"ecmp": "ecmp", "adaptive": "adaptive", "spray": "spray", "static": "static",
                             "ugal": "ugal", "valiant": "valiant"}  # fmt: skip
"""What of a cluster file's `routing` the flow level knows; the others spread connections over paths, as `ecmp` does."""
_DETOURING = ("ugal", "valiant")
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NetworkOptions:
    """How the network and the hosts treat flows."""

    routing: Routing = "auto"
    seed: int = 0
    transport: str = AUTO
    gpudirect: bool | None = None
    cross_rail: Literal["fabric", "nvlink"] = "fabric"
    half_duplex: frozenset[Tier] = field(default_factory=frozenset)
    stripes: Literal["joined", "apart", "first"] = "joined"  # one path with shares, one a NIC, or the first NIC's alone

    def __post_init__(self) -> None:
        if self.routing not in ROUTINGS:
            raise SimulationError(f'no routing is called "{self.routing}".', hint=f"One of: {', '.join(ROUTINGS)}.")
        if self.cross_rail not in ("fabric", "nvlink"):
            raise SimulationError(
                f'transfers between rails cannot go over "{self.cross_rail}".', hint="--cross-rail fabric or nvlink."
            )
        if self.transport != AUTO:
            transport(self.transport)

    def carrier(self, fabric: Fabric) -> Transport:
        """Return the transport on a fabric, with the copy through host memory forced on or off."""
        found = transport(transport_on(AUTO, fabric) if self.transport == AUTO else self.transport)
        return found if self.gpudirect is None else replace(found, gpudirect=self.gpudirect)

    def on(self, fabric: Fabric) -> NetworkOptions:
        """Return the options with the routing that `auto` means on a fabric, and a way between rails that it has."""
        if self.cross_rail == "fabric" and rails_apart(fabric):
            return replace(self, cross_rail="nvlink").on(fabric)
        named = self.routing
        if named == AUTO:
            stated = stated_routing(fabric)
            own: Routing = FILED[self.carrier(fabric).routing]
            named = FILED.get(stated, "ecmp") if stated else own
        if dragonfly_routing(fabric) is None:
            named = "adaptive" if named in _DETOURING else named
        elif named == "adaptive":
            named = "ugal"
        return replace(self, routing=named)


@dataclass(frozen=True, eq=False)
class Wires:
    """Paths of connections: connection c may take paths `first[c] .. first[c] + count[c] - 1`; `latency_s` per path.

    Where `paths` leaves links out that slow nobody (detours with room), `whole` has them all, to count bytes by.
    """

    paths: Paths
    first: NDArray[np.int32]
    count: NDArray[np.int32]
    latency_s: Floats
    whole: Paths | None = None

    @property
    def counted(self) -> Paths:
        """The paths with all their links."""
        return self.paths if self.whole is None else self.whole


@dataclass(frozen=True, eq=False)
class SentTogether:
    """What connections send: the `amount` of each, and the number of the moment at which they do."""

    amount: Floats
    moment: Longs


class FlowNetwork:
    """A fabric as the flow engine sees it: link rates, and paths for connections."""

    def __init__(self, fabric: Fabric, options: NetworkOptions | None = None) -> None:
        self.fabric = fabric
        self.options = (options or NetworkOptions()).on(fabric)
        self.carrier = self.options.carrier(fabric)
        self._multi: dict[int | None, MultiPath] = {}

    def sprayed(self) -> FlowNetwork:
        """Return the same network with packets over all paths: what links carry by structure, not by a hash's luck."""
        if self.options.routing in ("spray", *_DETOURING):
            return self
        twin = FlowNetwork(self.fabric, replace(self.options, routing="spray"))
        twin.routes = self.routes
        return twin

    @cached_property
    def routes(self) -> Routes:
        """The fabric's routes."""
        return Routes(self.fabric)

    @cached_property
    def messages(self) -> MessageCosts:
        """What a message costs its sender and its card."""
        return message_costs(self.fabric, self.carrier)

    @cached_property
    def num_links(self) -> int:
        """Links of the fabric; the host links that a transport adds come after them."""
        return len(self.fabric.links)

    @cached_property
    def capacity_Bps(self) -> Floats:
        """Payload rate of every link, then of every NIC's host side in and out."""
        links = self.fabric.links
        rate = np.where(links.up, links.rate_Bps, 0.0)
        network = np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS])
        rate = np.where(network, rate * self.carrier.efficiency, rate)
        if np.isinf(self.carrier.host_Bps):
            return rate
        return np.concatenate((rate, np.full(2 * len(self.fabric.devices), self.carrier.host_Bps)))

    def link_name(self, link: int) -> str:
        """Return the name of a link, or of the host cost of a NIC."""
        if link < self.num_links:
            return self.fabric.link_name(link)
        device, inward = divmod(link - self.num_links, 2)
        return f"{self.fabric.device_name(device)} host {'receive' if inward else 'send'}"

    @property
    def by_load(self) -> bool:
        """Whether the way of a connection depends on what the others send (`SentTogether`)."""
        return self.options.routing == "ugal"

    def wire(
        self, src: Longs, dst: Longs, channel: Longs, rail: Longs | None = None, sent: SentTogether | None = None
    ) -> Wires:
        """Return the paths of connections between devices; a connection to itself crosses nothing.

        `rail` binds connections to the NICs of a rail (-1: the sender's own NIC); that goes over one path. Routing by
        load asks what is `sent` (default: all the same amount, all at once).
        """
        if len(src) == 0:
            return Wires(Paths.of([]), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))
        switch = self.fabric.devices.kind == DeviceKind.SWITCH
        bound = rail is not None and bool((rail >= 0).any())
        many = self.options.routing in ("adaptive", "spray") and not (bound or switch[src].any() or switch[dst].any())
        if self.options.routing in _DETOURING and not (switch[src].any() or switch[dst].any()):
            return self._with_detours(src, dst, channel, rail if bound else None, sent)
        found = [
            self._many_paths(src, dst, stripe)
            if many
            else self._one_path(src, dst, channel, rail if bound else None, stripe)
            for stripe in (range(self.num_stripes) if self.options.stripes != "first" else (None,))
        ]
        return self._finish(found[0] if len(found) == 1 else JOINED[self.options.stripes](found))

    @cached_property
    def num_stripes(self) -> int:
        """How many NICs carry what a GPU sends."""
        return 1 if self.options.stripes == "first" else self.routes.num_stripes

    def _one_path(self, src: Longs, dst: Longs, channel: Longs, rail: Longs | None, stripe: int | None) -> Wires:
        switch = self.fabric.devices.kind == DeviceKind.SWITCH
        if switch[src].any() or switch[dst].any():
            paths = self._with_switches(src, dst)
        else:
            static = self.options.routing == "static"
            policy: Policy = "static" if static else "ecmp"
            label = self._static_label(stripe)[dst] if static else (src * 1_000_003 + dst) * 4_099 + channel
            found = self.routes.many(
                src, dst, seed=self.options.seed, policy=policy, flow=label, cross_rail=self.options.cross_rail,
                stripe=stripe,
            )  # fmt: skip
            paths = Paths(found.start, found.links)
            if rail is not None:
                paths = on_rails(self.routes, paths, src, dst, rail, label, self.options.seed, policy)
        count = np.ones(len(src), np.int32)
        return Wires(paths, np.arange(len(src), dtype=np.int32), count, np.zeros(len(paths)))

    def _with_detours(
        self, src: Longs, dst: Longs, channel: Longs, rail: Longs | None, sent: SentTogether | None
    ) -> Wires:
        """Return connections whose ways between switches are those that a dragonfly's routing gives them."""
        one = sent or SentTogether(np.ones(len(src)), np.zeros(len(src), np.int64))
        turns: list[int | None] = [*range(self.num_stripes)] if self.options.stripes != "first" else [None]
        stripes = [self._one_path(src, dst, channel, rail, stripe) for stripe in turns]
        paths = stripes[0].paths
        for wires in stripes[1:]:
            paths = paths.then(wires.paths)
        amount, moment = np.tile(one.amount, len(turns)), np.tile(one.moment, len(turns))
        choice: Choice = "ugal" if self.by_load else "valiant"
        laid, felt = laid_by_load(detours(self.fabric), paths, amount, moment, choice)
        # The first packets, and all of a short message, meet no queue and go the shortest way: its latency counts.
        joined = JOINED[self.options.stripes]
        straight = self._finish(stripes[0] if len(stripes) == 1 else joined(stripes))
        if len(stripes) == 1:
            whole, short = (self._finish(replace(stripes[0], paths=each)).paths for each in (laid, only(laid, felt)))
            return replace(straight, paths=short, whole=whole)
        rows = np.arange(len(src))
        found = [replace(wires, paths=laid.take(rows + number * len(src))) for number, wires in enumerate(stripes)]
        return replace(straight, paths=self._finish(joined(found)).paths)

    def _static_label(self, stripe: int | None) -> Longs:
        """Return the number by which static tables spread a destination: its place at its leaf, then the leaf's."""
        own = self.routes.inside.own_nics[0]
        nic = own[:, (stripe or 0) % own.shape[1]]
        return np.where(nic >= 0, self._place_at_leaf[np.maximum(nic, 0)], self._place_at_leaf)

    @cached_property
    def _place_at_leaf(self) -> Longs:
        links, devices = self.fabric.links, self.fabric.devices
        rows = np.flatnonzero((links.tier == Tier.ACCESS) & (devices.kind[links.dst] == DeviceKind.SWITCH))
        leaf, place = _places(links.dst[rows])
        label = np.zeros(len(devices), np.int64)
        label[links.src[rows]] = place + (int(place.max(initial=0)) + 1) * leaf
        return label

    def _many_paths(self, src: Longs, dst: Longs, stripe: int | None) -> Wires:
        if stripe not in self._multi:
            self._multi[stripe] = MultiPath(self.routes, self.options.cross_rail, self.options.seed, stripe)
        multi = self._multi[stripe]
        if self.options.routing == "spray":
            paths, count = multi.sprayed(src, dst), np.ones(len(src), np.int32)
        else:
            paths, count = multi.choices(src, dst)
        first = np.concatenate(([0], np.cumsum(count)[:-1])).astype(np.int32)
        return Wires(paths, first, count, np.zeros(len(paths)))

    def _with_switches(self, src: Longs, dst: Longs) -> Paths:
        """Return paths that may begin or end at a switch (a reducing one)."""
        rows = [self._to_switch(int(a), int(b)) for a, b in zip(src, dst, strict=True)]
        return Paths.of(rows)

    def _to_switch(self, a: int, b: int) -> NDArray[np.int32]:
        kind = self.fabric.devices.kind
        if a == b:
            return np.empty(0, np.int32)
        if kind[a] == DeviceKind.SWITCH and kind[b] != DeviceKind.SWITCH:
            return (self._to_switch(b, a)[::-1] ^ 1).astype(np.int32)
        if kind[a] != DeviceKind.SWITCH and kind[b] != DeviceKind.SWITCH:
            return self.routes.path(a, b, seed=self.options.seed)
        return shortest(self.fabric, a, b)

    def _finish(self, wires: Wires) -> Wires:
        """Add host copies and host costs, join half-duplex links, and sum the latencies."""
        paths = wires.paths
        if not self.carrier.gpudirect:
            paths = self._through_hosts(paths)
        latency = np.zeros(len(paths))
        links = self.fabric.links
        parts = links.latency_s[paths.link] * (paths.shares() if len(paths.share) else 1.0)
        np.add.at(latency, paths.row_of_crossing(), parts)
        crosses = np.zeros(len(paths), dtype=bool)
        crosses[paths.row_of_crossing()[links.tier[paths.link] == Tier.ACCESS]] = True
        latency += np.where(crosses, self.carrier.message_s, 0.0)
        if not np.isinf(self.carrier.host_Bps):
            paths = self._with_host_cost(paths)
        if self.options.half_duplex:
            halved = np.isin(links.tier, [int(tier) for tier in self.options.half_duplex])
            low = np.minimum(paths.link, self.num_links - 1)
            join = halved[low] & (paths.link < self.num_links)
            paths = Paths(paths.start, np.where(join, paths.link & ~1, paths.link).astype(np.int32), paths.share)
        return Wires(paths, wires.first, wires.count, latency)

    def _through_hosts(self, paths: Paths) -> Paths:
        """Let data that leaves by a NIC climb to host memory and come down again, at both ends."""
        links, inside = self.fabric.links, self.routes.inside
        share = paths.shares()
        row = paths.row_of_crossing()
        access = np.flatnonzero(links.tier[paths.link] == Tier.ACCESS)
        extra: list[tuple[int, int, float]] = []
        for at in access.tolist():
            link = int(paths.link[at])
            outward = (
                links.dst[link] if self.fabric.devices.kind[links.src[link]] != DeviceKind.NIC else links.src[link]
            )
            top = int(inside.parent_link[outward])
            while top >= 0 and self.fabric.devices.kind[links.dst[top]] != DeviceKind.CPU:
                top = int(inside.parent_link[links.dst[top]])
            if top >= 0:
                extra.extend(((int(row[at]), top, float(share[at])), (int(row[at]), top ^ 1, float(share[at]))))
        return _with_crossings(paths, extra)

    def _with_host_cost(self, paths: Paths) -> Paths:
        links = self.fabric.links
        row, share = paths.row_of_crossing(), paths.shares()
        nic = self.fabric.devices.kind == DeviceKind.NIC
        extra: list[tuple[int, int, float]] = []
        for ends, inward in ((links.src, 0), (links.dst, 1)):
            at = np.flatnonzero(nic[ends[paths.link]] & (links.tier[paths.link] == Tier.ACCESS))
            host = self.num_links + 2 * ends[paths.link[at]] + inward
            extra.extend(zip(row[at].tolist(), host.tolist(), share[at].tolist(), strict=True))
        return _with_crossings(paths, extra)


def _join(stripes: list[Wires]) -> Wires:
    """Return connections whose every path is one of each stripe, in equal parts; stripes differ in which they take."""
    count = np.maximum.reduce([wires.count for wires in stripes])
    owner = np.repeat(np.arange(len(count)), count)
    turn = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    apart = (count // len(stripes) + 1)[owner]
    chosen = [
        wires.paths.take(wires.first[owner] + (turn + number * apart) % wires.count[owner])
        for number, wires in enumerate(stripes)
    ]
    row = np.concatenate([paths.row_of_crossing() for paths in chosen])
    link = np.concatenate([paths.link for paths in chosen]).astype(np.int64)
    width = int(link.max(initial=0)) + 1
    key, at = np.unique(row * width + link, return_inverse=True)
    share = sum_by(at.ravel(), np.concatenate([paths.shares() for paths in chosen]) / len(stripes), len(key))
    start = np.searchsorted(key // width, np.arange(len(owner) + 1)).astype(np.int64)
    first = np.concatenate(([0], np.cumsum(count)[:-1])).astype(np.int32)
    return Wires(Paths(start, (key % width).astype(np.int32), share), first, count, np.zeros(len(owner)))


def _apart(stripes: list[Wires]) -> Wires:
    """Return connections of one path a stripe, next to each other."""
    paths, num = stripes[0].paths, len(stripes[0].first)
    for wires in stripes[1:]:
        paths = paths.then(wires.paths)
    order = np.arange(len(stripes) * num).reshape(len(stripes), num).T.ravel()
    first = (np.arange(num) * len(stripes)).astype(np.int32)
    return Wires(paths.take(order), first, np.full(num, len(stripes), np.int32), np.zeros(len(order)))


JOINED = {"joined": _join, "apart": _apart}


def _places(group: NDArray[np.int32]) -> tuple[Longs, Longs]:
    """Return for each row the number of its group and its place within it."""
    _, number = np.unique(group, return_inverse=True)
    order = np.argsort(number, kind="stable")
    first = np.searchsorted(number[order], np.arange(int(number.max(initial=-1)) + 1))
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - first[number[order]]
    return number.astype(np.int64), place


def _with_crossings(paths: Paths, extra: list[tuple[int, int, float]]) -> Paths:
    if not extra:
        return paths
    row = np.concatenate((paths.row_of_crossing(), np.array([e[0] for e in extra])))
    link = np.concatenate((paths.link, np.array([e[1] for e in extra], dtype=np.int32)))
    share = np.concatenate((paths.shares(), np.array([e[2] for e in extra])))
    order = np.argsort(row, kind="stable")
    start = np.searchsorted(row[order], np.arange(len(paths) + 1)).astype(np.int64)
    return Paths(start, link[order].astype(np.int32), share[order])


def shortest(fabric: Fabric, a: int, b: int) -> NDArray[np.int32]:
    """Return a shortest path over links that are up, whatever the devices are."""
    came: dict[int, int] = {a: -1}
    edge = [a]
    while edge and b not in came:
        ahead = []
        for device in edge:
            for link in fabric.out_links(device):
                there = int(fabric.links.dst[link])
                if fabric.links.up[link] and there not in came:
                    came[there] = int(link)
                    ahead.append(there)
        edge = ahead
    if b not in came:
        raise SimulationError(f"no path joins {fabric.device_name(a)} and {fabric.device_name(b)}.")
    path = []
    while b != a:
        path.append(came[b])
        b = int(fabric.links.src[came[b]])
    return np.array(path[::-1], dtype=np.int32)
