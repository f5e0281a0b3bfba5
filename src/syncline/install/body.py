"""Bodies: height, weight and power of every box that stands in a rack.

A box draws what the catalogue says and what the modules of its cables do, so that all boxes together draw what the
bill adds up to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from syncline.describe.own_data import own_data
from syncline.describe.quantity import Strict
from syncline.errors import CatalogError
from syncline.fabric import Fabric
from syncline.fabric.bill import host_groups
from syncline.fabric.catalog import Catalog, HostModel
from syncline.fabric.draft import UNKNOWN_CABLE
from syncline.fabric.fabric import DeviceKind


@dataclass(frozen=True)
class Body:
    """One kind of box: its height, weight and power, and whether the first two are assumed."""

    part: str
    height_u: int
    weight_kg: float
    power_w: float
    is_host: bool
    is_assumed: bool


class _Size(Strict):
    height_u: int
    weight_kg: float
    power_w: float = 0.0
    source: str = ""


class SoldRack(Strict):
    """A rack that is sold as one: what stands in it from the floor up, `host` being the trays a cluster counts."""

    height_u: int
    frame_kg: float
    from_below: tuple[tuple[str, int], ...]
    boxes: dict[str, _Size]
    source: str

    @property
    def others_w(self) -> float:
        """What the boxes draw that are not hosts."""
        return sum(count * self.boxes[what].power_w for what, count in self.from_below if what != "host")

    def box(self, what: str, filled: float) -> Body:
        """Return a box that is no host, in a rack of which so much is filled."""
        size = self.boxes[what]
        return Body(what, size.height_u, size.weight_kg, size.power_w * filled, False, False)


class _Bodies(Strict):
    host: dict[str, _Size]
    switch: dict[str, _Size]
    rack: dict[str, SoldRack]


@dataclass(frozen=True)
class Boxes:
    """Hosts, then switches (leaves first), each with its body; `bodies` are few, boxes may be many."""

    bodies: tuple[Body, ...]
    of_box: Sequence[int]
    devices: Sequence[int]
    """The device of each switch."""
    sold_as: tuple[tuple[range, str], ...]
    """Hosts that come as one rack, and the part they are."""


def sold_rack(part: str) -> SoldRack | None:
    """Return the rack that is sold with this host, where its build is known."""
    return _known().rack.get(part)


def boxes(fabric: Fabric) -> Boxes:
    """Return every host and switch of a fabric with its body."""
    catalog = fabric.spec.catalog
    devices = fabric.devices
    switches = np.flatnonzero((devices.kind == DeviceKind.SWITCH) | (devices.kind == DeviceKind.OCS))
    switches = switches[np.argsort(devices.level[switches], kind="stable")]
    hosts = host_groups(fabric, catalog)
    numbers, index = np.unique(devices.part[switches], return_inverse=True)
    bare = [_body("host", model.name, _tray_w(model)) for model, _ in hosts]
    bare += [_body("switch", fabric.parts[number], _switch_w(catalog, fabric.parts[number])) for number in numbers]
    part_of = np.append(np.repeat(np.arange(len(hosts)), [count for _, count in hosts]), len(hosts) + index.ravel())
    loads, load_of = np.unique(_optics_w(fabric, catalog, switches), return_inverse=True)
    kinds, of_box = np.unique(part_of * len(loads) + load_of.ravel(), return_inverse=True)
    pairs = [(bare[kind // len(loads)], float(loads[kind % len(loads)])) for kind in kinds.tolist()]
    bodies = tuple(replace(body, power_w=body.power_w + optics_w) for body, optics_w in pairs)
    return Boxes(bodies, of_box.ravel().tolist(), switches.tolist(), tuple(_sold(hosts)))


def _sold(hosts: Iterable[tuple[HostModel, int]]) -> Iterator[tuple[range, str]]:
    first = 0
    for model, count in hosts:
        trays = max(1, model.rack_gpus // model.num_gpus)
        for at in range(first, first + count, trays) if model.rack_gpus else ():
            yield range(at, min(at + trays, first + count)), model.name
        first += count


def _tray_w(model: HostModel) -> float:
    """Return what a host draws by itself: the catalogue's power of a tray holds its part of the rack's other boxes."""
    rack = sold_rack(model.name) if model.rack_gpus else None
    return model.power_w - rack.others_w / max(1, model.rack_gpus // model.num_gpus) if rack else model.power_w


def _optics_w(fabric: Fabric, catalog: Catalog, switches: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what the modules of its cables draw in every box."""
    links, devices = fabric.links, fabric.devices
    box = devices.host.astype(np.int64)
    box[switches] = fabric.num_hosts + np.arange(len(switches))
    each = np.array([_end_w(catalog, name) for name in fabric.cables] or [0.0])
    bought = np.flatnonzero(links.cable[::2] >= 0) * 2
    watt = each[links.cable[bought]] * links.num_cables[bought]
    total = np.zeros(fabric.num_hosts + len(switches))
    for ends in (links.src[bought], links.dst[bought]):
        np.add.at(total, box[ends], watt)
    return total


def _end_w(catalog: Catalog, name: str) -> float:
    return 0.0 if name == UNKNOWN_CABLE else catalog.cable(name).power_per_end_w


def _switch_w(catalog: Catalog, name: str) -> float:
    try:
        return catalog.switch(name).power_w
    except CatalogError:
        return 0.0


def _body(kind: str, part: str, power_w: float) -> Body:
    known = _known().host if kind == "host" else _known().switch
    size = known.get(part, known["default"])
    return Body(part, size.height_u, size.weight_kg, power_w, kind == "host", part not in known)


@cache
def _known() -> _Bodies:
    return _Bodies.model_validate(own_data("install", "data/bodies.yaml"))
