"""What surrounds a picture: title and counts above, captions at the left, the legend below."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from syncline.describe import units
from syncline.describe.units import counted
from syncline.fabric.fabric import DeviceKind
from syncline.report.chart.svg import Svg, num
from syncline.report.picture.aggregate import CableBundle, bundle
from syncline.report.picture.network import DEGRADED, DOWN, DrawnNetwork
from syncline.report.picture.palette import NUM_LANES, NUM_LOADS, SIZES, style_sheet
from syncline.report.picture.scene import Caption, Scene, at, fit, text_width
from syncline.report.picture.wires import Pen, wire_look
from syncline.report.picture.wording import counted_switches, gpu_word, level_word, tier_word

MARGIN, HEADER, MIN_WIDTH = 28.0, 84.0, 860.0
MAX_LINK_KINDS = 14
_LINE, _SAMPLE, _LEGEND_LINE, _LEGEND_GAP = 14.0, 26.0, 20.0, 22.0


class Filter(NamedTuple):
    """Wires that a reader may hide: those whose `kind` ("tier" or "lane") is `value`."""

    kind: str
    value: int
    label: str
    look: str


@dataclass(frozen=True)
class Sheet:
    """A finished picture, and what a reader of its page may hide, by heading."""

    svg: Markup
    filters: dict[str, list[Filter]]


class LegendEntry(NamedTuple):
    """One sample with its text; `width` is the sample line's."""

    look: str
    text: str
    width: float = 2.0


def frame(network: DrawnNetwork, scene: Scene) -> Sheet:
    """Return the scene with title, captions and legend."""
    around = Scene()
    captions = max((text_width(line, SIZES["cap"]) for c in scene.captions for line in c.lines), default=0.0)
    left = MARGIN + (min(captions, 260.0) + 26 if scene.captions else 0.0)
    width = max(left + scene.width + MARGIN, MIN_WIDTH)
    title, counts = network.fabric.name, summary(network)
    around.text(MARGIN, 36, fit(title, width - 2 * MARGIN, SIZES["title"]), "title", "start")
    around.text(MARGIN, 57, fit(counts, width - 2 * MARGIN, SIZES["sub"]), "sub", "start")
    broken = [(int((network.cables.state == state).sum()), word) for state, word in _STATES.items()]
    if any(n for n, _ in broken):
        words = ", ".join(f"{counted(n, 'cable')} {word}" for n, word in broken if n)
        around.text(MARGIN, 75, words, "sub bad", "start")
    y = HEADER + max(scene.height, _draw_captions(around, scene.captions, left - MARGIN)) + 34
    around.path(f"M{at(MARGIN, y - 14)}H{num(width - MARGIN)}", "rule", layer="groups")
    y = _draw_legend(around, _legend(network, scene), y + 8, width - 2 * MARGIN)
    for note in scene.notes:
        around.text(MARGIN, y + 2, fit(note, width - 2 * MARGIN, SIZES["leg"]), "leg", "start")
        y += 18
    svg = Svg(width, y + 8, f"{title}: {counts}", is_fixed=True, class_="fabric")
    svg.add("style", Markup(style_sheet()))  # noqa: S704 constants
    svg.add("rect", class_="paper", width=width, height=y + 8)
    svg.add("g", around.markup(), class_="around")
    x = left + (width - MARGIN - left - scene.width) / 2
    svg.add("g", scene.markup(), class_="drawing", transform=f"translate({at(x, HEADER)})")
    return Sheet(svg.document(), _filters(network, scene))


_OUTER = {DeviceKind.NVSWITCH: "NVLink switch", DeviceKind.OCS: "optical switch"}
_STATES = {DOWN: "down", DEGRADED: "degraded"}


def _filters(network: DrawnNetwork, scene: Scene) -> dict[str, list[Filter]]:
    """Return what a reader may hide: tiers, and rails, planes or axes."""
    names, word = scene.lane_names, network.lanes
    lanes = [
        Filter("lane", lane, names[lane] if names else f"{word} {lane}", f"l{lane % NUM_LANES}")
        for lane in sorted(scene.lanes)
    ]
    tiers = [Filter("tier", tier, tier_word(tier), f"t{tier}") for tier in sorted(scene.tiers)]
    headings = {"Links": tiers, "Axes" if names else f"{word.capitalize()}s": lanes}
    return {heading: filters for heading, filters in headings.items() if len(filters) > 1}


def summary(network: DrawnNetwork) -> str:
    """Return the counts of a fabric in one line."""
    fabric, vertices = network.fabric, network.vertices
    outer: Counter[str] = Counter()
    for kind, level in zip(vertices.kind[fabric.num_hosts :], vertices.level[fabric.num_hosts :], strict=True):
        outer[
            level_word(network, int(level)) if kind == DeviceKind.SWITCH else _OUTER.get(DeviceKind(int(kind)), "other")
        ] += 1
    switches = [counted_switches(n, word) for word, n in outer.items()]
    cables = int((fabric.links.cable[0::2] >= 0).sum())
    words = [counted(fabric.num_hosts, "host"), counted(fabric.num_gpus, gpu_word(fabric)), *switches]
    return ", ".join(words + ([counted(cables, "cable")] if cables else []))


def _draw_captions(scene: Scene, captions: list[Caption], room: float) -> float:
    """Write captions, each moved down where it would touch the one above; returns where they end."""
    bottom = float("-inf")
    for caption in sorted(captions, key=lambda caption: caption.y):
        half = len(caption.lines) * _LINE / 2
        middle = max(caption.y, bottom + half + 5)
        for i, line in enumerate(caption.lines):
            look = "cap" if caption.strong and i == 0 else "cap2"
            y = HEADER + middle - half + (i + 0.5) * _LINE + 4
            scene.text(MARGIN, y, fit(line, room - 6, SIZES[look]), look, "start")
        bottom = middle + half
    return bottom


def link_kinds(network: DrawnNetwork) -> tuple[CableBundle, ...]:
    """Return all cables of a fabric by tier, medium, rate and state, in order of tier."""
    nowhere = np.zeros(len(network.fabric.devices), np.int64)
    kinds = bundle(network.cables, nowhere, np.ones(len(network.cables), bool), lanes=False)
    return tuple(sorted(kinds, key=lambda b: (b.tier, b.state, -b.total, -b.rate_Bps)))


def _legend(network: DrawnNetwork, scene: Scene) -> list[list[LegendEntry]]:
    """Return the legend's rows: lanes, link kinds, then how loads are coloured."""
    load, rows = network.cables.load, []
    lanes = sorted({int(lane) for lane in np.unique(network.cables.lane) if lane >= 0})
    if scene.lane_names:
        rows.append([LegendEntry(f"w l{i % NUM_LANES}", name, 3.0) for i, name in enumerate(scene.lane_names)])
    elif lanes and load is None:
        shown = lanes[: 2 * NUM_LANES]
        rows.append([LegendEntry(f"w l{lane % NUM_LANES}", f"{network.lanes} {lane}", 3.0) for lane in shown])
        if len(lanes) > len(shown):
            rows[-1].append(LegendEntry("", f"and {len(lanes) - len(shown)} more"))
    rows.append(_link_entries(network))
    if load is not None:
        steps = [LegendEntry(f"w u{i}", f"{i * 100 // NUM_LOADS}%", 4.0) for i in range(NUM_LOADS)]
        rows.append([LegendEntry("", "load of a link, from"), *steps])
    return rows


def _link_entries(network: DrawnNetwork) -> list[LegendEntry]:
    kinds, pen = link_kinds(network), Pen.of((), bundled=False)
    entries = []
    for kind in kinds[:MAX_LINK_KINDS]:
        state = f", {_STATES[kind.state]}" if kind.state else ""
        rate, medium = units.show_rate(kind.rate_Bps), network.fabric.media[kind.medium]
        text = f"{tier_word(kind.tier)}: {kind.total:,} × {rate} {medium}{state}"
        look = wire_look(kind) if kind.load is None or kind.state else f"t{kind.tier}"
        entries.append(LegendEntry(f"w {look}", text, max(1.2, pen.width(kind))))
    if len(kinds) > MAX_LINK_KINDS:
        rest = sum(kind.total for kind in kinds[MAX_LINK_KINDS:])
        entries.append(LegendEntry("", f"and {counted(rest, 'cable')} of {len(kinds) - MAX_LINK_KINDS} more kinds"))
    return entries


def _draw_legend(scene: Scene, rows: list[list[LegendEntry]], y: float, width: float) -> float:
    """Draw the rows from y downwards, each wrapped at the width; returns where they end."""
    for row in rows:
        x = MARGIN
        for look, text, thick in row:
            sample = _SAMPLE if look else 0.0
            needed = sample + text_width(text, SIZES["leg"])
            if x > MARGIN and x + needed > MARGIN + width:
                x, y = MARGIN, y + _LEGEND_LINE
            if look:
                scene.path(f"M{at(x, y)}h{num(_SAMPLE - 7)}", look, thick)
            scene.text(x + sample, y + 4, text, "leg", "start")
            x += needed + _LEGEND_GAP
        y += _LEGEND_LINE + 2
    return y
