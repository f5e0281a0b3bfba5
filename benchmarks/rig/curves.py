"""Lines on axes as an SVG: loss against steps, and against time at each rate."""

from __future__ import annotations

import math
from pathlib import Path
from xml.sax.saxutils import escape

STYLES = (("#222222", "", 3.5), ("#1f77b4", "7 3", 2.0), ("#d62728", "", 1.5), ("#2ca02c", "2 2", 2.0),
          ("#9467bd", "9 3 2 3", 1.8), ("#ff7f0e", "", 1.2))  # fmt: skip
"""Colour, dashes and width: lines that lie on each other can still be told apart."""
WIDTH, HEIGHT = 460, 360
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 46
LEGEND = 30
CUT = 0.1
"""The first part of a training, whose loss falls fastest, may leave the picture at its top."""
Curve = tuple[str, list[float], list[float]]


def draw(panels: list[tuple[str, str, list[Curve]]], path: Path) -> None:
    """Write panels (title, name of the x axis, curves) side by side; the y axis is the loss, the same in all."""
    low, high = _range([curve for _, _, curves in panels for curve in curves])
    names = [curve[0] for curve in panels[0][2]]
    parts = [_panel(*panel, WIDTH * k, (low, high), names) for k, panel in enumerate(panels)]
    width, height = WIDTH * len(panels), HEIGHT + LEGEND
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" {style}>'
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    path.write_text(f"{frame}{ground}{''.join(parts)}{_legend(names)}</svg>\n", "utf-8")


def _range(curves: list[Curve]) -> tuple[float, float]:
    step = _step(max(c[2][int(CUT * len(c[2]))] for c in curves) - min(min(c[2]) for c in curves))
    low = math.floor(min(min(losses) for _, _, losses in curves) / step) * step
    high = max(losses[int(CUT * len(losses))] for _, _, losses in curves)
    return low, math.ceil(high / step) * step


def _step(span: float) -> float:
    """Return a round distance between ticks, four to nine of them."""
    unit = 10.0 ** math.floor(math.log10(span / 4))
    return next((unit * factor for factor in (5.0, 2.0) if span / (unit * factor) >= 4), unit)


def _panel(
    title: str, label: str, curves: list[Curve], left: float, limits: tuple[float, float], names: list[str]
) -> str:
    x1 = max(x for _, values, _ in curves for x in values)
    y0, y1 = limits

    def across(x: float) -> float:
        return left + LEFT + (WIDTH - LEFT - RIGHT) * x / x1

    def down(y: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (y1 - y) / (y1 - y0)

    parts = [f'<text x="{across(x1 / 2):.0f}" y="20" text-anchor="middle" font-weight="bold">{escape(title)}</text>']
    parts.append(f'<text x="{across(x1 / 2):.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(label)}</text>')
    middle = f"{left + 14:.0f},{down((y0 + y1) / 2):.0f}"
    parts.append(f'<text transform="translate({middle}) rotate(-90)" text-anchor="middle">loss</text>')
    for y in _ticks(y0, y1):
        parts.append(f'<path d="M{across(0):.1f},{down(y):.1f} H{across(x1):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left + LEFT - 6:.0f}" y="{down(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    for x in _ticks(0.0, x1):
        parts.append(f'<path d="M{across(x):.1f},{down(y0):.1f} v5" stroke="#888"/>')
        parts.append(f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<path d="M{across(0):.1f},{TOP} V{down(y0):.1f} H{across(x1):.1f}" fill="none" stroke="#888"/>')
    for name, values, losses in curves:
        shown = [(x, y) for x, y in zip(values, losses, strict=True) if y <= y1]
        points = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in shown)
        parts.append(f'<polyline fill="none" {_stroke(names.index(name))} points="{points}"/>')
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    step = _step(high - low)
    return [low + k * step for k in range(int((high - low) / step * (1 + 1e-9)) + 1)]


def _stroke(number: int) -> str:
    colour, dashes, width = STYLES[number % len(STYLES)]
    return f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"'


def _legend(names: list[str]) -> str:
    parts, left, y = [], float(LEFT), HEIGHT + 12
    for number, name in enumerate(names):
        parts.append(f'<path d="M{left:.0f},{y} h26" {_stroke(number)}/>')
        parts.append(f'<text x="{left + 32:.0f}" y="{y + 4}">{escape(name)}</text>')
        left += 56 + 7 * len(name)
    return "".join(parts)
