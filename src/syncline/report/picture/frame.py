"""What surrounds a picture: title and counts above, captions at the left, the legend below."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from syncline.fabric.fabric import DeviceKind
from syncline.report.picture.drawing import Caption, Drawing
from syncline.report.picture.legend import draw_legend, rows_of
from syncline.report.picture.network import DEGRADED, DOWN, DrawnNetwork
from syncline.report.picture.palette import NUM_LANES, SIZES
from syncline.report.picture.scene import DrawnCable, DrawnPath, Scene, counted, fit, num, text_width
from syncline.report.picture.wording import gpu_word, level_word, tier_word

MARGIN, HEADER, MIN_WIDTH = 28.0, 84.0, 860.0
_LINE = 14.0


@dataclass(frozen=True)
class Filter:
    """Wires that a reader may hide: those whose `kind` ("tier" or "lane") is `value`."""

    kind: str
    value: int
    label: str
    look: str
    heading: str = ""


@dataclass(frozen=True)
class Sheet:
    """A finished picture: the drawing's scene, where it lies, and what surrounds it."""

    around: Scene
    inner: Scene
    x: float
    y: float
    label: str
    filters: tuple[Filter, ...] = ()


def frame(network: DrawnNetwork, drawing: Drawing, title: str) -> Sheet:
    """Return the drawing with title, captions and legend."""
    around, inner = Scene(), drawing.scene
    captions = max((text_width(line, SIZES["cap"]) for c in drawing.captions for line in c.lines), default=0.0)
    left = MARGIN + (min(captions, 260.0) + 26 if drawing.captions else 0.0)
    width = max(left + inner.width + MARGIN, MIN_WIDTH)
    x = left + (width - MARGIN - left - inner.width) / 2
    _header(around, network, title, width)
    bottom = inner.height
    for caption in _without_overlap(drawing.captions):
        _caption(around, caption, HEADER, left - MARGIN)
        bottom = max(bottom, caption.y + len(caption.lines) * _LINE / 2)
    y = HEADER + bottom + 34
    around.layers["groups"].append(DrawnPath(f"M{num(MARGIN)} {num(y - 14)}H{num(width - MARGIN)}", "rule"))
    y = draw_legend(around, rows_of(network, drawing), MARGIN, y + 8, width - 2 * MARGIN)
    for note in _notes(drawing):
        around.text(MARGIN, y + 2, fit(note, width - 2 * MARGIN, SIZES["leg"]), "leg", "start")
        y += 18
    around.reach(width, y + 8)
    return Sheet(around, inner, x, HEADER, f"{title}: {summary(network)}", filters_of(network, drawing))


def filters_of(network: DrawnNetwork, drawing: Drawing) -> tuple[Filter, ...]:
    """Return what a reader may hide on this drawing: tiers, and rails, planes or axes."""
    wires = [item for item in drawing.scene.layers["wires"] if isinstance(item, DrawnCable)]
    tiers = [Filter("tier", tier, tier_word(tier), f"t{tier}") for tier in sorted({wire.tier for wire in wires})]
    names, word = drawing.lane_names, network.lanes
    lanes = sorted({wire.lane for wire in wires if wire.lane >= 0})
    heading = "Axes" if names else f"{word.capitalize()}s"
    labels = {lane: names[lane] if names else f"{word} {lane}" for lane in lanes}
    return (*tiers, *(Filter("lane", lane, labels[lane], f"l{lane % NUM_LANES}", heading) for lane in lanes))


def summary(network: DrawnNetwork) -> str:
    """Return the counts of a fabric in one line."""
    fabric = network.fabric
    vertices = network.vertices
    outer = Counter(
        level_word(network, int(level)) + ("" if level_word(network, int(level)) in ("switch", "router") else " switch")
        if kind == DeviceKind.SWITCH
        else {DeviceKind.NVSWITCH: "NVLink switch", DeviceKind.OCS: "optical switch"}.get(
            DeviceKind(int(kind)), "device"
        )
        for kind, level in zip(vertices.kind[fabric.num_hosts :], vertices.level[fabric.num_hosts :], strict=True)
    )
    switches = [counted(n, word, f"{word}s" if word == "router" else f"{word}es") for word, n in outer.items()]
    cables = int((fabric.links.cable[0::2] >= 0).sum())
    words = [counted(fabric.num_hosts, "host"), counted(fabric.num_gpus, gpu_word(fabric)), *switches]
    return ", ".join(words + ([counted(cables, "cable")] if cables else []))


def _header(scene: Scene, network: DrawnNetwork, title: str, width: float) -> None:
    scene.text(MARGIN, 36, fit(title, width - 2 * MARGIN, SIZES["title"]), "title", "start")
    scene.text(MARGIN, 57, fit(summary(network), width - 2 * MARGIN, SIZES["sub"]), "sub", "start")
    down = int((network.cables.state == DOWN).sum())
    slow = int((network.cables.state == DEGRADED).sum())
    if down or slow:
        words = [f"{counted(n, 'cable')} {word}" for n, word in ((down, "down"), (slow, "degraded")) if n]
        scene.text(MARGIN, 75, ", ".join(words), "sub bad", "start")


def _notes(drawing: Drawing) -> list[str]:
    notes = list(drawing.notes)
    if drawing.aggregated:
        notes.append("Equal things are drawn once: a box or frame marked N × stands for N, a line for all its cables.")
    return notes


def _caption(scene: Scene, caption: Caption, top: float, room: float) -> None:
    y = top + caption.y - (len(caption.lines) - 1) * _LINE / 2 + 4
    for i, line in enumerate(caption.lines):
        look = "cap" if caption.strong and i == 0 else "cap2"
        scene.text(MARGIN, y + i * _LINE, fit(line, room - 6, SIZES[look]), look, "start")


def _without_overlap(captions: list[Caption]) -> list[Caption]:
    """Move captions down where they would touch the one above."""
    placed: list[Caption] = []
    bottom = float("-inf")
    for caption in sorted(captions, key=lambda c: c.y):
        half = len(caption.lines) * _LINE / 2
        y = max(caption.y, bottom + half + 5)
        placed.append(Caption(y, caption.lines, caption.row, caption.strong))
        bottom = y + half
    return placed
