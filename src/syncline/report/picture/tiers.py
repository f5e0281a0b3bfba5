"""Pictures by tiers: hosts below, then leaves, spines, cores, border routers and optical switches above them.

Three levels of detail, by size: every device and cable (`full`), hosts as small boxes and every cable between them
(`each`), or equal things as one card with a count and equal cables as one line (`classes`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from syncline.describe import units
from syncline.describe.units import counted
from syncline.fabric.fabric import DeviceKind, Tier
from syncline.report.picture import hosts
from syncline.report.picture.aggregate import Aggregate, CableBundle, Cell, PictureGroup, bundle
from syncline.report.picture.network import DOWN, LONG_TIERS, DrawnNetwork
from syncline.report.picture.palette import KIND_LOOKS, NUM_LANES, SIZES
from syncline.report.picture.placement import CAPTION, GROUP_PAD, GroupFrame, PictureSizes, place, row_of
from syncline.report.picture.scene import Caption, Scene, fit, text_width
from syncline.report.picture.wires import Anchor, Pen, arc, connect, loop, straight, through
from syncline.report.picture.wording import (
    KIND_WORDS,
    bundle_title,
    cell_title,
    counted_switches,
    gpu_word,
    group_names,
    rates_text,
    short_names,
    switch_word,
    tier_word,
)

FULL, EACH, CLASSES = "full", "each", "classes"
BAND = 40.0
"""Height of the band in which optical circuits run."""
ALIKE = "Equal things are drawn once: a box or frame marked N × stands for N, a line for all its cables."


def draw_tiers(network: DrawnNetwork, aggregate: Aggregate, detail: str) -> Scene:
    """Return the picture of a network by tiers; `aggregate` keeps each thing apart unless detail is `classes`."""
    return _Tiers(network, aggregate, detail).draw()


def _card_width(cell: Cell) -> float:
    """Return the width of a card that stands for `cell.count` things."""
    if cell.is_host or cell.kind == DeviceKind.NVSWITCH:
        return hosts.CARD_WIDTH + (8 if cell.is_host and cell.count > 1 else 0)
    if cell.kind == DeviceKind.OCS:
        return 158.0
    return (48.0 if cell.lane >= 0 else 104.0) if cell.count == 1 else 84.0 if cell.lane >= 0 else 126.0


@dataclass
class _Tiers:
    network: DrawnNetwork
    aggregate: Aggregate
    detail: str

    def draw(self) -> Scene:
        self.scene = Scene()
        self.inside = hosts.LARGE if self.network.fabric.num_hosts == 1 else hosts.SMALL
        self.labels = self._labels()
        self.bundles = self._bundles()
        self.place = place(self.aggregate, self._sizes(), self._headroom())
        for frame in self.place.frames:
            self._frame(frame)
        self.anchors: dict[int, Anchor] = {}
        for cell in self.place.cells.values():
            self._cell(cell)
        self._wires()
        self._count_labels()
        self.scene.reach(self.place.total_width, self.place.bottom + (20 if self.detail == FULL else 0))
        self.scene.captions = self._captions()
        if self.detail == CLASSES:
            self.scene.notes = [ALIKE]
        return self.scene

    def _bundles(self) -> tuple[CableBundle, ...]:
        if self.detail == CLASSES:
            return self.aggregate.bundles
        devices = np.arange(len(self.network.fabric.devices))
        everything = np.ones(len(self.network.cables), bool)
        return bundle(self.network.cables, devices, everything if self.detail == FULL else self.network.outside)

    def _labels(self) -> dict[int, str]:
        """Return the short name of each vertex; names of one row share no beginning."""
        if self.detail == CLASSES:
            return {}
        rows: dict[tuple[float, int], list[int]] = defaultdict(list)
        for cell, _ in self.aggregate.root.all_cells():
            rows[row_of(cell), int(self.network.vertices.site[cell.vertex])].append(cell.vertex)
        labels: dict[int, str] = {}
        for vertices in rows.values():
            names = [self.network.name(v) for v in vertices]
            if vertices[0] < self.network.fabric.num_hosts or len(names) > 24 or max(map(len, names)) > 10:
                names = short_names(names)
            labels |= dict(zip(vertices, names, strict=True))
        return labels

    # Sizes

    def _sizes(self) -> PictureSizes:
        network = self.network
        if self.detail == CLASSES:
            return PictureSizes(
                width=_card_width,
                host_height=hosts.CARD_HEIGHT,
                switch_height=40.0,
                gap=10.0,
                max_pitch=60.0,
                row_gap=lambda row, width: 92.0 + self._band_room(row),
            )
        num_hosts, is_full = network.fabric.num_hosts, self.detail == FULL
        compact = min(72.0, max(22.0, 1500.0 / num_hosts)), hosts.COMPACT_HEIGHT
        sizes = {v: hosts.inside_size(network, v, self.inside) if is_full else compact for v in range(num_hosts)}
        longest = max((len(text) for v, text in self.labels.items() if v >= num_hosts), default=2)
        switch = min(96.0, max(28.0, longest * 6.4 + 8))

        def width(cell: Cell) -> float:
            if cell.is_host:
                return sizes[cell.vertex][0]
            if cell.kind != DeviceKind.NVSWITCH:
                return switch
            # An NVSwitch below its hosts is a bar as wide as they are.
            a, b = network.vertex_of[network.cables.a], network.vertex_of[network.cables.b]
            joined = np.unique(np.concatenate((b[a == cell.vertex], a[b == cell.vertex])))
            return sum(sizes[host][0] + 4 for host in joined.tolist())

        return PictureSizes(
            width=width,
            host_height=max(height for _, height in sizes.values()),
            switch_height=26.0,
            gap=18.0 if is_full else 4.0,
            max_pitch=190.0,
            row_gap=self._row_gap,
        )

    def _row_gap(self, row: float, width: float) -> float:
        """Return the room above a row; wide fans need more height to stay distinct."""
        if row < 0:
            return 44.0
        tier = Tier.ACCESS if row == 0 else Tier.LEAF_SPINE if row == 1 else Tier.SPINE_CORE
        many = sum(b.tier == tier for b in self.bundles)
        fan = 0.28 * width / max(1, len(self.aggregate.root.groups)) if row == 0 else 0.13 * width
        return max(92.0, min(fan, 56.0 + many * 1.6, 215.0)) + self._band_room(row)

    def _band_room(self, row: float) -> float:
        """Return the room above a row for the band of optical circuits, if it lies there."""
        return BAND if row == 2 and any(b.tier == Tier.OPTICAL for b in self.bundles) else 0.0

    def _headroom(self) -> float:
        """Return the room kept above the top row for arcs between its switches."""
        rows = [row_of(cell) for cell, _ in self.aggregate.root.all_cells()]
        top = max(rows)
        over = any(b.tier in (Tier.WAN, Tier.GROUP_LOCAL, Tier.GROUP_GLOBAL, Tier.OPTICAL) for b in self.bundles)
        return 74.0 if over and top != int(top) + 0.5 else 22.0

    # Boxes

    def _frame(self, frame: GroupFrame) -> None:
        group = frame.group
        top = self.place.rows[self._top_row(group)] - GROUP_PAD - (6 if self.detail == CLASSES else 0)
        bottom = self.place.bottom + frame.depth * (CAPTION + 4) + (18 if self.detail == FULL else 4)
        look = "frame" if group.level != 0 else "frame inner"
        if group.count > 1:
            for step in (10.0, 5.0):
                x, y = frame.x + step, top - step
                self.scene.box(x, y, frame.width, bottom - top, look, radius=7, layer="groups")
        self.scene.box(frame.x, top, frame.width, bottom - top, look, radius=7, layer="groups")
        names, room = group_names(self.network, group), frame.width - 12
        text = next(
            (name for name in names if text_width(name, SIZES["grp"]) <= room), fit(names[-1], room, SIZES["grp"])
        )
        self.scene.text(frame.x + frame.width / 2, bottom - 8, text, "grp key" if group.count > 1 else "grp")

    def _top_row(self, group: PictureGroup) -> float:
        return max(row_of(cell) for cell, _ in group.all_cells())

    def _cell(self, cell: Cell) -> None:
        x, y = self.place.left[cell.id], self.place.rows[row_of(cell)]
        if not cell.is_host:
            self._switch(cell, x, y)
        elif self.detail == CLASSES:
            self.anchors[cell.id] = hosts.draw_card(self.scene, self.network, cell, x, y)
        elif self.detail == FULL:
            self.anchors |= hosts.draw_inside(self.scene, self.network, cell, x, y, self.inside)
            if self.network.fabric.num_hosts > 1:
                width, height = hosts.inside_size(self.network, cell.vertex, self.inside)
                name = fit(self.network.name(cell.vertex), width, SIZES["lab"])
                self.scene.text(x + width / 2, y + height + 13, name, "lab")
        else:
            width = self.place.width[cell.id]
            self.anchors |= hosts.draw_compact(self.scene, self.network, cell, x, y, width, self.labels[cell.vertex])

    def _switch(self, cell: Cell, x: float, y: float) -> None:
        width, height = self.place.width[cell.id], self.place.sizes.switch_height
        many = self.detail == CLASSES and cell.count > 1
        if many:
            width -= 8
            for step in (8.0, 4.0):
                self.scene.box(x + step, y - step, width, height, f"box {KIND_LOOKS[cell.kind]}")
        look = f"box {KIND_LOOKS[cell.kind]}" + (f" s{cell.lane % NUM_LANES}" if cell.lane >= 0 else "")
        key = f"c{cell.id}" if self.detail == CLASSES else f"v{cell.vertex}"
        self.scene.box(x, y, width, height, look, key, cell_title(self.network, cell))
        self._switch_text(cell, x + width / 2, y, width)
        device = int(self.network.vertices.device[cell.vertex])
        end = cell.id if self.detail == CLASSES else device
        spread = width / 2 - 6 if cell.kind in (DeviceKind.NVSWITCH, DeviceKind.OCS) else 0.0
        name = f"{cell.count:,} × {switch_word(self.network, cell)}" if many else self.network.name(cell.vertex)
        self.anchors[end] = Anchor(x + width / 2, y - (8 if many else 0), y + height, key, name, spread)

    def _switch_text(self, cell: Cell, x: float, y: float, width: float) -> None:
        if self.detail != CLASSES:
            label = self.labels[cell.vertex]
            if cell.kind == DeviceKind.NVSWITCH:
                label = self.network.name(cell.vertex)
            self.scene.text(x, y + 16.5, fit(label, width - 4, SIZES["lab"]), "lab")
            return
        fabric = self.network.fabric
        part = fabric.parts[fabric.devices.part[self.network.vertices.device[cell.vertex]]]
        word = switch_word(self.network, cell)
        head = f"{cell.count:,} × {word}" if cell.count > 1 else word
        if cell.lane >= 0:
            part = f"{self.network.lanes} {cell.lane}"
        self.scene.text(x, y + 17, fit(head, width - 6, SIZES["cap"]), "cap")
        self.scene.text(x, y + 32, fit(part, width - 4, SIZES["lab"]), "lab")

    # Wires

    def _wires(self) -> None:
        pen = Pen.of(self.bundles, bundled=self.detail == CLASSES)
        band = self._optical_band()
        optical = [b for b in self.bundles if b.tier == Tier.OPTICAL]
        between: Counter[tuple[int, int]] = Counter()
        for wire in sorted(self.bundles, key=lambda b: (b.state, b.load or 0.0)):
            a, b = self.anchors.get(wire.a), self.anchors.get(wire.b)
            if a is None or b is None:
                continue
            aside = between[wire.a, wire.b] * (9.0 if self.detail == CLASSES else 3.0)
            between[wire.a, wire.b] += 1
            a, b = a.moved(aside), b.moved(aside)
            title = bundle_title(self.network, wire, a.name, b.name)
            path = self._peer_path(wire, a, b)
            if wire.tier == Tier.OPTICAL and band is not None:
                share = (optical.index(wire) + 1) / (len(optical) + 1)
                apart = 16.0 if wire.a == wire.b else 0.0
                path = through(a.moved(-apart), b.moved(apart), band, share)
            if path:
                pen.draw(self.scene, wire, path, a, b, title)
            else:
                connect(self.scene, pen, wire, a, b, title)

    def _peer_path(self, wire: CableBundle, a: Anchor, b: Anchor) -> str:
        """Return the way between things of one row where it is a special one, or nothing."""
        if wire.a == wire.b:
            far = wire.tier in LONG_TIERS
            return loop(a, 96.0 if far else 56.0, 44.0 if far else 16.0)
        if wire.tier == Tier.WAN and a.top == b.top:
            return arc(a, b, most=40.0)
        if wire.tier == Tier.SOCKET:
            devices = self.network.fabric.devices
            many_sockets = bool((devices.local[devices.kind == DeviceKind.CPU] > 1).any())
            return arc(a, b, most=24.0) if many_sockets else straight(a, b)
        return ""

    def _optical_band(self) -> Anchor | None:
        """Draw the band below the optical switches in which circuits run, if there are circuits."""
        row = next((row for row in self.place.rows if row % 1), None)
        if row is None or not any(b.tier == Tier.OPTICAL for b in self.bundles):
            return None
        top, height, x = self.place.rows[row], self.place.row_height(row), self.place.total_width / 2
        half = self.place.total_width * 0.36
        self.scene.box(x - half, top - 10, 2 * half, height + BAND + 16, "frame", radius=7, layer="groups")
        return Anchor(x, top + height + 8, top + height + BAND + 6, "", "", half - 12)

    def _cell_id(self, end: int) -> int:
        """Return the cell of a bundle's end."""
        if self.detail == CLASSES:
            return end
        return int(self.aggregate.cell_of[self.network.vertex_of[end]])

    def _count_labels(self) -> None:
        """Write above each group how many cables leave it upwards, by rate."""
        leaving: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
        where: dict[tuple[int, int], tuple[PictureGroup, list[int]]] = {}
        for wire in self.bundles:
            a, b = self._cell_id(wire.a), self._cell_id(wire.b)
            row_a, row_b = row_of(self.place.cells[a]), row_of(self.place.cells[b])
            if row_a == row_b:
                if wire.tier == Tier.WAN and (a != b or self.detail == CLASSES):
                    self._wan_label(wire, self.anchors[wire.a], self.anchors[wire.b])
                continue
            low = a if row_a < row_b else b
            group = self.place.owner[low]
            if wire.total % group.total or wire.state == DOWN or group.level == -2:
                continue
            key = (id(group), wire.tier)
            leaving[key].append((wire.rate_Bps, wire.total // group.total))
            where.setdefault(key, (group, []))[1].append(low)
        taken: Counter[tuple[int, float]] = Counter()
        for key, (group, cells) in where.items():
            x = sum(self.place.centre(c) for c in cells) / len(cells)
            row = row_of(self.place.cells[cells[0]])
            over = 0.0 if row < self._top_row(group) else GROUP_PAD + 6 + (10 if group.count > 1 else 0)
            y = self.place.rows[row] - (14 if not over else 2) - over - 14 * taken[id(group), row]
            taken[id(group), row] += 1
            self.scene.text(x, y, rates_text(leaving[key]), "cnt")

    def _wan_label(self, wire: CableBundle, a: Anchor, b: Anchor) -> None:
        reach = min(40.0, 10 + abs(a.x - b.x) * 0.28) + 7
        rate = units.show_rate(wire.rate_Bps)
        text = f"{wire.total:,} × {rate}" if wire.total > 1 else rate
        self.scene.text((a.x + b.x) / 2, min(a.top, b.top) - reach, text, "cnt")

    # Captions

    def _captions(self) -> list[Caption]:
        captions = [self._row_caption(row) for row in self.place.rows]
        gaps: dict[tuple[float, float, int], list[CableBundle]] = defaultdict(list)
        for wire in self.bundles:
            low, high = sorted(row_of(self.place.cells[self._cell_id(end)]) for end in (wire.a, wire.b))
            if high > 0:
                gaps[low, high, wire.tier].append(wire)
        used: Counter[float] = Counter()
        for (low, high, _), wires in sorted(gaps.items()):
            below = self.place.rows[high] + self.place.row_height(high)
            middle = (below + self.place.rows[low]) / 2 if high - low <= 1 else self.place.rows[low] - 34
            if low == high:
                middle = self.place.rows[low] - 22
            captions.append(Caption(middle + 16 * used[middle], self._gap_lines(wires)))
            used[middle] += 2
        if self.detail == FULL:
            top = self.place.rows[0.0]
            first = next(cell for cell in self.place.cells.values() if cell.is_host)
            captions = [c for c in captions if c.row != 0.0]
            for kind, middle in hosts.row_centres(self.network, first.vertex, self.inside):
                captions.append(Caption(top + middle, self._kind_lines(kind), strong=True))
        return captions

    def _row_caption(self, row: float) -> Caption:
        cells = [cell for cell in self.place.cells.values() if row_of(cell) == row]
        total = sum(cell.total for cell in cells)
        fabric = self.network.fabric
        if row == 0:
            lines = [counted(total, "host"), counted(fabric.num_gpus, gpu_word(fabric))]
        else:
            parts = {fabric.parts[fabric.devices.part[self.network.vertices.device[c.vertex]]]: None for c in cells}
            lines = [counted_switches(total, switch_word(self.network, cells[0])), ", ".join(parts)]
        return Caption(self.place.rows[row] + self.place.row_height(row) / 2, lines, row, True)

    def _gap_lines(self, wires: list[CableBundle]) -> list[str]:
        media = {self.network.fabric.media[wire.medium]: None for wire in wires}
        tiers = {tier_word(wire.tier): None for wire in wires}
        if wires[0].tier == Tier.WAN:
            media = {}
        return [rates_text((w.rate_Bps, w.total) for w in wires), f"{', '.join(media)} {', '.join(tiers)}".strip()]

    def _kind_lines(self, kind: DeviceKind) -> list[str]:
        fabric = self.network.fabric
        mine = np.flatnonzero((fabric.devices.kind == kind) & (fabric.devices.host >= 0))
        parts = Counter(fabric.parts[part] for part in fabric.devices.part[mine])
        if kind == DeviceKind.PCIE:
            return [counted_switches(len(mine), KIND_WORDS[kind])]
        show = counted_switches if kind == DeviceKind.NVSWITCH else counted
        return [show(len(mine), KIND_WORDS[kind]), ", ".join(part for part, _ in parts.most_common(2))]
