"""Wires: how a bundle of cables runs between two places, and how thick and strong it is drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from syncline.fabric.fabric import Tier
from syncline.report.chart.svg import num
from syncline.report.picture.aggregate import CableBundle
from syncline.report.picture.network import DEGRADED, DOWN
from syncline.report.picture.palette import NUM_LANES, NUM_LOADS
from syncline.report.picture.scene import Scene, at


@dataclass(frozen=True)
class Anchor:
    """Where wires meet a drawn thing: above at `top`, below at `bottom`; a bar lets them land within `spread` of x."""

    x: float
    top: float
    bottom: float
    key: str
    name: str
    spread: float = 0.0
    lanes: int = 0
    """How many lanes share the thing: each then lands at a place of its own."""

    def moved(self, dx: float) -> Anchor:
        """Return the anchor a little aside, for a second wire between the same things."""
        return replace(self, x=self.x + dx)

    def towards(self, x: float, lane: int = -1) -> float:
        """Return where on this thing a wire of that lane from x lands."""
        if lane >= 0 and self.lanes > 1:
            return self.x + self.spread * ((lane % self.lanes * 2 + 1) / self.lanes - 1)
        return min(max(x, self.x - self.spread), self.x + self.spread)


@dataclass(frozen=True)
class Pen:
    """How wires of a picture are drawn: thinner and fainter where there are many of a tier."""

    per_tier: Counter[int]
    bundled: bool

    @classmethod
    def of(cls, bundles: Iterable[CableBundle], *, bundled: bool) -> Pen:
        return cls(Counter(bundle.tier for bundle in bundles), bundled)

    def width(self, bundle: CableBundle) -> float:
        """Return the stroke width: by rate, or by the rate of all its cables where the picture bundles them."""
        if self.bundled:
            return _clamp(1.0 + 1.05 * _decades(bundle.rate_Bps * bundle.total), 1.0, 7.0)
        many = self.per_tier[bundle.tier]
        thin = 0.45 if many > 400 else 0.6 if many > 120 else 0.8 if many > 40 else 1.0
        return _clamp((0.7 + 1.0 * _decades(bundle.rate_Bps)) * thin, 0.5, 5.0)

    def opacity(self, bundle: CableBundle) -> float:
        """Return the stroke opacity; what is broken or loaded stays strong."""
        if bundle.state or bundle.load is not None:
            return 1.0
        if self.bundled:
            return 0.75
        many = self.per_tier[bundle.tier]
        return 0.38 if many > 400 else 0.5 if many > 120 else 0.7 if many > 40 else 0.9

    def draw(
        self, scene: Scene, bundle: CableBundle, path: str, a: Anchor, b: Anchor, title: str, look: str = "",
        width: float | None = None, opacity: float | None = None,
    ) -> None:  # fmt: skip
        """Draw a bundle along a path; `width` and `opacity` where they are not those of its rate and number."""
        wide = self.width(bundle) if width is None else width
        scene.wire(
            path, f"{wire_look(bundle)} {look}".strip(), max(wide, 2.2) if bundle.state and width is None else wide,
            self.opacity(bundle) if opacity is None else opacity, (a.key, b.key), bundle.tier, bundle.lane, title,
        )  # fmt: skip


def wire_look(bundle: CableBundle) -> str:
    """Return the classes that colour a wire: its state first, then load, lane, tier."""
    if bundle.state in (DOWN, DEGRADED):
        return "down" if bundle.state == DOWN else "slow"
    if bundle.load is not None:
        return f"u{min(NUM_LOADS - 1, int(_clamp(bundle.load, 0.0, 1.0) * NUM_LOADS))}"
    return f"l{bundle.lane % NUM_LANES}" if bundle.lane >= 0 else f"t{bundle.tier}"


def upward(low: Anchor, high: Anchor, lane: int = -1) -> str:
    """Return a smooth path from the top of one thing to the bottom of a higher one."""
    x0, x1 = low.towards(high.x, lane), high.towards(low.x)
    bend = (low.top - high.bottom) * 0.5
    if abs(x0 - x1) < 9:
        return f"M{at((x0 + x1) / 2, low.top)}V{num(high.bottom)}"
    return f"M{at(x0, low.top)}C{at(x0, low.top - bend)} {at(x1, high.bottom + bend)} {at(x1, high.bottom)}"


def arc(a: Anchor, b: Anchor, *, below: bool = False, most: float = 60.0) -> str:
    """Return an arc between two things of one row, over their tops or under their bottoms."""
    height = min(most, 10.0 + abs(a.x - b.x) * 0.28)
    y0, y1, way = (a.bottom, b.bottom, 1.0) if below else (a.top, b.top, -1.0)
    x0, x1 = a.towards(b.x), b.towards(a.x)
    peak = way * height * 4 / 3
    return f"M{at(x0, y0)}C{at(x0, y0 + peak)} {at(x1, y1 + peak)} {at(x1, y1)}"


def straight(a: Anchor, b: Anchor) -> str:
    """Return a line between the middles of two things of one row."""
    return f"M{at(a.x, (a.top + a.bottom) / 2)}H{num(b.x)}"


def loop(a: Anchor, width: float, up: float) -> str:
    """Return a loop above a thing: its members are joined among themselves."""
    half = width / 2
    return f"M{at(a.x - half, a.top)}C{at(a.x - half, a.top - up)} {at(a.x + half, a.top - up)} {at(a.x + half, a.top)}"


def through(a: Anchor, b: Anchor, bar: Anchor, share: float) -> str:
    """Return a path from one thing up into a bar, along it, and down to the other: a circuit through a switch."""
    xa, xb = bar.towards(a.x * 0.72 + b.x * 0.28), bar.towards(a.x * 0.28 + b.x * 0.72)
    inside = bar.bottom - (bar.bottom - bar.top) * share
    bend_a, bend_b = (a.top - bar.bottom) * 0.5, (b.top - bar.bottom) * 0.5
    return (
        f"M{at(a.x, a.top)}C{at(a.x, a.top - bend_a)} {at(xa, bar.bottom + bend_a)} "
        f"{at(xa, bar.bottom)}V{num(inside)}H{num(xb)}V{num(bar.bottom)}"
        f"C{at(xb, bar.bottom + bend_b)} {at(b.x, b.top - bend_b)} {at(b.x, b.top)}"
    )


def connect(scene: Scene, pen: Pen, bundle: CableBundle, a: Anchor, b: Anchor, title: str) -> None:
    """Draw a bundle between two anchors: upward if one is higher, else as an arc along the row."""
    if abs(a.top - b.top) > 2.0:
        low, high = (a, b) if a.top > b.top else (b, a)
        pen.draw(scene, bundle, upward(low, high, bundle.lane), a, b, title)
        return
    below = bundle.tier == Tier.SCALE_UP
    pen.draw(scene, bundle, arc(a, b, below=below, most=34.0 if below else 60.0), a, b, title)


def _decades(rate_Bps: float) -> float:
    """Return how many powers of ten the rate is above 10 Gb/s."""
    return math.log10(max(rate_Bps, 1.25e8) / 1.25e9)


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
