"""Bisection bandwidth, computed: the largest flow from one half of the endpoints to the other.

Finding the worst of all halvings is intractable, so several natural ones are tried (in order, by alternating racks,
along every dimension of a torus, by group) and the smallest result is reported with the halving that gave it. For
the regular fabrics built here one of them is the true minimum; for an arbitrary graph the figure is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.fabric.distance import chips_forward
from syncline.fabric.fabric import DeviceKind, Fabric, IntArray, Tier
from syncline.fabric.fold import fold
from syncline.fabric.topology.torus import Torus


@dataclass(frozen=True)
class Bisection:
    """One-directional bandwidth between two halves, and how the halves were chosen."""

    rate_Bps: float
    split: str
    num_endpoints: int


def bisection(fabric: Fabric) -> Bisection:
    """Return the smallest bandwidth between two halves of the endpoints, over the halvings tried."""
    endpoints = _endpoints(fabric)
    if len(endpoints) < 2:
        return Bisection(0.0, "one endpoint", len(endpoints))
    flows = {name: _flow(fabric, endpoints, half) for name, half in _halvings(fabric, endpoints)}
    split = min(flows, key=lambda name: flows[name])
    return Bisection(float(flows[split]), split, len(endpoints))


def _endpoints(fabric: Fabric) -> IntArray:
    """NICs where a network joins them; otherwise the accelerators themselves."""
    links = fabric.links
    wired = links.src[(links.tier >= Tier.ACCESS) & (fabric.devices.kind[links.src] == DeviceKind.NIC)]
    if len(wired) and not chips_forward(fabric):
        return np.unique(wired).astype(np.int32)
    return fabric.gpus


def _halvings(fabric: Fabric, endpoints: IntArray) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    host = fabric.devices.host[endpoints]
    num_hosts = fabric.num_hosts
    if num_hosts == 1:
        yield "first half of the devices", np.arange(len(endpoints)) < len(endpoints) // 2
        return
    if chips_forward(fabric):
        yield from _torus_halvings(fabric, endpoints)
        return
    yield "first half of the hosts", host < num_hosts // 2
    racks = fabric.rack_of_host
    if 2 < len(np.unique(racks)) < num_hosts:
        alternate = racks % 2 == 0
        if 2 * alternate.sum() == num_hosts:
            yield "alternate racks", alternate[host]
    if num_hosts % 2 == 0:
        yield "alternate hosts", host % 2 == 0
    if isinstance(fabric.spec.network, Torus):
        place = np.stack(np.unravel_index(np.arange(num_hosts), fabric.spec.network.shape))
        inside = np.flatnonzero(fabric.devices.host >= 0)
        whose = np.full(len(fabric.devices), -1, np.int64)
        whose[inside] = fabric.devices.host[inside]
        links = fabric.links  # a router has the place of the host it serves
        access = (links.tier == Tier.ACCESS) & (fabric.devices.host[links.src] >= 0)
        whose[links.dst[access]] = fabric.devices.host[links.src[access]]
        for name, half in _across(fabric, fabric.spec.network, place, whose):
            yield name, half[host]


def _torus_halvings(fabric: Fabric, endpoints: IntArray) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    network = fabric.spec.network
    assert isinstance(network, Torus)
    place = np.stack(np.unravel_index(network.places(), network.shape))
    whose = np.full(len(fabric.devices), -1, np.int64)
    whose[endpoints] = np.arange(len(endpoints))
    yield from _across(fabric, network, place, whose)


def _across(
    fabric: Fabric, network: Torus, place: NDArray[np.int64], whose: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield halvings of a torus's places across each dimension.

    A ring can be cut at any place, and all cuts of a healthy one are alike. Where something failed, the cut with least
    left is the one that counts, wherever the failure is: of equally broken tori none is better than another.
    """
    links = fabric.links
    a, b = whose[links.src], whose[links.dst]
    joins = np.flatnonzero(links.up & (a >= 0) & (b >= 0) & (a != b))
    for axis, length in enumerate(network.shape):
        if length < 2:
            continue
        turns = range(length if length % 2 else length // 2) if network.wrap and length > 2 else range(1)
        halves = [(place[axis] - turn) % length < length // 2 for turn in turns]
        crossing = [(half[a[joins]] & ~half[b[joins]]) for half in halves]
        left = np.array([round(float(links.rate_Bps[joins][cut].sum())) for cut in crossing])
        least = [0] if (left == left[0]).all() else np.flatnonzero(left == left.min()).tolist()
        for turn in least:
            yield f"across dimension {axis}" + (f", from place {turn}" if turn else ""), halves[turn]


def _flow(fabric: Fabric, endpoints: IntArray, half: NDArray[np.bool_]) -> int:
    """Return the maximum flow from one half to the other, on the folded network."""
    import networkx as nx  # its import takes longer than most answers, and few need it

    devices, links = fabric.devices, fabric.links
    colour = np.full(len(devices), -1, np.int64)
    switching = (devices.kind == DeviceKind.SWITCH) | (devices.kind == DeviceKind.NVSWITCH)
    colour[switching] = 2 + devices.level[switching]
    colour[endpoints] = np.where(half, 0, 1)
    scale_up = bool((devices.kind[endpoints] == DeviceKind.GPU).any())
    tiers = (links.tier >= Tier.ACCESS) | ((links.tier == Tier.SCALE_UP) & scale_up)
    if scale_up and fabric.num_hosts == 1 and not (links.tier == Tier.SCALE_UP).any():
        tiers = (links.tier == Tier.PCIE) | (links.tier == Tier.SOCKET)
        inside = (devices.kind == DeviceKind.PCIE) | (devices.kind == DeviceKind.CPU)
        colour[inside] = 20 + devices.kind[inside]
    cells = fold(fabric, colour, links.up & tiers)
    graph: nx.DiGraph[int | str] = nx.DiGraph()
    graph.add_nodes_from(("source", "sink"))
    for a, b, rate in zip(cells.src.tolist(), cells.dst.tolist(), cells.rate_Bps.tolist(), strict=True):
        graph.add_edge(a, b, capacity=round(rate))
    for cell in np.unique(cells.cell[endpoints[half]]).tolist():
        graph.add_edge("source", cell)
    for cell in np.unique(cells.cell[endpoints[~half]]).tolist():
        graph.add_edge(cell, "sink")
    return int(nx.maximum_flow_value(graph, "source", "sink"))
