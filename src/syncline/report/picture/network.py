"""The network of a fabric as a picture sees it: hosts and switches as vertices, cables as edges between them.

A vertex is a host (everything inside it) or a device outside hosts. `look` says what a vertex is and how it is
cabled, as one number: two vertices of equal look can be drawn as one box with a count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import FabricError
from syncline.fabric.fabric import DeviceKind, Fabric, Tier
from syncline.fabric.faults import links_of_fault
from syncline.fabric.topology.multi_plane import MultiPlane

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
OK, DEGRADED, DOWN = 0, 1, 2
HOST_LEVEL = 0
LONG_TIERS = (Tier.GROUP_GLOBAL, Tier.WAN, Tier.OPTICAL)
"""Links that join parts of a network which stand apart; they make no common box around what they join."""


@dataclass(frozen=True, eq=False)
class Cables:
    """Columns of cables (both directions together) between devices `a` and `b`.

    `lane` is the rail or plane that colours the cable, or -1; `load` the larger utilisation of its two directions.
    """

    a: Ints
    b: Ints
    tier: Ints
    medium: Ints
    rate_Bps: NDArray[np.float64]
    state: Ints
    lane: Ints
    load: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, eq=False)
class Vertices:
    """Columns of hosts (first) and outside devices; `device` is -1 for a host, `level` 0 for hosts and NVSwitches."""

    device: Ints
    kind: Ints
    level: Ints
    site: Ints
    lane: Ints
    look: Hashes

    def __len__(self) -> int:
        return len(self.device)


@dataclass(frozen=True, eq=False)
class DrawnNetwork:
    """Vertices and cables of a fabric, with the map from devices to vertices."""

    fabric: Fabric
    vertices: Vertices
    cables: Cables
    vertex_of: Ints
    lanes: str
    """What a lane is: "rail", "plane", or "" where the network has neither."""

    @cached_property
    def outside(self) -> NDArray[np.bool_]:
        """Which cables leave a host (the rest are inside one)."""
        return np.asarray(self.vertex_of[self.cables.a] != self.vertex_of[self.cables.b])

    def name(self, vertex: int) -> str:
        """Return the name of a host or outside device."""
        if vertex < self.fabric.num_hosts:
            return self.fabric.host_names[vertex]
        return self.fabric.device_name(int(self.vertices.device[vertex]))


def network_of(fabric: Fabric, link_load: ArrayLike | None = None) -> DrawnNetwork:
    """Return the hosts, switches and cables of a fabric, with what is equal marked equal."""
    devices = fabric.devices
    outer = np.flatnonzero(devices.host < 0)
    vertex_of = devices.host.astype(np.int64)
    vertex_of[outer] = fabric.num_hosts + np.arange(len(outer))
    cables = _cables(fabric, link_load)
    lane_of, lanes = _lanes(fabric, cables)
    cables = _coloured(cables, lane_of)
    hosts = np.full(fabric.num_hosts, -1)
    level = np.where(devices.kind[outer] == DeviceKind.NVSWITCH, HOST_LEVEL, devices.level[outer])
    vertices = Vertices(
        device=np.concatenate((hosts, outer)),
        kind=np.concatenate((hosts, devices.kind[outer])).astype(np.int64),
        level=np.concatenate((hosts * 0 + HOST_LEVEL, level)).astype(np.int64),
        site=np.concatenate((fabric.site_of_host, devices.site[outer])).astype(np.int64),
        lane=np.concatenate((hosts, lane_of[outer])).astype(np.int64),
        look=_looks(fabric, cables, vertex_of, lane_of),
    )
    return DrawnNetwork(fabric, vertices, cables, vertex_of, lanes)


def mix(*columns: ArrayLike) -> Hashes:
    """Return one 64-bit number per row of the columns; equal rows, equal numbers (splitmix64, column by column)."""
    mixed = np.zeros(1, np.uint64)
    for column in columns:
        values = np.atleast_1d(np.asarray(column))
        bits = values.view(np.uint64) if values.dtype == np.float64 else values.astype(np.uint64)
        mixed = (mixed ^ bits) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed


def components(count: int, a: Ints, b: Ints) -> Ints:
    """Return for each of `count` vertices the smallest vertex it is joined to by the edges a-b."""
    label = np.arange(count)
    while len(a):
        low = np.minimum(label[a], label[b])
        before = label.copy()
        np.minimum.at(label, before[a], low)
        np.minimum.at(label, before[b], low)
        label = label[label]
        if np.array_equal(label, before):
            break
    return label


def _cables(fabric: Fabric, link_load: ArrayLike | None) -> Cables:
    links = fabric.links
    load = None
    if link_load is not None:
        both = np.asarray(link_load, dtype=np.float64)
        if both.shape != (len(links),):
            raise FabricError(f"link_load has shape {both.shape}; {fabric.name} has {len(links)} links.")
        load = np.maximum(both[0::2], both[1::2])
    state = np.where(links.up[0::2] & links.up[1::2], OK, DOWN)
    for fault in fabric.spec.faults:
        if fault.rate is not None or fault.latency is not None:
            hit = links_of_fault(fabric, fault) // 2
            state[hit] = np.maximum(state[hit], DEGRADED)
    return Cables(
        a=links.src[0::2].astype(np.int64),
        b=links.dst[0::2].astype(np.int64),
        tier=links.tier[0::2].astype(np.int64),
        medium=links.medium[0::2].astype(np.int64),
        rate_Bps=np.minimum(links.rate_Bps[0::2], links.rate_Bps[1::2]),
        state=state.astype(np.int64),
        lane=np.full(len(links) // 2, -1),
        load=load,
    )


def _lanes(fabric: Fabric, cables: Cables) -> tuple[Ints, str]:
    """Return the lane of every device: its plane, or the rail of a leaf and of what only that rail's leaves reach."""
    devices = fabric.devices
    lane = np.full(len(devices), -1)
    is_switch = (devices.kind == DeviceKind.SWITCH) & (devices.level < 4)
    inner = is_switch[cables.a] & is_switch[cables.b] & ~np.isin(cables.tier, LONG_TIERS)
    spec = fabric.spec
    networks = (spec.network, *(site.network for site in spec.sites))
    if any(isinstance(network, MultiPlane) for network in networks):
        plane = components(len(devices), cables.a[inner], cables.b[inner])
        for site in np.unique(devices.site):
            mine = np.flatnonzero(is_switch & (devices.site == site))
            lane[mine] = np.searchsorted(np.unique(plane[mine]), plane[mine])
        return lane, "plane"
    rail = np.where(is_switch, devices.rail, -1)
    if not (rail >= 0).any():
        return lane, ""
    lane[:] = rail
    for level in (2, 3):
        low, high = np.full(len(devices), 1 << 30), np.full(len(devices), -1)
        for here, there in ((cables.a, cables.b), (cables.b, cables.a)):
            below = inner & (devices.level[here] == level) & (devices.level[there] == level - 1)
            np.minimum.at(low, here[below], lane[there[below]])
            np.maximum.at(high, here[below], lane[there[below]])
        lane = np.where((low == high) & (high >= 0), high, lane)
    return lane, "rail"


def _coloured(cables: Cables, lane_of: Ints) -> Cables:
    """Give a cable the lane of its ends: a NIC's is its leaf's, and switches must agree."""
    a, b = lane_of[cables.a], lane_of[cables.b]
    lane = np.where(cables.tier == Tier.ACCESS, np.maximum(a, b), np.where(a == b, a, -1))
    return replace(cables, lane=lane)


def _looks(fabric: Fabric, cables: Cables, vertex_of: Ints, lane_of: Ints) -> Hashes:
    devices = fabric.devices
    look = np.zeros(fabric.num_hosts + int((devices.host < 0).sum()), np.uint64)
    rail = np.where((devices.host < 0) & (lane_of >= 0), -1, devices.rail)  # the lane says it: a rail, or its plane
    own = mix(devices.kind, devices.part, devices.level, devices.site, rail + 1, lane_of + 1)
    np.add.at(look, vertex_of, own)
    edge = mix(cables.tier, cables.medium, cables.rate_Bps, cables.state)
    va, vb = vertex_of[cables.a], vertex_of[cables.b]
    inside = va == vb
    np.add.at(look, va[inside], mix(edge, own[cables.a], own[cables.b])[inside])
    seen = look.copy()
    np.add.at(look, va[~inside], mix(edge, seen[vb])[~inside])
    np.add.at(look, vb[~inside], mix(edge, seen[va])[~inside])
    return look
