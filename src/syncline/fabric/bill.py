"""The bill: what a fabric is made of, what it costs to buy and how much power it draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.describe.model import reported
from syncline.fabric.catalog import Catalog, HostModel, Switch
from syncline.fabric.draft import UNKNOWN_CABLE
from syncline.fabric.fabric import DeviceKind, Fabric, IntArray

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class BillLine:
    """How many of one part are bought, and at what price; None where the catalogue has no price."""

    kind: str
    part: str
    count: int
    unit_price_usd: float | None
    unit_power_w: float
    source: str
    estimate: bool

    @reported
    def price_usd(self) -> float:
        return (self.unit_price_usd or 0.0) * self.count

    @reported
    def power_w(self) -> float:
        return self.unit_power_w * self.count


@dataclass(frozen=True)
class Bill:
    """All lines; hosts come with their GPUs, NICs and NVSwitches."""

    lines: tuple[BillLine, ...]

    @property
    def price_usd(self) -> float:
        return sum(line.price_usd for line in self.lines)

    @property
    def power_w(self) -> float:
        return sum(line.power_w for line in self.lines)

    @property
    def network_price_usd(self) -> float:
        """What the network costs: switches, optics and cables, without NICs."""
        return sum(line.price_usd for line in self.lines if line.kind != "host")

    @property
    def unpriced(self) -> tuple[str, ...]:
        return tuple(line.part for line in self.lines if line.unit_price_usd is None)


def bill(fabric: Fabric) -> Bill:
    """Return the bill of materials of a fabric."""
    return Bill((*_hosts(fabric, fabric.spec.catalog), *network_lines(fabric)))


def network_lines(fabric: Fabric, devices: Mask | None = None, links: Mask | None = None) -> tuple[BillLine, ...]:
    """Return the switches, optics and cables of a fabric, or of some of its devices and links."""
    devices = np.ones(len(fabric.devices), bool) if devices is None else devices
    links = np.ones(len(fabric.links), bool) if links is None else links
    catalog = fabric.spec.catalog
    return (*_switches(fabric, catalog, devices), *_cables(fabric, catalog, links))


def host_groups(fabric: Fabric, catalog: Catalog) -> list[tuple[HostModel, int]]:
    """Return the model and number of each group of hosts, in the order of the fabric's hosts."""
    groups = fabric.spec.groups()
    counts = [len(group.names) or (group.count if isinstance(group.count, int) else 0) for group in groups]
    rest = fabric.num_hosts - sum(counts)  # of the one group that is as large as the network allows
    return [(group.host.resolve(catalog), count or rest) for group, count in zip(groups, counts, strict=True)]


def group_of_host(fabric: Fabric) -> IntArray:
    """Return the number of the group that each host belongs to, in the order of `host_groups`."""
    counts = [count for _, count in host_groups(fabric, fabric.spec.catalog)]
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def model_of_host(fabric: Fabric, host: int, catalog: Catalog) -> HostModel:
    """Return the host model a host was built from."""
    return host_groups(fabric, catalog)[int(group_of_host(fabric)[host])][0]


def _hosts(fabric: Fabric, catalog: Catalog) -> list[BillLine]:
    counts: dict[HostModel, int] = {}
    for model, count in host_groups(fabric, catalog):
        counts[model] = counts.get(model, 0) + count
    lines = []
    for model, count in counts.items():
        name = f"{model.name} ({model.num_gpus} x {model.gpu})"
        price = model.price_usd
        if price is not None and not model.price_includes_nics and model.nic:
            price += model.num_nics * (catalog.nic(model.nic).price_usd or 0.0)
        lines.append(BillLine("host", name, count, price, model.power_w, model.price_source, model.price_is_estimate))
    return lines


def _switches(fabric: Fabric, catalog: Catalog, devices: Mask) -> list[BillLine]:
    lines = []
    bought = devices & np.isin(fabric.devices.kind, (DeviceKind.SWITCH, DeviceKind.OCS))
    for part, count in zip(*np.unique(fabric.devices.part[bought], return_counts=True), strict=True):
        name = fabric.parts[part]
        model = _find(catalog, name)
        if model is None:
            line = BillLine("switch", name, int(count), None, 0.0, "not in the catalogue", True)
        else:
            price, source = model.price_usd, model.price_source
            line = BillLine("switch", name, int(count), price, model.power_w, source, model.price_is_estimate)
        lines.append(line)
    return lines


def _find(catalog: Catalog, name: str) -> Switch | None:
    return next((p for p in catalog.parts("switch") if isinstance(p, Switch) and p.name == name), None)


def _cables(fabric: Fabric, catalog: Catalog, chosen: Mask) -> list[BillLine]:
    links = fabric.links
    bought = np.flatnonzero(chosen[::2] & (links.cable[::2] >= 0)) * 2
    if len(bought) == 0:
        return []
    lengths, length_index = np.unique(links.length_m[bought], return_inverse=True)
    key = links.cable[bought].astype(np.int64) * len(lengths) + length_index.ravel()
    counts = np.bincount(key, weights=links.num_cables[bought]).astype(np.int64)
    lines = []
    for group in np.flatnonzero(counts):
        kind, length, count = fabric.cables[group // len(lengths)], lengths[group % len(lengths)], counts[group]
        if kind == UNKNOWN_CABLE:
            lines.append(BillLine("cable", "cable of a stated rate", int(count), None, 0.0, "cluster file", True))
            continue
        part = catalog.cable(kind)
        name = f"{part.name}, {length:g} m"
        price = part.price_usd(float(length))
        lines.append(
            BillLine("cable", name, int(count), price, part.power_w, part.price_source, part.price_is_estimate)
        )
    return lines
