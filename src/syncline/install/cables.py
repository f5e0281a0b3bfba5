"""The cable schedule: what to buy, what to write on it, and which two ports it joins."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from syncline.describe.model import reported
from syncline.describe.plain import csv_text
from syncline.errors import CatalogError
from syncline.install.names import port_name
from syncline.install.rack import Floor
from syncline.install.wiring import CablingPlan, InstalledCable, Port, link_type

LENGTHS_M = (0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 75, 100, 150, 200, 300, 500, 1000, 2000)
"""What is sold by the piece; a longer run is spliced on site and keeps its measured length."""
HEADINGS = (
    "label", "from_rack", "from_u", "from_device", "from_port", "to_rack", "to_u", "to_device", "to_port", "rate_gbps",
    "measured_m", "length_m", "type", "kind", "price_usd", "why",
)  # fmt: skip


@dataclass(frozen=True)
class CableRow:
    """One cable of the schedule."""

    label: str
    wire: InstalledCable
    ends: tuple[tuple[str, int, str, str], tuple[str, int, str, str]]
    """For each end: rack, lowest unit of its box, device, port as its system names it."""
    measured_m: float
    length_m: float
    part: str
    kind: str
    price_usd: float | None
    why: str

    def cells(self) -> tuple[str | float, ...]:
        price = "" if self.price_usd is None else round(self.price_usd, 2)
        rate = round(self.wire.rate_Bps * 8 / 1e9, 3)
        return (self.label, *self.ends[0], *self.ends[1], rate, round(self.measured_m, 2), self.length_m, self.part,
                self.kind, price, self.why)  # fmt: skip


@dataclass(frozen=True)
class CableBill:
    """How many of one cable are bought."""

    part: str
    length_m: float
    count: int
    unit_price_usd: float | None

    @reported
    def price_usd(self) -> float:
        return self.count * (self.unit_price_usd or 0.0)


def schedule(wiring: CablingPlan, floor: Floor, system: dict[str, str]) -> tuple[CableRow, ...]:
    """Return every cable with its length, type and label; `system` is what runs on each switch, which names ports."""
    return tuple(_row(wiring, floor, system, number, wire) for number, wire in enumerate(wiring.wires, start=1))


def bill_of(rows: tuple[CableRow, ...]) -> tuple[CableBill, ...]:
    """Return the cables to order, by type and length."""
    counts = Counter((row.part, row.length_m, row.price_usd) for row in rows)
    return tuple(CableBill(*key[:2], count, key[2]) for key, count in sorted(counts.items(), key=lambda i: i[0][:2]))


def to_csv(rows: tuple[CableRow, ...]) -> str:
    """Return the schedule as one table, a line a cable."""
    return csv_text(HEADINGS, (row.cells() for row in rows))


def stocked_m(way_m: float) -> float:
    """Return the shortest length sold that reaches so far."""
    return next((length for length in LENGTHS_M if length >= way_m), round(way_m + 0.5))


def _row(wiring: CablingPlan, floor: Floor, system: dict[str, str], number: int, wire: InstalledCable) -> CableRow:
    boxes = _box(wire.a), _box(wire.b)
    if all(box in floor.where for box in boxes):
        way = floor.way_m(*boxes)
        ends = [(rack.name, place.bottom_u) for rack, place in (floor.where[box] for box in boxes)]
    else:  # an end that stands in no rack: the description's own length
        way = float(wiring.fabric.links.length_m[wire.link])
        ends = [
            (floor.where[box][0].name, floor.where[box][1].bottom_u) if box in floor.where else ("", 0) for box in boxes
        ]
    length = stocked_m(way)
    link = link_type(wiring, wire)
    part, kind, price, why = "cable of a stated rate", "", None, "the description says only a rate"
    if link is not None:
        try:
            cable = wiring.catalog.cable_for(link, length)
            part, kind, price = cable.name, cable.kind, cable.price_usd(length)
            why = f"cheapest at {link.name} that reaches {length:g} m"
        except CatalogError as error:
            why = error.message
    links, site = wiring.fabric.links, wiring.fabric.devices.site
    if site[links.src[wire.link]] != site[links.dst[wire.link]]:
        way, length, part, kind, price = 0.0, 0.0, "line between sites", "wan", None
        why = "a carrier's line between two rooms; cost has its rent"
    names = tuple(_port(port, system) for port in (wire.a, wire.b))
    both = tuple((*end, port.device, name) for end, port, name in zip(ends, (wire.a, wire.b), names, strict=True))
    return CableRow(f"C{number:06d}", wire, (both[0], both[1]), way, length, part, kind, price, why)


def _box(port: Port) -> str:
    return port.device.rpartition("/")[0] if "/nic-" in port.device else port.device


def _port(port: Port, system: dict[str, str]) -> str:
    return port_name(system[port.device], port) if port.device in system else f"p{port.number}"
