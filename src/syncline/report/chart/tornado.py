"""The tornado chart: how far the answer moves with each assumption alone, widest first; and a curve of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from syncline.report.chart.bars import round_ticks

Row = tuple[str, float, float]
LOW, HIGH = "#2d7f6a", "#c2543d"


def tornado_svg(rows: Sequence[Row], now: float, shown: Callable[[float], str], label: str, width: int = 640) -> str:
    """Return bars from the answer at the low to that at the high end of each input; `rows` are name, low, high."""
    height, left, right = 26 * len(rows) + 40, 250, 20
    ends = [value for _, low, high in rows for value in (low, high)] + [now]
    floor, ceiling = min(ends), max(ends)
    room = (ceiling - floor) or 1.0
    floor, ceiling = floor - 0.25 * room, ceiling + 0.2 * room

    def x(value: float) -> float:
        return left + (value - floor) / (ceiling - floor) * (width - left - right)

    out = [f'<svg class="tornado" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">']
    for k, (name, low, high) in enumerate(rows):
        y = 8 + 26 * k
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        for end, colour, word in ((low, LOW, "low"), (high, HIGH, "high")):
            a, b = sorted((x(now), x(end)))
            title = f"{name}, {word} end: {shown(end)}"
            out.append(
                f'<rect x="{a:.1f}" y="{y}" width="{max(b - a, 0.6):.1f}" height="16" fill="{colour}">'
                f"<title>{escape(title)}</title></rect>"
            )
        first, last = sorted((low, high))
        out.append(
            f'<text class="small" x="{x(min(first, now)) - 3:.1f}" y="{y + 12}" text-anchor="end">{shown(first)}</text>'
        )
        out.append(f'<text class="small" x="{x(max(last, now)) + 3:.1f}" y="{y + 12}">{shown(last)}</text>')
    bottom = height - 30
    out.append(f'<line class="grid" x1="{x(now):.1f}" x2="{x(now):.1f}" y1="2" y2="{bottom}"/>')
    out.append(f'<text x="{x(now):.1f}" y="{height - 14}" text-anchor="middle">{shown(now)}, as assumed</text>')
    key = f'<tspan fill="{LOW}">&#9632;</tspan> low end of the assumption <tspan fill="{HIGH}">&#9632;</tspan> high end'
    out.append(f'<text x="8" y="{height - 14}">{key}</text>')
    return "".join(out) + "</svg>"


def curve_svg(points: Sequence[tuple[str, float, str]], label: str, width: int = 560, height: int = 260) -> str:
    """Return values of a sweep as a curve; points are the setting, the value and what to show on hover."""
    if len(points) < 2:
        return ""
    left, right, top, bottom = 70, 24, 14, 36
    most = max(value for _, value, _ in points) * 1.08

    def at(k: int, value: float) -> tuple[float, float]:
        across = k / (len(points) - 1)
        return left + across * (width - left - right), height - bottom - value / most * (height - top - bottom)

    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">']
    for tick in [t for t in round_ticks(most / 8, most) if t <= most]:
        _, y = at(0, tick)
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
    line = [at(k, value) for k, (_, value, _) in enumerate(points)]
    out.append(f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in line)}"/>')
    for (name, _, hover), (x, y) in zip(points, line, strict=True):
        out.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(hover)}</title></circle>')
        out.append(f'<text x="{x:.1f}" y="{height - 18}" text-anchor="middle">{escape(name)}</text>')
    out.append(f'<text x="{left}" y="{height - 3}">{escape(label)}</text>')
    return "".join(out) + "</svg>"
