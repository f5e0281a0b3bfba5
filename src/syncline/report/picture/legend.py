"""The legend below a picture: rails, kinds of links with their rates and counts, failed and degraded links, load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.describe import units
from syncline.report.picture.aggregate import CableBundle, bundle
from syncline.report.picture.drawing import Drawing
from syncline.report.picture.network import DEGRADED, DOWN, DrawnNetwork
from syncline.report.picture.palette import NUM_LANES, NUM_LOADS, SIZES
from syncline.report.picture.scene import DrawnPath, Scene, counted, num, text_width
from syncline.report.picture.wires import Pen, wire_look
from syncline.report.picture.wording import tier_word

MAX_LINK_KINDS = 14
_LINE, _SAMPLE, _GAP = 20.0, 26.0, 22.0


@dataclass(frozen=True)
class LegendEntry:
    """One sample with its text; `width` is the sample line's."""

    look: str
    text: str
    width: float = 2.0


def link_kinds(network: DrawnNetwork) -> tuple[CableBundle, ...]:
    """Return all cables of a fabric by tier, medium, rate and state, in order of tier."""
    nowhere = np.zeros(len(network.fabric.devices), np.int64)
    found = bundle(network.cables, nowhere, np.ones(len(network.cables), bool), lanes=False)
    return tuple(sorted(found, key=lambda b: (b.tier, b.state, -b.total, -b.rate_Bps)))


def rows_of(network: DrawnNetwork, drawing: Drawing) -> list[list[LegendEntry]]:
    """Return the legend's rows: lanes, link kinds, then what is wrong or how loads are coloured."""
    rows = []
    lanes = sorted({int(lane) for lane in np.unique(network.cables.lane) if lane >= 0})
    if drawing.lane_names:
        rows.append([LegendEntry(f"w l{i % NUM_LANES}", name, 3.0) for i, name in enumerate(drawing.lane_names)])
    elif lanes and network.cables.load is None:
        shown = lanes[: 2 * NUM_LANES]
        entries = [LegendEntry(f"w l{lane % NUM_LANES}", f"{network.lanes} {lane}", 3.0) for lane in shown]
        rows.append(
            entries + ([LegendEntry("", f"and {len(lanes) - len(shown)} more")] if len(lanes) > len(shown) else [])
        )
    rows.append(_links(network))
    if network.cables.load is not None:
        steps = [LegendEntry(f"w u{i}", f"{i * 100 // NUM_LOADS}%", 4.0) for i in range(NUM_LOADS)]
        rows.append([LegendEntry("", "load of a link, from"), *steps])
    return rows


def draw_legend(scene: Scene, rows: list[list[LegendEntry]], x: float, y: float, width: float) -> float:
    """Draw the rows from y downwards, each wrapped at the width; returns where they end."""
    for row in rows:
        at = x
        for entry in row:
            sample = _SAMPLE if entry.look else 0.0
            needed = sample + text_width(entry.text, SIZES["leg"])
            if at > x and at + needed > x + width:
                at, y = x, y + _LINE
            if entry.look:
                path = f"M{num(at)} {num(y)}h{num(_SAMPLE - 7)}"
                scene.layers["wires"].append(DrawnPath(path, entry.look, width=entry.width))
            scene.text(at + sample, y + 4, entry.text, "leg", "start")
            at += needed + _GAP
        y += _LINE + 2
    return y


def _links(network: DrawnNetwork) -> list[LegendEntry]:
    kinds = link_kinds(network)
    pen = Pen.of((), bundled=False)
    entries = []
    for kind in kinds[:MAX_LINK_KINDS]:
        medium = network.fabric.media[kind.medium]
        state = {DOWN: ", down", DEGRADED: ", degraded"}.get(kind.state, "")
        rate = units.show_rate(kind.rate_Bps)
        text = f"{tier_word(kind.tier)}: {kind.total:,} × {rate} {medium}{state}"
        look = wire_look(kind) if kind.load is None or kind.state else f"t{kind.tier}"
        entries.append(LegendEntry(f"w {look}", text, max(1.2, pen.width(kind))))
    if len(kinds) > MAX_LINK_KINDS:
        rest = sum(kind.total for kind in kinds[MAX_LINK_KINDS:])
        entries.append(LegendEntry("", f"and {counted(rest, 'cable')} of {len(kinds) - MAX_LINK_KINDS} more kinds"))
    return entries
