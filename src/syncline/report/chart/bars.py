"""Horizontal bars as HTML, without scripts: one bar of several parts with its key, or a table of bars with words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from syncline.report.chart.svg import element

PART_COLOURS = {
    "compute": "#3f73c7", "tp": "#e08a1e", "cp": "#b7791f", "ep": "#c2410c", "host": "#7c3aed", "fsdp": "#d97706",
    "dp": "#be185d", "p2p": "#15803d", "bubble": "#aab2bd", "optimizer": "#6b7280", "fixed": "#8f98a3",
    "codec": "#0891b2", "storage": "#0f766e",
}  # fmt: skip
"""Colours of the parts of a step."""
_SPACE = "\u200b"  # an element without content would be written as one that never closes


class BarPart(NamedTuple):
    """A part of a bar: what it is, how long and in which colour."""

    name: str
    value: float
    colour: str


class BarRow(NamedTuple):
    """A row of a table of bars: its name, its bars one below the other, each of parts, and words after them."""

    name: str
    bars: Sequence[Sequence[BarPart]]
    words: Sequence[str]


def ink_on(colour: str) -> str:
    """Return black or white, whichever reads better on a colour: the one with the higher contrast (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#fff"


def stacked(parts: Sequence[BarPart], whole: float) -> Markup:
    """Return one bar of several parts, as shares of `whole`, with its key below."""
    shown = [part for part in parts if part.value / whole > 5e-4]
    bar = [
        element(
            "span",
            name if value / whole > 0.12 else _SPACE,
            style=f"width:{100 * value / whole:.2f}%;background:{colour};color:{ink_on(colour)}",
            title_=f"{name}: {value / whole:.1%}",
        )
        for name, value, colour in shown
    ]
    key = [
        element("li", _mark(colour), f"{name} ", element("b", f"{value / whole:.1%}")) for name, value, colour in shown
    ]
    return element("div", *bar, class_="stack") + element("ul", *key, class_="key")


def bars(rows: Sequence[BarRow], heads: Sequence[tuple[str, str]] = (), own_scale: bool = False) -> Markup:
    """Return a table of bars; `heads` are names and colours above the words. `own_scale`: each row fills the width."""

    def length(row: BarRow) -> float:
        return max((sum(abs(part.value) for part in bar) for bar in row.bars), default=0.0)

    most = max(map(length, rows), default=0.0) or 1.0
    written = []
    for row in rows:
        full = (length(row) or 1.0) if own_scale else most
        drawn = [
            element("div", *(_bar(part, full) for part in bar), class_="stack thin") for bar in row.bars
        ]  # fmt: skip
        words = [element("td", text or _SPACE) for text in row.words]
        written.append(element("tr", element("th", row.name, class_="t"), element("td", *drawn, class_="b"), *words))
    top = [element("th", _mark(colour), name) for name, colour in heads]
    empty = element("td", _SPACE)
    head = element("tr", empty, empty, *top) if heads else ""
    return element("table", head, *written, class_="bars")


def _bar(part: BarPart, full: float) -> Markup:
    style = f"width:{100 * abs(part.value) / full:.2f}%;background:{part.colour if part.value >= 0 else 'var(--bad)'}"
    return element("span", _SPACE, style=style, title_=part.name)


def _mark(colour: str) -> Markup:
    return element("i", _SPACE, style=f"background:{colour}")
