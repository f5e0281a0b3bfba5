"""Hosts as drawn: with everything inside, as a small box with GPUs and ports, or as a card that stands for many."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from syncline.fabric.fabric import DeviceKind, Tier
from syncline.report.chart.svg import element, num
from syncline.report.picture.aggregate import Cell
from syncline.report.picture.network import DrawnNetwork, Ints
from syncline.report.picture.palette import KIND_LOOKS, NUM_LANES, SIZES
from syncline.report.picture.scene import Scene, at, fit
from syncline.report.picture.wires import Anchor
from syncline.report.picture.wording import KIND_WORDS, cell_title, device_title, host_lines

ROWS = (DeviceKind.NIC, DeviceKind.PCIE, DeviceKind.CPU, DeviceKind.GPU, DeviceKind.NVSWITCH)
"""What stands above what inside a host: the network is above, scale-up links below."""


@dataclass(frozen=True)
class HostInside:
    """Sizes of the inside of a host: `pitch` between GPUs, `height` of a device, `gap` between rows."""

    pitch: float
    height: float
    gap: float
    pad: float
    words: bool
    """Whether devices carry their name and part, not only their number."""


SMALL = HostInside(pitch=21.0, height=16.0, gap=19.0, pad=10.0, words=False)
LARGE = HostInside(pitch=104.0, height=42.0, gap=60.0, pad=26.0, words=True)
COMPACT_HEIGHT = 62.0
CARD_WIDTH, CARD_HEIGHT = 172.0, 92.0
ARC_ROOM = 40.0


def inside_size(network: DrawnNetwork, host: int, size: HostInside) -> tuple[float, float]:
    """Return the width and height of a host drawn with its inside."""
    rows = _rows(network, host)
    width = max(_row_width(kind, len(devices), size) for kind, devices in rows.items()) + 2 * size.pad
    height = len(rows) * size.height + (len(rows) - 1) * size.gap + 2 * size.pad
    return width, height + (ARC_ROOM if _has_peers(network, host) else 0.0)


def row_centres(network: DrawnNetwork, host: int, size: HostInside) -> list[tuple[DeviceKind, float]]:
    """Return the kinds of a host's rows with their middle, measured from the host's top."""
    return [
        (kind, size.pad + i * (size.height + size.gap) + size.height / 2) for i, kind in enumerate(_rows(network, host))
    ]


def draw_inside(
    scene: Scene, network: DrawnNetwork, cell: Cell, x: float, y: float, size: HostInside
) -> dict[int, Anchor]:
    """Draw a host with its inside; returns an anchor per device."""
    host = cell.vertex
    width, height = inside_size(network, host, size)
    title = cell_title(network, cell)
    scene.box(x, y, width, height, "box host", f"v{host}", title, 6.0, layer="groups")
    anchors: dict[int, Anchor] = {}
    lanes = nic_lanes(network)
    rows = _rows(network, host)
    places = _columns(network, rows, x, width, size)
    for i, (kind, devices) in enumerate(rows.items()):
        top = y + size.pad + i * (size.height + size.gap)
        for device in devices:
            bar = kind == DeviceKind.NVSWITCH and len(devices) == 1
            box_width = width - 2 * size.pad if bar else _device_width(kind, size)
            centre = places[device]
            anchors[device] = _device(scene, network, device, centre, top, box_width, lanes, size)
    return anchors


def _device(
    scene: Scene, network: DrawnNetwork, device: int, x: float, top: float, width: float, lanes: Ints, size: HostInside
) -> Anchor:
    fabric = network.fabric
    kind = DeviceKind(int(fabric.devices.kind[device]))
    look = f"box {KIND_LOOKS[kind]}"
    if lanes[device] >= 0:
        look += f" s{lanes[device] % NUM_LANES}"
    title = device_title(network, device)
    scene.box(x - width / 2, top, width, size.height, look, f"d{device}", title, 2.5)
    middle = top + size.height / 2
    local = int(fabric.devices.local[device])
    if size.words:
        word = f"{KIND_WORDS[kind]} {local}"
        part = fabric.parts[fabric.devices.part[device]]
        named = part != KIND_WORDS[kind]
        scene.text(x, middle - (3 if named else -4), fit(word, width - 4, SIZES["cap"]), "cap")
        if named:
            scene.text(x, middle + 11, fit(part, width - 4, SIZES["tiny"]), "tiny")
    else:
        word = {DeviceKind.NVSWITCH: "NVSwitch", DeviceKind.CPU: f"CPU {local}", DeviceKind.PCIE: "PCIe"}.get(
            kind, str(local)
        )
        scene.text(x, middle + 3, fit(word, width - 2, SIZES["tiny"]), "tiny")
    spread = width / 2 - 4 if kind == DeviceKind.NVSWITCH else 0.0
    return Anchor(x, top, top + size.height, f"d{device}", fabric.device_name(device), spread)


def draw_compact(
    scene: Scene, network: DrawnNetwork, cell: Cell, x: float, y: float, width: float, label: str
) -> dict[int, Anchor]:
    """Draw a host as a small box: NIC ports as ticks on top, GPUs as squares; returns anchors of NICs and GPUs."""
    fabric = network.fabric
    host, lanes = cell.vertex, nic_lanes(network)
    mine = np.flatnonzero(fabric.devices.host == host)
    nics = [int(d) for d in mine if fabric.devices.kind[d] == DeviceKind.NIC]
    gpus = [int(d) for d in mine if fabric.devices.kind[d] == DeviceKind.GPU]
    anchors: dict[int, Anchor] = {}
    parts = []
    key, name = f"v{host}", network.name(host)
    for i, nic in enumerate(nics):
        centre = x + width * (i + 0.5) / len(nics)
        look = f"w l{lanes[nic] % NUM_LANES}" if lanes[nic] >= 0 else "w t3"
        parts.append(element("path", class_=look, d=f"M{at(centre, y)}v5"))
        anchors[nic] = Anchor(centre, y, y, key, fabric.device_name(nic))
    for i, gpu in enumerate(gpus):
        centre = x + width * (i + 0.5) / len(gpus)
        anchors[gpu] = Anchor(centre, y, y + COMPACT_HEIGHT, key, f"{name}/gpu-{i}")
    parts.append(_squares(len(gpus), x + 2, y + 9, width - 4, 32.0))
    title = cell_title(network, cell)
    scene.box(x, y, width, COMPACT_HEIGHT, "box host", key, title, parts=tuple(parts))
    scene.text(x + width / 2, y + COMPACT_HEIGHT - 6, fit(label, width - 1, SIZES["tiny"]), "tiny")
    return anchors


def draw_card(scene: Scene, network: DrawnNetwork, cell: Cell, x: float, y: float) -> Anchor:
    """Draw a card that stands for equal hosts."""
    key = f"c{cell.id}"
    lines = host_lines(network, cell.vertex)
    lanes = int(network.cables.lane.max(initial=-1)) + 1
    gpus = int(((network.fabric.devices.host == cell.vertex) & (network.fabric.devices.kind == DeviceKind.GPU)).sum())
    if cell.count > 1:
        for step in (8.0, 4.0):
            scene.box(x + step, y - step, CARD_WIDTH, CARD_HEIGHT, "box host", radius=4.0)
    parts = (_squares(gpus, x + 8, y + 66, CARD_WIDTH - 16, 20.0),)
    scene.box(x, y, CARD_WIDTH, CARD_HEIGHT, "box host", key, cell_title(network, cell), 4.0, parts)
    head = f"{cell.count:,} × host" if cell.count > 1 else network.name(cell.vertex)
    scene.text(x + CARD_WIDTH / 2, y + 19, fit(head, CARD_WIDTH - 8, SIZES["cap"]), "cap")
    for i, line in enumerate(lines[:3]):
        scene.text(x + CARD_WIDTH / 2, y + 34 + 13 * i, fit(line, CARD_WIDTH - 8, SIZES["lab"]), "lab")
    return Anchor(
        x + CARD_WIDTH / 2, y - (8 if cell.count > 1 else 0), y + CARD_HEIGHT, key, head, CARD_WIDTH / 2 - 20, lanes
    )


def nic_lanes(network: DrawnNetwork) -> Ints:
    """Return the lane of each NIC, -1 where its ports serve several."""
    cables = network.cables
    access = np.flatnonzero((cables.tier == Tier.ACCESS) & (cables.lane >= 0))
    low = np.full(len(network.fabric.devices), 1 << 30)
    high = np.full(len(network.fabric.devices), -1)
    for ends in (cables.a[access], cables.b[access]):
        np.minimum.at(low, ends, cables.lane[access])
        np.maximum.at(high, ends, cables.lane[access])
    is_nic = network.fabric.devices.kind == DeviceKind.NIC
    return np.where(is_nic & (low == high), high, -1)


def _rows(network: DrawnNetwork, host: int) -> dict[DeviceKind, list[int]]:
    devices = network.fabric.devices
    mine = np.flatnonzero(devices.host == host)
    rows = {kind: [int(d) for d in mine if devices.kind[d] == kind] for kind in ROWS}
    return {kind: row for kind, row in rows.items() if row}


def _has_peers(network: DrawnNetwork, host: int) -> bool:
    """Say whether GPUs of the host are joined directly, by arcs below their row."""
    devices, cables = network.fabric.devices, network.cables
    gpu = (devices.kind == DeviceKind.GPU) & (devices.host == host)
    return bool((gpu[cables.a] & gpu[cables.b]).any())


def _device_width(kind: DeviceKind, size: HostInside) -> float:
    if kind in (DeviceKind.CPU, DeviceKind.PCIE):
        return 116.0 if size.words else 30.0
    return size.pitch - (14.0 if size.words else 4.0)


def _row_width(kind: DeviceKind, count: int, size: HostInside) -> float:
    return count * max(size.pitch, _device_width(kind, size) + 6)


def _columns(
    network: DrawnNetwork, rows: dict[DeviceKind, list[int]], x: float, width: float, size: HostInside
) -> dict[int, float]:
    """Return the middle of each device: GPUs and NICs evenly, switches and sockets above or below their own."""
    left, room = x + size.pad, width - 2 * size.pad
    at: dict[int, float] = {}
    for kind in (DeviceKind.GPU, DeviceKind.NIC, DeviceKind.NVSWITCH):
        devices = rows.get(kind, [])
        at |= {device: left + room * (i + 0.5) / len(devices) for i, device in enumerate(devices)}
    for kind in (DeviceKind.PCIE, DeviceKind.CPU):
        devices = rows.get(kind, [])
        wished = [_mean_place(network, device, at) for device in devices]
        gap = _device_width(kind, size) + 4
        at |= dict(zip(devices, _apart(wished, gap, left, left + room), strict=True))
    return at


def _mean_place(network: DrawnNetwork, device: int, at: dict[int, float]) -> float | None:
    fabric = network.fabric
    places = [at[n] for n in fabric.links.dst[fabric.out_links(device)].tolist() if n in at]
    return sum(places) / len(places) if places else None


def _apart(wished: list[float | None], gap: float, left: float, right: float) -> list[float]:
    """Keep places in order and at least `gap` apart, between left and right if there is room."""
    count = len(wished)
    even = [left + (right - left) * (i + 0.5) / count for i in range(count)]
    places = [even[i] if place is None else place for i, place in enumerate(wished)]
    ordered = sorted(places)
    return even if any(b - a < gap for a, b in pairwise(ordered)) else places


def _squares(count: int, x: float, y: float, width: float, height: float) -> Markup:
    """Return `count` GPUs as squares laid in a box, as one path."""
    columns = max(1, min(count, int(width // 9)))
    while columns < count and -(-count // columns) * 8 > height:
        columns += 1
    columns = max((d for d in range(1, columns + 1) if count % d == 0 and count // d * 8 <= height), default=columns)
    rows = -(-count // columns)
    step = min(11.0, width / columns, height / max(rows, 1))
    side = num(step - 1.6)
    left, top = x + (width - columns * step) / 2 + 0.8, y + (height - rows * step) / 2
    corners = ((left + i % columns * step, top + i // columns * step) for i in range(count))
    path = "".join(f"M{at(*corner)}h{side}v{side}h-{side}z" for corner in corners)
    return element("path", class_="gpu", d=path or f"M{at(x, y)}")
