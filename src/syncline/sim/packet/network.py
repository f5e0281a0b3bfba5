"""A fabric as the packet engine sees it: endpoints, switches, and a port for every direction of every cable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SimulationError
from syncline.fabric import Fabric
from syncline.fabric.distance import GLOBAL_HOPS, chips_forward, forwards
from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Tier
from syncline.fabric.route import RoutePaths as FabricPaths
from syncline.fabric.route import Routes
from syncline.sim.reach import joined_nodes

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
_LOOP_FACTOR = 64
"""A chip that forwards hands its own packets to its router at this multiple of its links' rate."""


@dataclass(frozen=True, eq=False)
class PacketNetwork:
    """Columns of ports. An end that is a switch s is s, an endpoint e is -1 - e.

    `link` is the fabric's link of each port (-1: the inner port of a chip), `port_of_link` the other way round.
    """

    fabric: Fabric
    src: Ints
    dst: Ints
    rate_Bps: Floats
    latency_ps: Longs
    hops: NDArray[np.uint8]
    back: Ints
    link: Longs
    port_of_link: Longs
    endpoints: Ints
    switches: Ints
    endpoint_of: Longs

    @property
    def num_ports(self) -> int:
        """Count the ports, of endpoints and switches."""
        return len(self.src)

    @cached_property
    def routes(self) -> Routes:
        """The fabric's own routes, which say through which NIC a GPU sends."""
        return Routes(self.fabric)

    @cached_property
    def access_port(self) -> Ints:
        """The first port of each endpoint."""
        first = np.full(len(self.endpoints), -1, np.int32)
        own = np.flatnonzero(self.src < 0)[::-1]
        first[-1 - self.src[own]] = own
        return first

    @cached_property
    def access_Bps(self) -> float:
        """The rate of the fastest port of an endpoint; thresholds and windows are scaled with it."""
        own = self.src < 0
        if not own.any():
            raise SimulationError(f"{self.fabric.name} has no network: no NIC is cabled to a switch.")
        if chips_forward(self.fabric):
            return float(self.rate_Bps[~own & (self.dst >= 0)].max())
        return float(self.rate_Bps[own].max())

    def port_name(self, port: int) -> str:
        """Return the name of a port: that of its link."""
        link = int(self.link[port])
        if link >= 0:
            return self.fabric.link_name(link)
        end = int(self.src[port] if self.src[port] < 0 else self.dst[port])
        return f"{self.fabric.device_name(int(self.endpoints[-1 - end]))} inside"

    @cached_property
    def num_hops(self) -> int:
        """The links of the longest way among some far pairs."""
        return int(np.diff(self._far_paths.start).max(initial=1))

    def rtt_s(self, payload_bytes: int) -> float:
        """Return the longest base round trip among some far pairs: latencies both ways and a packet at every hop."""
        paths, links = self._far_paths, self.fabric.links
        if len(paths) == 0:
            return 1e-6
        row = np.repeat(np.arange(len(paths)), np.diff(paths.start))
        each = 2 * links.latency_s[paths.links] + (payload_bytes + 80 + 64) / links.rate_Bps[paths.links]
        return float(np.bincount(row, weights=each).max(initial=1e-7))

    def alone_s(
        self, ports: NDArray[np.integer], size_bytes: int, payload_bytes: int, header_bytes: int, cap_Bps: float = 0.0
    ) -> float:
        """Return a message's time on an empty path: latencies, its bytes, a packet for each further hop."""
        rate = self.rate_Bps[ports]
        slowest = float(rate.min())
        one = min(size_bytes, payload_bytes) + header_bytes
        through = float((one / rate).sum()) - one / slowest
        whole = size_bytes + -(-size_bytes // payload_bytes) * header_bytes
        return float(self.latency_ps[ports].sum()) / 1e12 + through + whole / min(slowest, cap_Bps or slowest)

    @cached_property
    def _far_paths(self) -> FabricPaths:
        """Paths between endpoints from all over the fabric and of every site, no two of one host."""
        _, sites = np.unique(self.fabric.devices.site[self.endpoints], return_index=True)
        pick = np.union1d(np.linspace(0, len(self.endpoints) - 1, 24).astype(int), sites)
        a, b = (self.endpoints[grid.ravel()] for grid in np.meshgrid(pick, pick))
        host = self.fabric.devices.host
        apart = (a != b) & self._reachable(a, b)
        if not chips_forward(self.fabric):
            apart &= host[a] != host[b]
        return self.routes.many(a[apart], b[apart])

    def _reachable(self, a: Ints, b: Ints) -> NDArray[np.bool_]:
        """Say which pairs the network joins: rails and planes may be apart."""
        island = self.island
        same: NDArray[np.bool_] = island[self.endpoint_of[a]] == island[self.endpoint_of[b]]
        return same

    @cached_property
    def island(self) -> Longs:
        """A number for each endpoint; endpoints that can reach each other have the same."""
        total = len(self.switches) + len(self.endpoints)
        ends = [
            np.where(end >= 0, end, len(self.switches) + (-1 - end)).astype(np.int64) for end in (self.src, self.dst)
        ]
        return joined_nodes(ends[0], ends[1], total)[len(self.switches) :]


def packet_network(fabric: Fabric) -> PacketNetwork:
    """Return the network of a fabric: what joins NICs (or chips that forward) over links that are up."""
    links, devices = fabric.links, fabric.devices
    passes = forwards(fabric)
    chips = chips_forward(fabric)
    usable = links.up & np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS])
    if chips:
        usable |= links.up & (links.tier == Tier.SCALE_UP) & passes[links.src] & passes[links.dst]
    kept = np.flatnonzero(usable & usable[np.arange(len(links)) ^ 1])
    if chips:
        kept = kept[passes[links.src[kept]] & passes[links.dst[kept]]]
    order = kept[np.argsort(links.src[kept], kind="stable")]
    switches = np.flatnonzero(passes).astype(np.int32)
    if chips:
        endpoints = fabric.gpus
    else:
        ends = np.zeros(len(devices), bool)
        ends[links.src[order]] = True
        endpoints = np.flatnonzero(ends & ~passes).astype(np.int32)
    switch_of = _numbers(switches, len(devices))
    endpoint_of = _numbers(endpoints, len(devices))
    port_of_link = _numbers(order, len(links))
    src = np.where(passes[links.src[order]], switch_of[links.src[order]], -1 - endpoint_of[links.src[order]])
    dst = np.where(passes[links.dst[order]], switch_of[links.dst[order]], -1 - endpoint_of[links.dst[order]])
    into = _into_hosts_Bps(fabric)
    rate = np.minimum(links.rate_Bps[order], np.minimum(into[links.src[order]], into[links.dst[order]]))
    latency = np.round(links.latency_s[order] * 1e12).astype(np.int64)
    hops = np.where(links.tier[order] == Tier.GROUP_GLOBAL, GLOBAL_HOPS, 1)
    back, link = port_of_link[order ^ 1], order.astype(np.int64)
    if chips:
        own = np.arange(len(endpoints))
        inner = np.full(len(endpoints), float(rate.max()) * _LOOP_FACTOR)
        here = switch_of[endpoints]
        first = len(order)
        src = np.concatenate((src, -1 - own, here))
        dst = np.concatenate((dst, here, -1 - own))
        rate = np.concatenate((rate, inner, inner))
        latency = np.concatenate((latency, np.zeros(2 * len(own), np.int64)))
        hops = np.concatenate((hops, np.ones(2 * len(own), hops.dtype)))
        back = np.concatenate((back, first + len(own) + own, first + own))
        link = np.concatenate((link, np.full(2 * len(own), -1)))
    return PacketNetwork(
        fabric,
        src.astype(np.int32),
        dst.astype(np.int32),
        np.ascontiguousarray(rate, np.float64),
        latency,
        hops.astype(np.uint8),
        back.astype(np.int32),
        link,
        port_of_link,
        endpoints,
        switches,
        endpoint_of,
    )


def _into_hosts_Bps(fabric: Fabric) -> Floats:
    """Return what each port of a NIC can pass on to its host and take from it; infinite for other devices."""
    links, nic = fabric.links, fabric.devices.kind == DeviceKind.NIC
    inner = (links.tier == Tier.PCIE) & links.up & nic[links.src]
    outer = np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS]) & nic[links.src]
    has = np.bincount(links.src[inner], weights=links.rate_Bps[inner], minlength=len(nic))
    ports = np.bincount(links.src[outer], minlength=len(nic))
    return np.where(has > 0, has / np.maximum(ports, 1), np.inf)


def _numbers(ids: NDArray[np.integer], size: int) -> Longs:
    found = np.full(size, -1, np.int64)
    found[ids] = np.arange(len(ids))
    return found
