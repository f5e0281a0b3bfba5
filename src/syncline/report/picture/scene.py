"""The Scene: boxes, wires and texts of a fabric's picture in four layers, with captions and notes for its frame.

Layouts add to it; `frame.py` puts title, captions and legend around it.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from markupsafe import Markup

from syncline.report.chart.svg import element, num

LAYERS = ("groups", "wires", "boxes", "texts")
"""In the order in which they are painted."""
_NARROW, _WIDE = set("ijltfrI.,:;'|!()[]/ -"), set("mwMW@%")


@dataclass(frozen=True)
class Caption:
    """Lines of text in the left margin at a height of the scene; a device row's first line is strong."""

    y: float
    lines: list[str]
    row: float | None = None
    strong: bool = False


@dataclass
class Scene:
    """What is drawn; `width` and `height` grow to hold it."""

    width: float = 0.0
    height: float = 0.0
    layers: dict[str, list[Markup]] = field(default_factory=lambda: {name: [] for name in LAYERS})
    captions: list[Caption] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lane_names: tuple[str, ...] = ()
    """What the lanes of this scene are, if not the network's rails or planes (axes of a torus)."""
    tiers: set[int] = field(default_factory=set)
    lanes: set[int] = field(default_factory=set)
    """Tiers and lanes of its wires, which a reader may hide."""

    def box(
        self, x: float, y: float, width: float, height: float, look: str, key: str = "", title: str = "",
        radius: float = 3.0, parts: tuple[Markup, ...] = (), layer: str = "boxes",
    ) -> None:  # fmt: skip
        """Draw a rectangle. `key` names it for wires, `parts` are drawn in it (its GPUs, its ports)."""
        rect = element("rect", class_=look, x=x, y=y, width=width, height=height, rx=radius)
        thing = rect + Markup("").join(parts)
        if key or title:
            thing = element("g", thing, title=title, class_="thing", data_key=key)
        self.layers[layer].append(thing)
        self.reach(x + width, y + height)

    def wire(
        self, path: str, look: str, width: float, opacity: float, ends: tuple[str, str], tier: int, lane: int,
        title: str,
    ) -> None:  # fmt: skip
        """Draw cables between two boxes, which `ends` names by their keys."""
        drawn = element(
            "path", title=title, class_=f"w {look}", d=path, stroke_width=width, stroke_opacity=f"{opacity:.2f}",
            data_a=ends[0], data_b=ends[1], data_tier=str(tier), data_lane=str(lane) if lane >= 0 else "",
        )  # fmt: skip
        self.layers["wires"].append(drawn)
        self.tiers.add(tier)
        self.lanes |= {lane} - {-1}

    def path(self, path: str, look: str, width: float | None = None, layer: str = "wires") -> None:
        """Draw a line that joins nothing."""
        self.layers[layer].append(element("path", class_=look, d=path, stroke_width=width))

    def text(self, x: float, y: float, text: str, look: str = "lab", anchor: str = "middle") -> None:
        """Write a line of text."""
        side = "" if anchor == "start" else anchor
        self.layers["texts"].append(element("text", text, class_=look, x=x, y=y, text_anchor=side))

    def reach(self, x: float, y: float) -> None:
        """Make the scene at least that wide and high."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def markup(self) -> Markup:
        """Return the layers that hold something, one above the other."""
        return Markup("\n").join(
            element("g", Markup("\n").join(items), class_=f"layer-{name}")
            for name, items in self.layers.items()
            if items
        )


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


def at(x: float, y: float) -> str:
    """Write a place of a path."""
    return f"{num(x)} {num(y)}"
