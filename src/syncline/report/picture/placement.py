"""Where groups, hosts and switches of a tiered picture stand.

Rows are common to the whole picture, so that every leaf is level with every other; groups stand side by side in
frames. Only widths are nested: a group is as wide as its hosts, its inner groups or its widest row of switches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from syncline.fabric.fabric import DeviceKind
from syncline.report.picture.aggregate import Aggregate, Cell, PictureGroup

BELOW_HOSTS = -1.0
GROUP_GAP, GROUP_PAD, CAPTION = 16.0, 12.0, 19.0


@dataclass(frozen=True)
class PictureSizes:
    """How large things are at one level of detail. Widths depend on the cell, heights on the row."""

    width: Callable[[Cell], float]
    host_height: float
    switch_height: float
    gap: float
    """Between neighbours of a row."""
    max_pitch: float
    """Switches of a row stand at most this far apart."""
    row_gap: Callable[[float, float], float]
    """Room above a row for its wires, in a picture of some width."""


@dataclass(frozen=True)
class GroupFrame:
    """A group's frame; `depth` counts the frames inside it."""

    group: PictureGroup
    x: float
    width: float
    depth: int


@dataclass
class PicturePlacement:
    """Left edges and widths of cells, rows with their tops, and frames."""

    sizes: PictureSizes
    left: dict[int, float] = field(default_factory=dict)
    width: dict[int, float] = field(default_factory=dict)
    cells: dict[int, Cell] = field(default_factory=dict)
    owner: dict[int, PictureGroup] = field(default_factory=dict)
    frames: list[GroupFrame] = field(default_factory=list)
    rows: dict[float, float] = field(default_factory=dict)
    total_width: float = 0.0

    def row_height(self, row: float) -> float:
        return self.sizes.host_height if row == 0 else self.sizes.switch_height

    def centre(self, cell: int) -> float:
        return self.left[cell] + self.width[cell] / 2

    @property
    def bottom(self) -> float:
        """The lower edge of the lowest row."""
        lowest = min(self.rows)
        return self.rows[lowest] + self.row_height(lowest)


def row_of(cell: Cell) -> float:
    """Return the row a cell stands in: hosts 0, NVSwitches of many hosts below them, optical switches above all."""
    if cell.is_host:
        return 0.0
    if cell.kind == DeviceKind.NVSWITCH:
        return BELOW_HOSTS
    return cell.level + 0.5 if cell.kind == DeviceKind.OCS else float(cell.level)


def place(aggregate: Aggregate, sizes: PictureSizes, headroom: float) -> PicturePlacement:
    """Return the places of everything; `headroom` is kept free above the top row."""
    placement = PicturePlacement(sizes)
    width = _width(aggregate.root, sizes)
    _place(placement, aggregate.root, 0.0, width)
    placement.total_width = width
    y = headroom
    for row in sorted({row_of(cell) for cell in placement.cells.values()}, reverse=True):
        y += sizes.row_gap(row, width) if placement.rows else 0.0
        placement.rows[row] = y
        y += placement.row_height(row)
    return placement


def depth_of(group: PictureGroup) -> int:
    """Return how many frames deep a group is."""
    return 1 + max((depth_of(inner) for inner in group.groups), default=0)


def _rows(group: PictureGroup) -> dict[float, list[Cell]]:
    rows: dict[float, list[Cell]] = defaultdict(list)
    for cell in group.cells:
        rows[row_of(cell)].append(cell)
    return rows


def _width(group: PictureGroup, sizes: PictureSizes) -> float:
    """Return the width of a group with its frame (the whole picture has none)."""
    rows = _rows(group)
    switches = [[sizes.width(cell) for cell in cells] for row, cells in rows.items() if row]
    widest = max((sum(widths) + sizes.gap * (len(widths) - 1) for widths in switches), default=0.0)
    inner = max(_floor_width(group, rows, sizes), widest)
    return inner + (0.0 if group.level == -2 else 2 * GROUP_PAD)


def _floor_width(group: PictureGroup, rows: dict[float, list[Cell]], sizes: PictureSizes) -> float:
    """Return the width of what stands on the floor of a group: its own hosts and its inner groups."""
    own = [sizes.width(cell) for cell in rows.get(0.0, [])]
    inner = [_width(g, sizes) + _stack(g) for g in group.groups]
    room = sum(own) + sizes.gap * max(0, len(own) - 1) + sum(inner) + GROUP_GAP * max(0, len(inner) - 1)
    return room + (GROUP_GAP if own and inner else 0.0)


def _stack(group: PictureGroup) -> float:
    """Return the room that the cards behind a repeated group take at its right."""
    return 10.0 if group.count > 1 else 0.0


def _place(placement: PicturePlacement, group: PictureGroup, x: float, width: float) -> None:
    sizes, rows = placement.sizes, _rows(group)
    if group.level != -2:
        placement.frames.append(GroupFrame(group, x, width, depth_of(group)))
        x, width = x + GROUP_PAD, width - 2 * GROUP_PAD
    at = x + (width - _floor_width(group, rows, sizes)) / 2
    for inner in group.groups:
        inner_width = _width(inner, sizes)
        _place(placement, inner, at, inner_width)
        at += inner_width + _stack(inner) + GROUP_GAP
    for row, cells in rows.items():
        widths = [sizes.width(cell) for cell in cells]
        start, gap = at, sizes.gap
        if row:  # switches spread over the width of their group, not further apart than `max_pitch`
            gap = min(max(0.0, width - sum(widths)) / len(cells), sizes.max_pitch)
            start = x + (width - sum(widths) - gap * (len(cells) - 1)) / 2
        for cell, own in zip(cells, widths, strict=True):
            placement.left[cell.id], placement.width[cell.id] = start, own
            placement.cells[cell.id], placement.owner[cell.id] = cell, group
            start += own + gap
