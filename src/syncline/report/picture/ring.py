"""Dragonfly pictures: groups on a circle, their switches and hosts around them, global cables as chords."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from syncline.describe.units import counted
from syncline.fabric.fabric import DeviceKind, Tier
from syncline.report.picture.aggregate import CableBundle, Cell, bundle
from syncline.report.picture.network import OK, DrawnNetwork, Ints
from syncline.report.picture.palette import SIZES
from syncline.report.picture.scene import Caption, Scene, at, text_width
from syncline.report.picture.wires import Anchor, Pen
from syncline.report.picture.wording import bundle_title, cell_title, rates_text, tier_word

MAX_GROUPS, MAX_HOSTS, MAX_WIRES = 48, 256, 700
_SWITCH, _HOST = 5.5, 4.5


def _spot(x: float, y: float, key: str, name: str) -> Anchor:
    return Anchor(x, y, y, key, name)


def fits(network: DrawnNetwork) -> bool:
    """Say whether the network is a dragonfly that a circle can show."""
    spec = network.fabric.spec.network
    return spec is not None and spec.topology == "dragonfly" and len(_groups(network)) <= MAX_GROUPS


def draw_ring(network: DrawnNetwork) -> Scene:
    """Return the picture of a dragonfly."""
    return _Ring(network).draw()


def _groups(network: DrawnNetwork) -> Ints:
    devices = network.fabric.devices
    return np.unique(devices.group[devices.kind == DeviceKind.SWITCH]).astype(np.int64)


@dataclass
class _Ring:
    network: DrawnNetwork

    def draw(self) -> Scene:
        network, devices = self.network, self.network.fabric.devices
        self.scene = Scene()
        self.bundles = bundle(network.cables, network.vertex_of, network.outside)
        self.pen = Pen.of(self.bundles, bundled=False)
        switches = np.flatnonzero(devices.kind == DeviceKind.SWITCH)
        self.members: dict[int, list[int]] = defaultdict(list)
        for device in switches.tolist():
            self.members[int(devices.group[device])].append(int(network.vertex_of[device]))
        self.home = self._homes()
        self.hosts_drawn = network.fabric.num_hosts <= MAX_HOSTS
        self._measure()
        self.spots: dict[int, Anchor] = {}
        self.middles: dict[int, tuple[float, float]] = {}
        for turn, group in enumerate(sorted(self.members)):
            self._group(group, -math.pi / 2 + 2 * math.pi * turn / len(self.members))
        self._wires()
        self.scene.captions, self.scene.notes = self._captions(), self._notes()
        return self.scene

    def _homes(self) -> dict[int, list[int]]:
        """Return the hosts of each switch: those whose first port it is."""
        cables, fabric = self.network.cables, self.network.fabric
        access = np.flatnonzero(cables.tier == Tier.ACCESS)
        a, b = self.network.vertex_of[cables.a[access]], self.network.vertex_of[cables.b[access]]
        host, switch = np.minimum(a, b), np.maximum(a, b)
        _, first = np.unique(host, return_index=True)
        homes: dict[int, list[int]] = defaultdict(list)
        for i in first.tolist():
            if host[i] < fabric.num_hosts:
                homes[int(switch[i])].append(int(host[i]))
        return homes

    def _measure(self) -> None:
        """Choose radii: switches on a circle, hosts on a wider one, groups so far apart that neither touch."""
        largest = max(len(members) for members in self.members.values())
        hosts = max(sum(len(self.home[v]) for v in members) for members in self.members.values())
        self.inner = max(24.0, largest * 15.0 / (2 * math.pi))
        self.outer = max(self.inner + 24, hosts * 11.5 / (2 * math.pi)) if self.hosts_drawn else self.inner
        self.reach = self.outer + 14
        self.side = max(text_width(line, SIZES["grp"]) for g in self.members for line in self._names(g)) + 16
        count = len(self.members)
        apart = (max(2 * self.reach + 22, self.side)) / (2 * math.sin(math.pi / count)) if count > 1 else 0.0
        self.radius = max(apart, 2.1 * self.reach if count > 1 else 0.0)
        self.centre_x = self.radius + self.reach + self.side
        self.centre_y = self.radius + self.reach + 40

    def _names(self, group: int) -> list[str]:
        members = self.members[group]
        hosts = sum(len(self.home[v]) for v in members)
        return [f"group {group}", f"{counted(len(members), 'switch')}, {counted(hosts, 'host')}"]

    def _group(self, group: int, angle: float) -> None:
        x, y = self.centre_x + self.radius * math.cos(angle), self.centre_y + self.radius * math.sin(angle)
        self.middles[group] = (x, y)
        reach = self.reach
        side = 2 * reach
        self.scene.box(x - reach, y - reach, side, side, "frame", f"g{group}", radius=reach, layer="groups")
        members = self.members[group]
        total = max(1, sum(len(self.home[v]) for v in members))
        for i, vertex in enumerate(members):
            at = angle + 2 * math.pi * i / len(members)
            self._dot(vertex, x + self.inner * math.cos(at), y + self.inner * math.sin(at), _SWITCH)
            if self.hosts_drawn:
                mine = self.home[vertex]
                for k, host in enumerate(mine):
                    around = at + 2 * math.pi * (k - (len(mine) - 1) / 2) / max(total, 18)
                    self._dot(host, x + self.outer * math.cos(around), y + self.outer * math.sin(around), _HOST)
        self._label(group, x, y, angle)
        self.scene.reach(2 * self.centre_x, 2 * self.centre_y - 14)

    def _label(self, group: int, x: float, y: float, angle: float) -> None:
        across, down = math.cos(angle), math.sin(angle)
        anchor = "middle" if abs(across) < 0.3 else "start" if across > 0 else "end"
        if anchor == "middle":
            tx, ty = x, y + (-self.reach - 22 if down < 0 else self.reach + 18)
        else:
            ty = y + down * self.reach * 0.8
            nearest = max(0.0, min(abs(ty - 8 - y), abs(ty + 18 - y)) if (ty - 8 - y) * (ty + 18 - y) > 0 else 0.0)
            aside = math.sqrt(max(0.0, self.reach**2 - nearest**2)) + 8
            tx = x + (aside if across > 0 else -aside)
        first, second = self._names(group)
        self.scene.text(tx, ty, first, "cap", anchor)
        self.scene.text(tx, ty + 14, second, "grp", anchor)

    def _dot(self, vertex: int, x: float, y: float, size: float) -> None:
        vertices = self.network.vertices
        host = vertex < self.network.fabric.num_hosts
        cell = Cell(vertex, vertex, int(vertices.kind[vertex]), int(vertices.level[vertex]), -1, 1, 1)
        look = "box host" if host else "box switch"
        title = cell_title(self.network, cell)
        round_by = 1.5 if host else size
        self.scene.box(x - size, y - size, 2 * size, 2 * size, look, f"v{vertex}", title, round_by)
        self.spots[vertex] = _spot(x, y, f"v{vertex}", self.network.name(vertex))

    def _wires(self) -> None:
        drawn = self.bundles
        many = {tier: sum(b.tier == tier for b in drawn) > MAX_WIRES for tier in {b.tier for b in drawn}}
        merged: dict[tuple[int, int, int], list[CableBundle]] = defaultdict(list)
        for wire in sorted(drawn, key=lambda b: (b.state, b.load or 0.0, -b.tier)):
            a, b = self.spots.get(wire.a), self.spots.get(wire.b)
            if a is None or b is None:
                continue
            if many[wire.tier] and wire.state == OK and wire.load is None:
                low, high = sorted((self._group_of(wire.a), self._group_of(wire.b)))
                merged[low, high, wire.tier].append(wire)
                continue
            self._wire(wire, self._path(wire, a, b), a, b)
        for (low, high, _), wires in merged.items():
            self._merged(low, high, wires)

    def _merged(self, low: int, high: int, wires: list[CableBundle]) -> None:
        """Draw many equal cables of a group, or between two, as one line of strokes or one chord."""
        ends = [_spot(*self.middles[group], f"g{group}", f"group {group}") for group in (low, high)]
        whole = replace(wires[0], total=sum(wire.total for wire in wires))
        if low == high:
            path = "".join(
                f"M{at(a.x, a.top)}L{at(b.x, b.top)}" for a, b in ((self.spots[w.a], self.spots[w.b]) for w in wires)
            )
        else:
            path = self._chord(*(self._edge(spot) for spot in ends))
        title = bundle_title(self.network, whole, ends[0].name, ends[1].name)
        width, opacity = (0.5, 0.22) if low == high else (2.0, 0.5)
        self.pen.draw(self.scene, whole, path, ends[0], ends[1], title, "", width, opacity)

    def _wire(self, wire: CableBundle, path: str, a: Anchor, b: Anchor) -> None:
        title = bundle_title(self.network, wire, a.name, b.name)
        self.pen.draw(self.scene, wire, path, a, b, title)

    def _path(self, wire: CableBundle, a: Anchor, b: Anchor) -> str:
        if wire.tier == Tier.GROUP_GLOBAL:
            return self._chord(a, b)
        return f"M{at(a.x, a.top)}L{at(b.x, b.top)}"

    def _chord(self, a: Anchor, b: Anchor) -> str:
        """Return a chord bent towards the centre of the circle."""
        x, y = (a.x + b.x) / 2, (a.top + b.top) / 2
        cx, cy = x + (self.centre_x - x) * 0.45, y + (self.centre_y - y) * 0.45
        return f"M{at(a.x, a.top)}Q{at(cx, cy)} {at(b.x, b.top)}"

    def _edge(self, spot: Anchor) -> Anchor:
        """Return the point of a group nearest the centre of the circle."""
        share = self.reach / max(self.radius, 1.0)
        x, y = spot.x + (self.centre_x - spot.x) * share, spot.top + (self.centre_y - spot.top) * share
        return _spot(x, y, spot.key, spot.name)

    def _group_of(self, vertex: int) -> int:
        device = self.network.vertices.device[vertex]
        return int(self.network.fabric.devices.group[device])

    def _captions(self) -> list[Caption]:
        network = self.network
        captions = [
            Caption(14, [f"{len(self.members):,} groups", f"{len(network.fabric.switches):,} switches"], strong=True),
            Caption(54, [counted(network.fabric.num_hosts, "host"), f"{network.fabric.num_gpus:,} GPUs"], strong=True),
        ]
        for i, tier in enumerate((Tier.GROUP_GLOBAL, Tier.GROUP_LOCAL, Tier.ACCESS)):
            wires = [b for b in self.bundles if b.tier == tier]
            if wires:
                text = rates_text((b.rate_Bps, b.total) for b in wires)
                captions.append(Caption(100 + 40 * i, [text, tier_word(tier)]))
        return captions

    def _notes(self) -> list[str]:
        if self.hosts_drawn:
            return ["Round: switches. Square: hosts, next to the switch of their first port."]
        return ["Round: switches. Hosts are counted next to their group and not drawn."]
