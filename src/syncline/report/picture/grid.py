"""Torus pictures: a grid of chips or routers in two dimensions, a lattice seen from the side in three.

Large tori are drawn as blocks: one box for 4 x 4 x 4 chips, one line for all cables between two blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from syncline.describe import units
from syncline.describe.units import counted
from syncline.fabric.fabric import DeviceKind, Tier
from syncline.fabric.topology.torus import Torus
from syncline.report.chart.svg import num
from syncline.report.picture.aggregate import CableBundle, bundle
from syncline.report.picture.network import DrawnNetwork, Ints
from syncline.report.picture.palette import KIND_LOOKS, SIZES
from syncline.report.picture.scene import Caption, Scene, at, fit
from syncline.report.picture.wires import Anchor, Pen
from syncline.report.picture.wording import bundle_title, device_title, gpu_word, rates_text, short_names

MAX_PLACES = {1: 64, 2: 400, 3: 256}
MAX_BLOCKS_PER_AXIS = {1: 32, 2: 16, 3: 6}


def fits(network: DrawnNetwork) -> bool:
    """Say whether the network is a torus of one to three dimensions."""
    spec = network.fabric.spec.network
    return isinstance(spec, Torus) and len(spec.shape) <= 3 and len(_members(network)) == math.prod(spec.shape)


def draw_grid(network: DrawnNetwork) -> Scene:
    """Return the picture of a torus."""
    return _Grid(network).draw()


def _members(network: DrawnNetwork) -> Ints:
    """Return the devices at the places of the torus, in the order of places."""
    spec, fabric = network.fabric.spec.network, network.fabric
    if not isinstance(spec, Torus) or spec.of == "hosts":
        return fabric.switches.astype(np.int64)
    chips = fabric.gpus.astype(np.int64)
    placed = chips.copy()
    if len(chips) == math.prod(spec.shape):
        placed[spec.places()] = chips
    return placed


@dataclass
class _Grid:
    network: DrawnNetwork

    def draw(self) -> Scene:
        spec = self.network.fabric.spec.network
        assert isinstance(spec, Torus)
        self.spec, self.members, self.scene = spec, _members(self.network), Scene()
        self.shape = spec.shape
        self.block = block_shape(self.shape, spec.rack_shape)
        self.blocks = tuple(n // b for n, b in zip(self.shape, self.block, strict=True))
        self.per_block = math.prod(self.block)
        self.place = self._blocks_of_members()
        self.size = 30.0 if self.per_block > 1 or spec.of == "hosts" else 18.0
        self._measure()
        self._host_frames()
        bundles = self._bundles()
        self.pen = Pen.of((), bundled=self.per_block > 1)  # lines of a grid do not crowd, however many
        self._boxes()
        for wire in sorted(bundles, key=lambda b: (b.state, b.load or 0.0)):
            self._wire(wire)
        self.scene.reach(self.width, self.height)
        sizes = [f"axis {axis}: {n} around" for axis, n in enumerate(self.shape)]
        self.scene.captions, self.scene.notes = self._captions(bundles), self._notes()
        self.scene.lane_names = tuple(sizes) if len(sizes) > 1 else ()
        return self.scene

    def _blocks_of_members(self) -> Ints:
        """Return the block of each device of the fabric, -1 for devices that are not places of the torus."""
        where = np.unravel_index(np.arange(len(self.members)), self.shape)
        blocks = tuple(w // b for w, b in zip(where, self.block, strict=True))
        place = np.full(len(self.network.fabric.devices), -1)
        place[self.members] = np.ravel_multi_index(blocks, self.blocks)
        return place

    def _bundles(self) -> list[CableBundle]:
        """Return the cables between blocks, with their axis as lane."""
        cables = self.network.cables
        a, b = self.place[cables.a], self.place[cables.b]
        joins = (a >= 0) & (b >= 0) & (a != b)
        tiers = np.isin(cables.tier, (Tier.SCALE_UP, Tier.GROUP_LOCAL))
        between = bundle(cables, self.place, joins & tiers)
        return [replace(b, lane=self._axis(b)) for b in between]

    def _axis(self, wire: CableBundle) -> int:
        a, b = self._at(wire.a), self._at(wire.b)
        return next((axis for axis in range(len(a)) if a[axis] != b[axis]), -1)

    def _at(self, block: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(block, self.blocks))

    # Places: the last axis runs right, the one before it down, a third one into the depth.

    def _measure(self) -> None:
        depth, rows, columns = (1,) * (3 - len(self.blocks)) + self.blocks
        self.slant = (self.size + 8, -(self.size * 0.62 + 5)) if depth > 1 else (0.0, 0.0)
        self.pitch_x = self.size + 26 + (depth - 1) * self.slant[0] + (14 if depth > 1 else 0)
        self.pitch_y = self.size + 26 - (depth - 1) * self.slant[1] + (8 if depth > 1 else 0)
        self.left = 0.45 * self.pitch_x + 10
        self.top = 0.45 * self.pitch_y + 12 - (depth - 1) * self.slant[1]
        self.width = self.left + (columns - 1) * self.pitch_x + self.size + (depth - 1) * self.slant[0] + 30
        self.height = self.top + (rows - 1) * self.pitch_y + self.size + 20

    def _centre(self, block: int) -> tuple[float, float]:
        depth, row, column = (0,) * (3 - len(self.blocks)) + self._at(block)
        x = self.left + column * self.pitch_x + depth * self.slant[0] + self.size / 2
        return x, self.top + row * self.pitch_y + depth * self.slant[1] + self.size / 2

    def _boxes(self) -> None:
        """Draw the places, those in the depth first."""
        fabric, half = self.network.fabric, self.size / 2
        order = np.argsort(self.place[self.members], kind="stable")
        first = self.members[order[:: self.per_block]]
        names = short_names([fabric.device_name(int(d)) for d in first]) if self.spec.of == "hosts" else []
        for block in range(len(first) - 1, -1, -1):
            x, y = self._centre(block)
            device = int(first[block])
            kind = int(fabric.devices.kind[device])
            look, title = f"box {KIND_LOOKS[kind]}", self._title(block, device)
            self.scene.box(x - half, y - half, self.size, self.size, look, f"b{block}", title)
            label = f"{self.per_block}" if self.per_block > 1 else names[block] if names else ""
            if label:
                self.scene.text(x, y + 3.5, fit(label, self.size - 2, SIZES["lab"]), "lab")

    def _title(self, block: int, device: int) -> str:
        if self.per_block == 1:
            return f"{device_title(self.network, device)}\nat {self._at(block)}"
        text = " × ".join(map(str, self.block))
        part = self.network.fabric.parts[self.network.fabric.devices.part[device]]
        return f"block {self._at(block)}\n{self.per_block} × {part} ({text})"

    def _host_frames(self) -> None:
        """Frame the chips of each host where they are neighbours in a row."""
        fabric = self.network.fabric
        if self.per_block > 1 or self.spec.of == "hosts" or len(self.blocks) > 2:
            return
        for host in range(fabric.num_hosts):
            mine = self.place[fabric.gpus[fabric.gpu_host == host]]
            places = [self._at(int(block)) for block in mine]
            spans = [max(along) - min(along) + 1 for along in zip(*places, strict=True)]
            if math.prod(spans) != len(mine):
                return
            corners = [self._centre(int(block)) for block in mine]
            x, y = min(c[0] for c in corners) - self.size / 2 - 5, min(c[1] for c in corners) - self.size / 2 - 5
            width = max(c[0] for c in corners) + self.size / 2 + 5 - x
            height = max(c[1] for c in corners) + self.size / 2 + 5 - y
            name = fabric.host_names[host]
            self.scene.box(x, y, width, height, "frame", f"v{host}", name, 5, layer="groups")

    def _wire(self, wire: CableBundle) -> None:
        a, b = self._at(wire.a), self._at(wire.b)
        (xa, ya), (xb, yb) = self._centre(wire.a), self._centre(wire.b)
        wraps = any(abs(p - q) > 1 for p, q in zip(a, b, strict=True))
        path = self._arc(wire.lane, xa, ya, xb, yb) if wraps else f"M{at(xa, ya)}L{at(xb, yb)}"
        start, end = Anchor(xa, ya, ya, f"b{wire.a}", str(a)), Anchor(xb, yb, yb, f"b{wire.b}", str(b))
        title = bundle_title(self.network, wire, start.name, end.name)
        if not wraps:
            self.pen.draw(self.scene, wire, path, start, end, title)
            return
        width = max(self.pen.width(wire), 2.2) if wire.state else self.pen.width(wire)
        self.pen.draw(self.scene, wire, path, start, end, title, "wrap", 0.7 * width, min(self.pen.opacity(wire), 0.7))

    def _arc(self, axis: int, xa: float, ya: float, xb: float, yb: float) -> str:
        """Return the way of a wrap-around cable: out at one end, back along the row, in at the other."""
        from_right = len(self.blocks) - 1 - axis
        if len(self.blocks) < 3:
            return self._way_round(from_right == 0, xa, ya, xb, yb)
        bow = (0.0, -0.42 * self.pitch_y) if from_right == 0 else (-0.42 * self.pitch_x, 0.0)
        if from_right == 2:
            bow = (self.size * 0.9, self.size * 0.6)
        out_x, out_y = (xb - xa) * 0.04, (yb - ya) * 0.04
        return (
            f"M{at(xa, ya)}C{at(xa - out_x + bow[0] * 1.3, ya - out_y + bow[1] * 1.3)} "
            f"{at(xb + out_x + bow[0] * 1.3, yb + out_y + bow[1] * 1.3)} {at(xb, yb)}"
        )

    def _way_round(self, across: bool, xa: float, ya: float, xb: float, yb: float) -> str:
        """Return the way of a wrap-around cable of a flat grid: in the gap between two rows or columns."""
        out, gap = self.size / 2 + 20, self.size / 2 + 9
        if across:
            points = ((xa - out, ya), (xa - out, ya - gap), (xa, ya - gap), (xb + out, yb - gap), (xb + out, yb))
        else:
            points = ((xa, ya - out), (xa - gap, ya - out), (xa - gap, ya), (xb - gap, yb + out), (xb, yb + out))
        first, second, third, fourth, fifth = (f"{at(x, y)}" for x, y in points)
        along = f"H{num(xb)}" if across else f"V{num(yb)}"
        return f"M{at(xa, ya)}C{first} {second} {third}{along}C{fourth} {fifth} {at(xb, yb)}"

    def _captions(self, bundles: list[CableBundle]) -> list[Caption]:
        fabric = self.network.fabric
        shape = " × ".join(map(str, self.shape))
        what = fabric.parts[fabric.devices.part[self.members[0]]]
        lines = [f"{shape} torus", f"{len(self.members):,} × {what}"]
        hosts = [counted(fabric.num_hosts, "host"), counted(fabric.num_gpus, gpu_word(fabric))]
        captions = [Caption(20, lines, strong=True), Caption(60, hosts)]
        media = ", ".join({fabric.media[b.medium]: None for b in bundles})
        text = rates_text((b.rate_Bps, b.total) for b in bundles)
        if self.per_block > 1:
            size = " × ".join(map(str, self.block))
            captions.append(Caption(100, [f"boxes of {size}", "one line: all cables of a face"]))
            return [*captions, Caption(140, [text, f"{media} between boxes"])]
        return [*captions, Caption(100, [text, f"{media} between neighbours"])]

    def _notes(self) -> list[str]:
        notes = ["Dotted: cables that wrap around."] if self.spec.wrap and max(self.shape) > 2 else []
        if self.spec.of == "hosts":
            notes.append("Each router joins one host, which is not drawn.")
        if self.per_block > 1:
            notes.append(f"A box stands for {self.per_block} places, a line for all cables between two boxes.")
        optical = int((self.network.fabric.devices.kind == DeviceKind.OCS).sum())
        if optical:
            pause = units.show_time(self.spec.reconfiguration)
            switches = counted(optical, "optical switch")
            notes.append(f"Cables between racks pass {switches} (reconfigured in {pause}).")
        return notes


def block_shape(shape: tuple[int, ...], rack: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return the block drawn as one box: a single place if there are few, else a rack or about 4 along each axis."""
    if math.prod(shape) <= MAX_PLACES[len(shape)]:
        return (1,) * len(shape)
    if rack and math.prod(n // b for n, b in zip(shape, rack, strict=True)) <= MAX_PLACES[len(shape)]:
        return rack
    return tuple(_block(n, MAX_BLOCKS_PER_AXIS[len(shape)]) for n in shape)


def _block(length: int, most: int) -> int:
    """Return a divisor of the length that leaves at most `most` blocks, preferring 4."""
    choices = [d for d in range(1, length + 1) if length % d == 0 and length // d <= most]
    return 4 if 4 in choices else choices[0]
