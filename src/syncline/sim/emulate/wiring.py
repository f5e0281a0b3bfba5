"""The wiring of a described cluster as the model of shaped links sees it."""

from __future__ import annotations

import numpy as np

from syncline.program import Placement
from syncline.sim.emulate.emulation import HostLinks
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions


def wiring_of_fabric(placement: Placement) -> HostLinks:
    """Return the wiring of a described cluster: rates and latencies of its links, static paths between hosts."""
    fabric = placement.fabric
    network = FlowNetwork(fabric, NetworkOptions(routing="static", transport="ideal", stripes="first"))
    hosts, first = np.unique(placement.host, return_index=True)
    device = placement.device[first].astype(np.int64)
    pairs = [(a, b) for a in range(len(hosts)) for b in range(len(hosts)) if a != b]
    src, dst = (device[[pair[end] for pair in pairs]] for end in (0, 1))
    wires = network.wire(src, dst, np.zeros(len(pairs), dtype=np.int64))
    path = {pair: wires.paths.row(int(wires.first[i])).tolist() for i, pair in enumerate(pairs)}
    number = {int(host): i for i, host in enumerate(hosts)}
    delay = np.zeros(len(network.capacity_Bps))
    delay[: len(fabric.links)] = fabric.links.latency_s
    names = [network.link_name(link) for link in range(len(network.capacity_Bps))]
    rate = np.where(network.capacity_Bps > 0, network.capacity_Bps, 1.0)
    return HostLinks.of(rate, path, [number[int(host)] for host in placement.host], names=names, delay_s=delay)
