"""Racks: which box stands where, what each rack weighs and draws, and how far apart two boxes are.

Hosts that share leaf switches stand together, their leaves on top of the racks in their middle. Leaves that do not
fit there stand in a network rack amid as many hosts as it can serve, and spines and cores in the middle of the room,
so that the longest cable is as short as a row allows. Hosts that come as a rack (the 18 trays of an NVL72) stay one:
its height, weight and power are its own, and its leaves always stand in a network rack.

Whoever counts racks counts these: `fabric build` draws them, `cost` and `design` take their number from `stand`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.fabric.fabric import DeviceKind
from syncline.install.body import Body, Boxes, SoldRack, boxes, sold_rack
from syncline.install.packing import Packer, Stood
from syncline.install.room import FRAME_KG, Room

UNIT_M = 0.04445


@dataclass(frozen=True)
class RackPlace:
    """A box in a rack; `bottom_u` counts from 1 at the floor."""

    name: str
    body: Body
    bottom_u: int

    @property
    def middle_m(self) -> float:
        return (self.bottom_u - 1 + self.body.height_u / 2) * UNIT_M


@dataclass
class Rack:
    """One rack and what stands in it; `sold_as` names the part of a rack that comes as one."""

    name: str
    places: list[RackPlace] = field(default_factory=list)
    row: int = 0
    column: int = 0
    used_u: int = 0
    sold_as: str = ""
    frame_kg: float = FRAME_KG

    @property
    def power_w(self) -> float:
        return sum(place.body.power_w for place in self.places)

    @property
    def weight_kg(self) -> float:
        return self.frame_kg + sum(place.body.weight_kg for place in self.places)

    def put(self, name: str, body: Body) -> None:
        """Stand a box on what is there already."""
        self.places.append(RackPlace(name, body, self.used_u + 1))
        self.used_u += body.height_u


@dataclass(frozen=True)
class Floor:
    """All racks in their rows, and where each box stands."""

    room: Room
    racks: tuple[Rack, ...]
    where: dict[str, tuple[Rack, RackPlace]]
    assumed: tuple[str, ...]

    @property
    def num_sold(self) -> int:
        """Racks that came as one."""
        return sum(bool(rack.sold_as) for rack in self.racks)

    def way_m(self, a: str, b: str) -> float:
        """Return how far a cable goes between two boxes: inside a rack, or up, along the tray and down again."""
        (rack_a, place_a), (rack_b, place_b) = self.where[a], self.where[b]
        if rack_a is rack_b:
            return (abs(place_a.middle_m - place_b.middle_m) + 0.6) * (1 + self.room.slack)
        top = self.room.rack_u * UNIT_M + self.room.tray_above_m
        across = abs(rack_a.column - rack_b.column) * self.room.rack_pitch_m
        rows = abs(rack_a.row - rack_b.row) * self.room.row_pitch_m
        return (2 * top - place_a.middle_m - place_b.middle_m + across + rows + 0.6) * (1 + self.room.slack)


@dataclass(frozen=True)
class Standing:
    """Which boxes share a rack, site by site, each site's racks in the order they stand."""

    boxes: Boxes
    sites: tuple[tuple[Stood, ...], ...]
    sold: dict[int, str]
    """By its first host, each rack that comes as one."""

    @property
    def num_racks(self) -> int:
        return sum(len(racks) for racks in self.sites)

    @property
    def num_sold(self) -> int:
        return len(self.sold)

    @property
    def sold_power_w(self) -> float:
        """What all racks draw together that come as one."""
        return sum(self.power_w(rack) for rack in chain(*self.sites) if rack[0] in self.sold)

    def power_w(self, rack: Stood) -> float:
        """Return what one rack draws."""
        total = sum(self.boxes.bodies[self.boxes.of_box[box]].power_w for box in rack)
        build = sold_rack(self.sold[rack[0]]) if rack[0] in self.sold else None
        return total + (build.others_w * _filled(build, len(rack)) if build else 0.0)


def stand(fabric: Fabric, room: Room | None = None) -> Standing:
    """Decide which hosts and switches of a fabric share a rack."""
    room = room or Room()
    every = boxes(fabric)
    _check(every, room)
    packer = Packer(every, room)
    sold = {hosts[0]: part for hosts, part in every.sold_as}
    blocks = _blocks(fabric, every)
    leaves, upper = _leaves(fabric, every, blocks)
    sites: dict[int, list[int]] = defaultdict(list)
    for number, hosts in enumerate(blocks):
        sites[int(fabric.site_of_host[hosts[0]])].append(number)
    placed = []
    for site in sorted({*sites, *upper}):
        mine = [(blocks[number], leaves.get(number, [])) for number in sites[site]]
        placed.append(tuple(packer.site(packer.lots(mine, sold), upper.get(site, []))))
    return Standing(every, tuple(placed), sold)


def shares_racks(fabric: Fabric) -> bool:
    """Whether every leaf stands in one rack with all its hosts, so that copper reaches them."""
    standing = stand(fabric)
    rack_of = {box: number for number, rack in enumerate(chain(*standing.sites)) for box in rack}
    box_of = fabric.devices.host.astype(np.int64)
    box_of[standing.boxes.devices] = fabric.num_hosts + np.arange(len(standing.boxes.devices))
    links, devices = fabric.links, fabric.devices
    rows = np.flatnonzero((devices.kind[links.src] == DeviceKind.SWITCH) & (devices.host[links.dst] >= 0))
    pairs = set(zip(box_of[links.src[rows]].tolist(), box_of[links.dst[rows]].tolist(), strict=True))
    return all(rack_of[leaf] == rack_of[host] for leaf, host in pairs)


def floor(fabric: Fabric, room: Room | None = None) -> Floor:
    """Stand every host and switch of a fabric in racks."""
    room = room or Room()
    standing = stand(fabric, room)
    every = standing.boxes
    names = [*fabric.host_names, *(fabric.device_name(device) for device in every.devices)]
    racks, row = [], 0
    for site in standing.sites:
        for number, mine in enumerate(site):
            more, column = divmod(number, room.racks_per_row)
            rack = Rack(f"R{row + more + 1:02d}-{column + 1:02d}", row=row + more, column=column)
            bodies = [(names[box], every.bodies[every.of_box[box]]) for box in mine]
            _fill(rack, bodies, standing.sold.get(mine[0], ""))
            racks.append(rack)
        row += -(-len(site) // room.racks_per_row)
    known = set(names)
    where = {place.name: (rack, place) for rack in racks for place in rack.places if place.name in known}
    assumed = sorted({body.part for body in every.bodies if body.is_assumed})
    return Floor(room, tuple(racks), where, tuple(assumed))


def _fill(rack: Rack, bodies: Iterable[tuple[str, Body]], sold_as: str) -> None:
    rack.sold_as = sold_as
    build = sold_rack(sold_as)
    left = list(bodies)
    if build is None:
        for name, body in left:
            rack.put(name, body)
        return
    rack.frame_kg = build.frame_kg
    filled = _filled(build, len(left))
    counted: dict[str, int] = defaultdict(int)
    for what, count in build.from_below:
        for _ in range(count):
            if what == "host":
                if left:
                    rack.put(*left.pop(0))
                continue
            counted[what] += 1
            rack.put(f"{rack.name}/{what.replace(' ', '-')}-{counted[what]}", build.box(what, filled))


def _filled(build: SoldRack, num_hosts: int) -> float:
    """Return the part of a rack's trays that is there: a switch tray draws as much of its power."""
    return num_hosts / sum(count for what, count in build.from_below if what == "host")


def _blocks(fabric: Fabric, every: Boxes) -> list[Sequence[int]]:
    """Return the hosts that stand together: a rack as sold, hosts behind the same leaves, or a run that shares none."""
    key = fabric.rack_of_host.astype(np.int64)
    counts = np.bincount(key)
    alone = counts[key] == 1
    key[alone] = len(counts)
    for number, (hosts, _) in enumerate(every.sold_as, start=1):
        key[hosts.start : hosts.stop] = len(counts) + number
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for host, at in enumerate(zip(fabric.site_of_host.tolist(), key.tolist(), strict=True)):
        groups[at].append(host)
    return list(groups.values())


def _leaves(
    fabric: Fabric, every: Boxes, blocks: Sequence[Sequence[int]]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return leaves by the hosts they serve (those of their first cable), and all other switches by site."""
    links, devices = fabric.links, fabric.devices
    block_of = np.zeros(fabric.num_hosts, np.int64)
    for number, hosts in enumerate(blocks):
        block_of[hosts] = number
    downward = (devices.kind[links.src] == DeviceKind.SWITCH) & (devices.host[links.dst] >= 0)
    rows = np.flatnonzero(downward)
    switches, first = np.unique(links.src[rows], return_index=True)
    serves = dict(zip(switches.tolist(), block_of[devices.host[links.dst[rows[first]]]].tolist(), strict=True))
    leaves: dict[int, list[int]] = defaultdict(list)
    upper: dict[int, list[int]] = defaultdict(list)
    for number, device in enumerate(every.devices):
        box = fabric.num_hosts + number
        if device in serves:
            leaves[serves[device]].append(box)
        else:
            upper[int(devices.site[device])].append(box)
    return leaves, upper


def _check(every: Boxes, room: Room) -> None:
    """Refuse a room that cannot take the largest box, or a rack as sold."""
    alike = {(part, len(hosts), every.of_box[hosts[0]]): hosts for hosts, part in every.sold_as}
    for (part, _, _), hosts in alike.items():
        _check_sold(every, room, hosts, part)
    power = room.rack_power_w or float("inf")
    too_big = next(
        (
            b
            for b in every.bodies
            if b.height_u > room.rack_u or b.power_w > power or b.weight_kg + FRAME_KG > room.rack_weight_kg
        ),
        None,
    )
    if too_big:
        raise UsageError(
            f"{too_big.part} ({too_big.height_u}U, {too_big.power_w / 1e3:.1f} kW, {too_big.weight_kg:g} kg) does not "
            f"fit a rack of {room.rack_u}U, {room.filled_power_w / 1e3:g} kW and {room.rack_weight_kg:g} kg.",
            hint="Raise --rack-power (rack_kW among cost's assumptions), --rack-units or --rack-weight.",
        )


def _check_sold(every: Boxes, room: Room, hosts: range, part: str) -> None:
    rack = Rack("")
    _fill(rack, (("", every.bodies[every.of_box[host]]) for host in hosts), part)
    build = sold_rack(part)
    height = build.height_u if build else rack.used_u
    needs = (
        ("--rack-power", rack.power_w / 1e3, (room.rack_power_w or float("inf")) / 1e3, "{:,.4g} kW"),
        ("--rack-units", height, room.rack_u, "{:g}U"),
        ("--rack-weight", rack.weight_kg, room.rack_weight_kg, "{:,.0f} kg"),
    )
    short = [(option, show.format(need), show.format(most)) for option, need, most, show in needs if need > most]
    if short:
        option, need, most = short[0]
        own = " (rack_kW among cost's assumptions), or leave it out: such a rack then has a feed of its own"
        raise UsageError(
            f"a rack of {part} is sold as one and needs {need}; this room's racks take {most}.",
            hint=f"Raise {option} to that{own if option == '--rack-power' else ''}.",
        )
