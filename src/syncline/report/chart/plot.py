"""Charts as SVG: lines, bands and dots on two axes, a tornado, a matrix.

size = Axis.log(1e3, 1e9, units.show_size)
plot("bus bandwidth by size", [Line("ring", sizes, rates, titles=words)], size, Axis.even(max(rates), show))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from syncline.report.chart.svg import Svg, element, points

Floats = NDArray[np.float64]
NUM_COLOURS = 6
WIDTH = 960


def even_ticks(most: float, count: int = 5) -> list[float]:
    """Return about `count` round values, evenly apart, from 0 to the first that is not below `most`.

    >>> even_ticks(27.6)
    [0.0, 10.0, 20.0, 30.0]
    """
    if not most > 0:
        return [0.0, 1.0]
    rough = most / count
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= rough * (1 - 1e-12))
    return [float(step * k) for k in range(math.ceil(most / step * (1 - 1e-12)) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return round values for a logarithmic axis: decades, 1, 2 and 5 where those are few, or the two ends."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [step * 10.0**power for power in powers for step in steps]
        inside = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(inside) > 2:
            return inside
    return sorted({low, high})


@dataclass(frozen=True)
class Axis:
    """One axis: its ends, where values are written and what is written there (a line break makes a second row)."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False
    name: str = ""

    @classmethod
    def even(cls, most: float, show: Callable[[float], str] = "{:,g}".format, count: int = 5, name: str = "") -> Axis:
        """Return an axis from 0 to a round value at or above `most`."""
        ticks = even_ticks(most, count)
        return cls(0.0, ticks[-1], [(tick, show(tick)) for tick in ticks], name=name)

    @classmethod
    def log(cls, low: float, high: float, show: Callable[[float], str]) -> Axis:
        """Return a logarithmic axis with round values."""
        return cls(low, high, [(tick, show(tick)) for tick in log_ticks(low, high)], is_log=True)

    @classmethod
    def named(cls, names: Sequence[str]) -> Axis:
        """Return an axis of settings: the first at 0, the next at 1 and so on."""
        return cls(0.0, max(len(names) - 1, 1), list(enumerate(names)))

    @classmethod
    def time(cls, end_s: float) -> Axis:
        """Return an axis of seconds, written in the unit people read: us below 2 ms, ms below 2 s."""
        unit, second = ("us", 1e6) if end_s < 2e-3 else ("ms", 1e3) if end_s < 2 else ("s", 1.0)
        end = max(end_s, 1e-15)
        ticks = [tick for tick in even_ticks(end * second, 8) if tick <= end * second * (1 + 1e-9)]
        return cls(0.0, end, [(tick / second, f"{tick:,g}" + ("" if tick else f" {unit}")) for tick in ticks])

    def share(self, values: ArrayLike) -> Floats:
        """Return how far along the axis values lie, from 0 to 1."""
        at, low, high = np.asarray(values, np.float64), self.low, self.high
        if self.is_log:
            at, low, high = np.log(at), math.log(low), math.log(high)
        return (at - low) / (high - low) if high > low else np.full(at.shape, 0.5)


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    `low` makes it a band down to there, `is_rule` a dashed level. `titles` puts a dot on every point and shows these
    words when the reader points at it; `radii` are those of the dots, and `dots_only` leaves the line away.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    is_rule: bool = False
    titles: Sequence[str] = ()
    radii: Sequence[float] = ()
    dots_only: bool = False
    colour: str = ""
    width: float = 1.6

    def colour_at(self, number: int) -> str:
        """Return its colour, by its place among the lines unless given; levels are grey."""
        return self.colour or ("var(--soft)" if self.is_rule else f"var(--c{number % NUM_COLOURS})")


def plot(
    label: str,
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    width: float = WIDTH,
    height: float = 220,
    left: float = 62,
    has_legend: bool = True,
) -> Markup:
    """Return lines on two axes with their legend below."""
    rows = max((words.count("\n") + 1 for _, words in x.ticks), default=0) + bool(x.name)
    right, top, bottom = 20, 10 + 14 * bool(y.name), 8 + 16 * rows
    svg = Svg(width, height, label)

    def across(values: ArrayLike) -> Floats:
        return left + (width - left - right) * x.share(values)

    def up(values: ArrayLike) -> Floats:
        return height - bottom - (height - top - bottom) * y.share(values)

    for value, words in y.ticks:
        at = float(up(value))
        svg.line(left, at, width - right, at, class_="grid")
        svg.text(left - 8, at + 4, words, text_anchor="end")
    for value, words in x.ticks:
        at = float(across(value))
        svg.line(at, top, at, height - bottom, class_="grid")
        for row, text in enumerate(words.split("\n")):
            svg.text(at, height - bottom + 16 + 14 * row, text, text_anchor="middle")
    svg.text(left, 11, y.name) if y.name else None
    svg.text((left + width - right) / 2, height - 4, x.name, text_anchor="middle") if x.name else None
    for number, line in enumerate(lines):
        xs, ys, colour = across(line.x), up(line.y), line.colour_at(number)
        if line.low is not None:
            edge = np.concatenate((xs, xs[::-1])), np.concatenate((ys, up(line.low)[::-1]))
            svg.add("polygon", title=line.name, points=points(*edge), fill=colour, fill_opacity="0.25")
        elif not line.dots_only:
            dash = "6 4" if line.is_rule else None
            svg.add("polyline", title=line.name, points=points(xs, ys), fill="none", stroke=colour,
                    stroke_width=line.width, stroke_dasharray=dash)  # fmt: skip
        for k, title in enumerate(line.titles):
            radius = line.radii[k] if line.radii else 4
            svg.add("circle", title=title, cx=xs[k], cy=ys[k], r=radius, fill=colour, fill_opacity="0.8")
    return svg.markup() + (legend([(line.name, line.colour_at(n)) for n, line in enumerate(lines)]) * has_legend)


def legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """Return names next to their colours, as text that wraps."""
    marks = (element("li", element("i", "\u200b", style=f"background:{colour}"), name) for name, colour in entries)
    return element("ul", *marks, class_="key")


def tornado(label: str, rows: Sequence[tuple[str, float, float]], now: float, show: Callable[[float], str]) -> Markup:
    """Return how far an answer moves from `now` with each input alone: rows are a name and the answer at both ends."""
    width, left, right, row_height = 640, 250, 20, 26
    svg = Svg(width, row_height * len(rows) + 48, label, class_="tornado")
    ends = [now, *(value for _, *both in rows for value in both)]
    room = (max(ends) - min(ends)) or 1.0
    axis = Axis(min(ends) - 0.25 * room, max(ends) + 0.2 * room, ())

    def x(value: float) -> float:
        return float(left + (width - left - right) * axis.share(value))

    for k, (name, low, high) in enumerate(rows):
        y = 8 + row_height * k
        svg.text(left - 8, y + 12, name, text_anchor="end")
        for end, word in ((low, "low"), (high, "high")):
            a, b = sorted((x(now), x(end)))
            title = f"{name}, {word} end: {show(end)}"
            svg.add("rect", title=title, x=a, y=y, width=max(b - a, 0.6), height=16, class_=f"{word}-end")
        first, last = sorted((low, high))
        svg.text(x(min(first, now)) - 3, y + 12, show(first), text_anchor="end", class_="small")
        svg.text(x(max(last, now)) + 3, y + 12, show(last), class_="small")
    svg.line(x(now), 2, x(now), svg.height - 36, class_="grid")
    svg.text(x(now), svg.height - 22, f"{show(now)}, as assumed", text_anchor="middle")
    key = [element("tspan", "■", class_=f"{word}-end") + f" {word} end of the assumption " for word in ("low", "high")]
    svg.add("text", *key, x=8, y=svg.height - 4)
    return svg.markup()


def matrix(label: str, values: Floats, names: Sequence[str], show: Callable[[float], str]) -> Markup:
    """Return values between all pairs, from row to column, as squares: darker for more. Pairs of 0 stay empty."""
    side, edge, cell = 560, 90, 560 / len(values)
    most = float(values.max()) or 1.0
    svg = Svg(side + edge, side + edge, label, is_fixed=True)
    for i, j in zip(*np.nonzero(values), strict=True):
        value = float(values[i, j])
        svg.add("rect", title=f"{names[i]} to {names[j]}: {show(value)}", x=edge + j * cell, y=edge + i * cell,
                width=cell, height=cell, class_="heat", fill_opacity=f"{0.08 + 0.92 * value / most:.2f}")  # fmt: skip
    svg.add("rect", x=edge, y=edge, width=side, height=side, fill="none", class_="grid")
    for k in range(0, len(values), max(1, len(values) // 8)):
        middle = edge + (k + 0.5) * cell
        svg.text(edge - 6, middle + 4, names[k], text_anchor="end")
        svg.add("text", names[k], transform=f"translate({middle + 3:.1f},{edge - 6}) rotate(-60)")
    return svg.markup()
