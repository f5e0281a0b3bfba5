"""Wiring: every network cable of a fabric, from port to port.

Ports of a switch are numbered from 1: first those towards hosts, then those towards the tier above, so that a
technician finds uplinks together. A cage that is broken out holds ports of one rate only.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from syncline.errors import CatalogError, FabricError
from syncline.fabric import Fabric
from syncline.fabric.catalog import Catalog, LinkType, Switch
from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Tier

MAX_CABLES = 1_000_000


@dataclass(frozen=True)
class Port:
    """One end of a cable. `cage` counts from 1, `lane` from 0 within a cage that is broken out into `lanes`."""

    device: str
    number: int
    cage: int
    lane: int
    lanes: int


@dataclass(frozen=True)
class InstalledCable:
    """One cable between two ports; `a` is the end nearer the hosts, `link` the fabric's directed link from a to b."""

    a: Port
    b: Port
    link: int
    tier: Tier
    rate_Bps: float
    up: bool


@dataclass(frozen=True, eq=False)
class CablingPlan:
    """All network cables, and the ports of each device in the order of their numbers."""

    fabric: Fabric
    catalog: Catalog
    wires: tuple[InstalledCable, ...]

    @cached_property
    def of_device(self) -> dict[str, tuple[tuple[Port, Port, InstalledCable], ...]]:
        """For each device: (its own port, the port at the other end, the cable), by port number."""
        rows_of: dict[str, list[tuple[Port, Port, InstalledCable]]] = defaultdict(list)
        for wire in self.wires:
            rows_of[wire.a.device].append((wire.a, wire.b, wire))
            rows_of[wire.b.device].append((wire.b, wire.a, wire))
        return {name: tuple(sorted(rows, key=lambda row: row[0].number)) for name, rows in rows_of.items()}

    def switch_model(self, name: str) -> Switch | None:
        """Return the catalogue's entry of a switch, or None where the description only names it."""
        return _model(self.fabric, self.catalog, self.fabric.device(name))

    def level(self, name: str) -> int:
        """Return the tier of a switch: 1 is a leaf."""
        return int(self.fabric.devices.level[self.fabric.device(name)])

    @cached_property
    def switch_names(self) -> tuple[str, ...]:
        """Return the packet switches, leaves first."""
        devices = self.fabric.devices
        named = sorted(self.fabric.switches.tolist(), key=lambda d: (int(devices.level[d]), d))
        return tuple(self.fabric.device_name(d) for d in named)


def wiring(fabric: Fabric) -> CablingPlan:
    """Give every network cable its two ports."""
    catalog = fabric.spec.catalog
    links = fabric.links
    rows = np.flatnonzero(np.isin(links.tier, [int(t) for t in NETWORK_TIERS]) & (np.arange(len(links)) % 2 == 0))
    total = int(links.num_cables[rows].sum())
    if total > MAX_CABLES:
        raise FabricError(
            f"{fabric.name} has {total:,} network cables; {MAX_CABLES:,} can be scheduled.",
            hint="Build one pod or one site of it.",
        )
    ends = [_lower_first(fabric, int(link)) for link in rows for _ in range(int(links.num_cables[link]))]
    port = _numbered(fabric, catalog, ends)
    wires = []
    for at, (link, a, b) in enumerate(ends):
        rate = float(links.rate_Bps[link] / links.num_cables[link])
        wires.append(
            InstalledCable(port[a, at], port[b, at], link, Tier(int(links.tier[link])), rate, bool(links.up[link]))
        )
    return CablingPlan(fabric, catalog, tuple(wires))


def link_type(wiring: CablingPlan, wire: InstalledCable) -> LinkType | None:
    """Return what runs over a cable: the access link or the uplink of its site's network; None where only a rate is."""
    fabric = wiring.fabric
    site = int(fabric.devices.site[fabric.links.src[wire.link]])
    network = fabric.spec.sites[site].network if fabric.spec.sites else fabric.spec.network
    network = getattr(network, "plane", network)
    if wire.tier is Tier.WAN or network is None or not network.link:
        return None
    name = network.link if wire.tier is Tier.ACCESS else network.uplink or network.link
    return wiring.catalog.link(name)


def _lower_first(fabric: Fabric, link: int) -> tuple[int, int, int]:
    a, b = int(fabric.links.src[link]), int(fabric.links.dst[link])
    level = fabric.devices.level
    return (link, a, b) if level[a] <= level[b] else (link ^ 1, b, a)


def _model(fabric: Fabric, catalog: Catalog, device: int) -> Switch | None:
    try:
        return catalog.switch(fabric.parts[fabric.devices.part[device]])
    except CatalogError:
        return None


def _numbered(fabric: Fabric, catalog: Catalog, ends: list[tuple[int, int, int]]) -> dict[tuple[int, int], Port]:
    """Return the port of each (device, cable): towards hosts first, then up, each rate on cages of its own."""
    mine: dict[int, list[tuple[bool, float, int]]] = defaultdict(list)
    links = fabric.links
    for at, (link, a, b) in enumerate(ends):
        rate = float(links.rate_Bps[link] / links.num_cables[link])
        mine[a].append((True, rate, at))
        mine[b].append((False, rate, at))
    ports: dict[tuple[int, int], Port] = {}
    for device, rows in mine.items():
        name, model = fabric.device_name(device), _model(fabric, catalog, device)
        is_switch = fabric.devices.kind[device] == DeviceKind.SWITCH
        cage, lane, last = 1, 0, 0
        ordered = sorted(rows, key=lambda row: (row[0] and is_switch, row[2]))
        for number, (_, rate, at) in enumerate(ordered, start=1):
            lanes = ports_per_cage(catalog, model, rate) if model and is_switch else 1
            if lane and lanes != last:
                cage, lane = cage + 1, 0
            ports[device, at] = Port(name, number, cage, lane, lanes)
            cage, lane, last = (cage + 1, 0, lanes) if lane + 1 >= lanes else (cage, lane + 1, lanes)
    return ports


def ports_per_cage(catalog: Catalog, model: Switch, rate_Bps: float) -> int:
    """Return how many ports of a rate one cage of a switch gives: its ports at that rate over those at its fastest."""
    modes = [(catalog.link(mode.link).rate_Bps, mode.num_ports) for mode in model.modes]
    cages = max(modes)[1]
    fitting = [ports for rate, ports in sorted(modes) if rate >= rate_Bps * 0.999]
    return max(1, fitting[0] // cages) if fitting else 1
