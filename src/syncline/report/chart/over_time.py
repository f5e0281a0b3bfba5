"""Charts over time as SVG for pages: lines and bands with round ticks, bars of on and off, legends that wrap."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.report.page.simulation import even_ticks

Floats = NDArray[np.float64]
NUM_COLOURS = 6
STYLE = """
:root{--ink:#1b1f24;--paper:#fff;--soft:#57606a;--rule:#e3e6ea;--c0:#0b6bcb;--c1:#d1495b;--c2:#2a8a50;--c3:#b26a00;
--c4:#7b4fc9;--c5:#00798a}
@media (prefers-color-scheme: dark){:root{--ink:#e6e6e6;--paper:#14171a;--soft:#9aa5b1;--rule:#333a41;--c0:#58a6ff;
--c1:#ff7b8a;--c2:#56d38a;--c3:#f0a94a;--c4:#b79cff;--c5:#4dd0e1}}
svg{display:block;width:100%;height:auto} .axis{fill:var(--soft);font-size:12px} .grid{stroke:var(--rule)}
.legend{display:flex;flex-wrap:wrap;gap:2px 20px;color:var(--soft);font-size:12.5px;margin:2px 0 0 62px}
.legend i{display:inline-block;width:14px;height:4px;margin-right:6px;vertical-align:middle;border-radius:2px}
.legend i.rule{height:0;border-top:2px dashed var(--soft);border-radius:0}
"""
_LEFT, _RIGHT, _TOP, _BOTTOM, _WIDTH = 62, 14, 10, 30, 960


class Line(NamedTuple):
    """One line of a chart; `rule` is a level drawn across; `low` makes it the upper edge of a band down to there."""

    name: str
    values: Floats
    rule: bool = False
    low: Floats | None = None


class TimeAxis(NamedTuple):
    """The axis of time: its unit, seconds of one, and the end of the chart in it."""

    unit: str
    second: float
    end: float

    @staticmethod
    def of(end_s: float) -> TimeAxis:
        """Return the unit in which an end of run is a number people read: us below 2 ms, ms below 2 s."""
        unit, second = ("us", 1e6) if end_s < 2e-3 else ("ms", 1e3) if end_s < 2 else ("s", 1.0)
        return TimeAxis(unit, second, max(end_s * second, 1e-9))


def chart(time_s: Floats, lines: Sequence[Line], clock: TimeAxis, height: int = 220) -> str:
    """Return lines over time with their legend below."""
    ticks = even_ticks(max((float(np.nanmax(line.values)) for line in lines if len(line.values)), default=0.0), 4)
    high, down = ticks[-1], height - _TOP - _BOTTOM

    def points(values: Floats) -> str:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * time_s * clock.second / clock.end
        y = _TOP + down * (1 - values / high)
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))

    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="over time, up to {high:g}">']
    for tick in ticks:
        y = _TOP + down * (1 - tick / high)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    parts += [_time_axis(clock, height)]
    for number, line in enumerate(lines):
        colour, title = colour_of(line, number), f"<title>{escape(line.name)}</title>"
        if line.low is not None:
            edge = points(line.values) + " " + " ".join(reversed(points(line.low).split()))
            parts.append(f'<polygon fill="{colour}" fill-opacity="0.22" points="{edge}">{title}</polygon>')
        else:
            dash = ' stroke-dasharray="6 4"' if line.rule else ""
            parts.append(
                f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round"{dash} '
                f'points="{points(line.values)}">{title}</polyline>'
            )
    return "".join(parts) + "</svg>" + legend(lines)


def bars(time_s: Floats, rows: Sequence[tuple[str, NDArray[np.bool_]]], clock: TimeAxis) -> str:
    """Return one row a name, filled from each moment at which it is on to the next."""
    height = _TOP + 22 * len(rows) + _BOTTOM
    across = (_WIDTH - _LEFT - _RIGHT) * clock.second / clock.end
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="when each is on">',
        _time_axis(clock, height),
    ]
    for number, (name, on) in enumerate(rows):
        y, colour = _TOP + 22 * number, f"var(--c{number % NUM_COLOURS})"
        edges = np.flatnonzero(np.diff(np.concatenate(([0], on.astype(np.int8), [0]))))
        ends = np.append(time_s, time_s[-1])
        for a, b in edges.reshape(-1, 2):
            x, width = _LEFT + across * ends[a], max(across * (ends[b] - ends[a]), 0.5)
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="16" fill="{colour}">'
                         f"<title>{escape(name)}</title></rect>")  # fmt: skip
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y + 16}" y2="{y + 16}"/>')
    return "".join(parts) + "</svg>" + legend([Line(name, np.zeros(0)) for name, _ in rows])


def legend(lines: Sequence[Line]) -> str:
    """Return the names beside their colours, as text that wraps."""
    parts = []
    for number, line in enumerate(lines):
        mark = '<i class="rule"></i>' if line.rule else f'<i style="background:{colour_of(line, number)}"></i>'
        parts.append(f"<span>{mark}{escape(line.name)}</span>")
    return f'<div class="legend">{"".join(parts)}</div>'


def colour_of(line: Line, number: int) -> str:
    """Return the colour of a line by its place; levels are grey."""
    return "var(--soft)" if line.rule else f"var(--c{number % NUM_COLOURS})"


def _time_axis(clock: TimeAxis, height: int) -> str:
    parts = []
    for tick in even_ticks(clock.end, 8):
        if tick > clock.end * (1 + 1e-9):
            break
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * tick / clock.end
        words = f"{tick:,g}" + (f" {clock.unit}" if tick == 0 else "")
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - _BOTTOM}"/>')
        parts.append(f'<text class="axis" x="{x:.1f}" y="{height - 10}" text-anchor="middle">{words}</text>')
    return "".join(parts)
