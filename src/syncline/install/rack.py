"""Racks: which box stands where, what each rack weighs and draws, and how far apart two boxes are.

Hosts that share leaf switches stand together. Where they all fit into one rack, their leaves stand on top of it;
otherwise leaves stand in the middle of their hosts' racks, and spines and cores in the middle of the room, so that
the longest cable is as short as a row allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from syncline.describe.document import read_document
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.install.wiring import CablingPlan


@dataclass(frozen=True)
class Room:
    """What a rack holds and how racks stand: limits of one rack, pitch of racks and rows, height of the cable tray."""

    rack_u: int = 48
    rack_power_w: float = 45_000.0
    rack_weight_kg: float = 1_360.0
    racks_per_row: int = 16
    rack_pitch_m: float = 0.6
    row_pitch_m: float = 3.0
    tray_above_m: float = 0.5
    slack: float = 0.1
    """Share of the measured way that is added, for bends and a second dressing."""

    def __post_init__(self) -> None:
        for name in ("rack_u", "rack_power_w", "rack_weight_kg", "racks_per_row"):
            if getattr(self, name) <= 0:
                raise UsageError(f"--{name.replace('_', '-')} must be positive, got {getattr(self, name):g}.")


@dataclass(frozen=True)
class Body:
    """One box: its height, weight and power, and whether the first two are assumed."""

    name: str
    part: str
    height_u: int
    weight_kg: float
    power_w: float
    is_host: bool
    is_assumed: bool


@dataclass(frozen=True)
class RackPlace:
    """A box in a rack; `bottom_u` counts from 1 at the floor."""

    body: Body
    bottom_u: int

    @property
    def middle_m(self) -> float:
        return (self.bottom_u - 1 + self.body.height_u / 2) * 0.04445


@dataclass
class Rack:
    """One rack and what stands in it."""

    name: str
    room: Room
    places: list[RackPlace] = field(default_factory=list)
    row: int = 0
    column: int = 0
    used_u: int = 0

    @property
    def power_w(self) -> float:
        return sum(place.body.power_w for place in self.places)

    @property
    def weight_kg(self) -> float:
        return 130.0 + sum(place.body.weight_kg for place in self.places)

    def takes(self, bodies: Sequence[Body]) -> bool:
        """Whether these boxes still fit by height, power and weight."""
        room = self.room
        return (
            self.used_u + sum(b.height_u for b in bodies) <= room.rack_u
            and self.power_w + sum(b.power_w for b in bodies) <= room.rack_power_w
            and self.weight_kg + sum(b.weight_kg for b in bodies) <= room.rack_weight_kg
        )

    def put(self, body: Body) -> None:
        """Stand a box on what is there already."""
        self.places.append(RackPlace(body, self.used_u + 1))
        self.used_u += body.height_u

    def to_json(self) -> JsonObject:
        return {
            "rack": self.name, "row": self.row, "column": self.column, "used_u": self.used_u,
            "power_w": self.power_w, "weight_kg": self.weight_kg,
            "boxes": [{"u": p.bottom_u, "height_u": p.body.height_u, "name": p.body.name, "part": p.body.part}
                      for p in self.places],
        }  # fmt: skip


@dataclass(frozen=True)
class Floor:
    """All racks in their rows, and where each box stands."""

    room: Room
    racks: tuple[Rack, ...]
    where: dict[str, tuple[Rack, RackPlace]]
    assumed: tuple[str, ...]

    def way_m(self, a: str, b: str) -> float:
        """Return how far a cable goes between two boxes: inside a rack, or up, along the tray and down again."""
        (rack_a, place_a), (rack_b, place_b) = self.where[a], self.where[b]
        if rack_a is rack_b:
            return (abs(place_a.middle_m - place_b.middle_m) + 0.6) * (1 + self.room.slack)
        top = self.room.rack_u * 0.04445 + self.room.tray_above_m
        across = abs(rack_a.column - rack_b.column) * self.room.rack_pitch_m
        rows = abs(rack_a.row - rack_b.row) * self.room.row_pitch_m
        return (2 * top - place_a.middle_m - place_b.middle_m + across + rows + 0.6) * (1 + self.room.slack)


def floor(wiring: CablingPlan, room: Room) -> Floor:
    """Stand every host and switch of a fabric in racks."""
    fabric = wiring.fabric
    bodies = _bodies(wiring)
    too_big = next((b for b in bodies.values() if not Rack("", room).takes([b])), None)
    if too_big:
        raise UsageError(
            f"{too_big.part} ({too_big.height_u}U, {too_big.power_w / 1e3:.1f} kW, {too_big.weight_kg:g} kg) does not "
            f"fit a rack of {room.rack_u}U, {room.rack_power_w / 1e3:g} kW and {room.rack_weight_kg:g} kg.",
            hint="Raise --rack-power, --rack-units or --rack-weight.",
        )
    groups: dict[tuple[int, int], list[Body]] = defaultdict(list)
    for host, name in enumerate(fabric.host_names):
        groups[int(fabric.site_of_host[host]), int(fabric.rack_of_host[host])].append(bodies[name])
    leaves, upper = _leaves_of(wiring, bodies, len(groups))
    blocks = [_block(room, hosts, leaves.get(number, [])) for number, hosts in enumerate(groups.values())]
    top = _filled(room, upper)
    middle = len(blocks) // 2
    racks = [r for block in blocks[:middle] for r in block] + top + [r for block in blocks[middle:] for r in block]
    for number, rack in enumerate(racks):
        rack.row, rack.column = divmod(number, room.racks_per_row)
        rack.name = f"R{rack.row + 1:02d}-{rack.column + 1:02d}"
    where = {place.body.name: (rack, place) for rack in racks for place in rack.places}
    assumed = sorted({b.part for b in bodies.values() if b.is_assumed})
    return Floor(room, tuple(racks), where, tuple(assumed))


def _block(room: Room, hosts: list[Body], leaves: list[Body]) -> list[Rack]:
    """Return the racks of hosts that share leaves: leaves on top of one rack, or in the middle of several."""
    one = Rack("", room)
    if one.takes([*hosts, *leaves]):
        for body in (*hosts, *leaves):
            one.put(body)
        return [one]
    racks, network = _filled(room, hosts), _filled(room, leaves)
    half = len(racks) // 2
    return racks[:half] + network + racks[half:]


def _filled(room: Room, bodies: Iterable[Body]) -> list[Rack]:
    racks: list[Rack] = []
    for body in bodies:
        if not racks or not racks[-1].takes([body]):
            racks.append(Rack("", room))
        racks[-1].put(body)
    return racks


def _leaves_of(
    wiring: CablingPlan, bodies: dict[str, Body], num_groups: int
) -> tuple[dict[int, list[Body]], list[Body]]:
    """Return the leaves by the group of hosts they serve (the first one cabled to them), and all other switches."""
    fabric = wiring.fabric
    group_number: dict[tuple[int, int], int] = {}
    of_host = {}
    for host, name in enumerate(fabric.host_names):
        key = int(fabric.site_of_host[host]), int(fabric.rack_of_host[host])
        of_host[name] = group_number.setdefault(key, len(group_number))
    leaves: dict[int, list[Body]] = defaultdict(list)
    upper: list[Body] = []
    for name in wiring.switch_names:
        ends = [far.device.partition("/")[0] for _, far, _ in wiring.of_device.get(name, ())]
        mine = next((of_host[end] for end in ends if end in of_host), None)
        (upper if mine is None else leaves[mine]).append(bodies[name])
    return leaves, upper


@cache
def _known() -> dict[str, dict[str, dict[str, float | str]]]:
    text = (files("syncline.install") / "data" / "bodies.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, dict[str, float | str]]] = read_document(text, "bodies.yaml").data
    return found


def _bodies(wiring: CablingPlan) -> dict[str, Body]:
    fabric, catalog = wiring.fabric, wiring.catalog
    found: dict[str, Body] = {}
    groups = fabric.spec.hosts or tuple(group for site in fabric.spec.sites for group in site.hosts)
    names = iter(fabric.host_names)
    left = fabric.num_hosts
    for group in groups:
        model = group.host.resolve(catalog)
        count = len(group.names) or (group.count if isinstance(group.count, int) else left)
        left -= count
        for _ in range(count):
            name = next(names)
            found[name] = _body(name, "host", model.name, model.power_w)
    for name in wiring.switch_names:
        switch = wiring.switch_model(name)
        found[name] = _body(name, "switch", switch.name if switch else "switch", switch.power_w if switch else 0.0)
    return found


def _body(name: str, kind: str, part: str, power_w: float) -> Body:
    known = _known()[kind]
    row = known.get(part, known["default"])
    return Body(name, part, int(row["height_u"]), float(row["weight_kg"]), power_w, kind == "host", part not in known)
