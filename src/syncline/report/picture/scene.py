"""The Scene: boxes, wires and texts with their places, before they become SVG.

Layouts add to it; `svg.py` writes it. Things lie in four layers, drawn in this order: groups, wires, boxes, texts.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

LAYERS = ("groups", "wires", "boxes", "texts")
_NARROW, _WIDE = set("ijltfrI.,:;'|!()[]/ -"), set("mwMW@%")


@dataclass(frozen=True)
class Rectangle:
    """A rectangle. `key` names it for wires, `title` is what hovering says; `tag` is "host", "switch" and so on."""

    x: float
    y: float
    width: float
    height: float
    look: str
    key: str = ""
    title: str = ""
    radius: float = 3.0
    parts: tuple[DrawnPath, ...] = ()
    """What is drawn in it and belongs to it (its GPUs, its ports)."""


@dataclass(frozen=True)
class DrawnPath:
    """A path of several strokes or fills that is one thing to the eye."""

    path: str
    look: str
    title: str = ""
    width: float = 0.0
    """Stroke width, where it is not the look's own."""


@dataclass(frozen=True)
class DrawnCable:
    """Cables between two boxes; `tier` and `lane` are what the legend can hide."""

    path: str
    look: str
    width: float
    opacity: float
    a: str
    b: str
    tier: int
    lane: int
    title: str = ""


@dataclass(frozen=True)
class Text:
    """A line of text. `turn` is in degrees, clockwise around its place."""

    x: float
    y: float
    text: str
    look: str = "lab"
    anchor: str = "middle"
    turn: float = 0.0


@dataclass
class Scene:
    """Things with places; `width` and `height` grow to hold them."""

    width: float = 0.0
    height: float = 0.0
    layers: dict[str, list[Rectangle | DrawnCable | Text | DrawnPath]] = field(
        default_factory=lambda: {name: [] for name in LAYERS}
    )

    def box(self, box: Rectangle, layer: str = "boxes") -> None:
        self.layers[layer].append(box)
        self.reach(box.x + box.width, box.y + box.height)

    def wire(self, wire: DrawnCable) -> None:
        self.layers["wires"].append(wire)

    def text(self, x: float, y: float, text: str, look: str = "lab", anchor: str = "middle", turn: float = 0.0) -> None:
        self.layers["texts"].append(Text(x, y, text, look, anchor, turn))

    def reach(self, x: float, y: float) -> None:
        """Make the scene at least that wide and high."""
        self.width, self.height = max(self.width, x), max(self.height, y)


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is, a little more rather than less (fonts differ between machines)."""
    em = 0.0
    for char in text:
        if unicodedata.east_asian_width(char) in "WF":
            em += 1.0
        elif char in _NARROW:
            em += 0.39
        elif char in _WIDE:
            em += 0.97
        else:
            em += 0.66 if char.isupper() else 0.62
    return em * size


def fit(text: str, width: float, size: float) -> str:
    """Return the text, cut with an ellipsis where it would be wider than `width`; empty if not even that fits."""
    if text_width(text, size) <= width:
        return text
    for end in range(len(text) - 1, 0, -1):
        if text_width(text[:end] + "…", size) <= width:
            return text[:end] + "…"
    return ""


def num(value: float) -> str:
    """Write a coordinate: at most one decimal, so that pictures are small and the same on every machine."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def counted(count: int, one: str, many: str = "") -> str:
    """Write `1 host`, `1,024 hosts`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
