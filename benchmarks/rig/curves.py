"""Lines on axes as an SVG: loss against steps, and against time at each rate."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

COLOURS = ("#222222", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
WIDTH, HEIGHT, MARGIN = 420, 300, 48
Curve = tuple[str, list[float], list[float]]


def draw(panels: list[tuple[str, str, list[Curve]]], path: Path) -> None:
    """Write panels (title, name of the x axis, curves) side by side; the y axis is the loss."""
    parts = [_panel(title, label, curves, WIDTH * k) for k, (title, label, curves) in enumerate(panels)]
    legend = _legend([curve[0] for curve in panels[0][2]])
    size = f'width="{WIDTH * len(panels)}" height="{HEIGHT + 30}"'
    style = 'font-family="sans-serif" font-size="11"'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><rect width="100%" height="100%" fill="white"/>'
    path.write_text(f"{frame}{''.join(parts)}{legend}</svg>\n", "utf-8")


def _panel(title: str, label: str, curves: list[Curve], left: float) -> str:
    xs = [x for _, values, _ in curves for x in values]
    ys = [y for _, _, values in curves for y in values]
    x1, y0, y1 = max(xs), min(ys), max(ys)

    def at(x: float, y: float) -> str:
        across = left + MARGIN + (WIDTH - 1.5 * MARGIN) * x / x1
        return f"{across:.1f},{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (y - y0) / (y1 - y0):.1f}"

    lines = [
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="'
        f'{" ".join(at(x, y) for x, y in zip(values, losses, strict=True))}"/>'
        for (_, values, losses), colour in zip(curves, COLOURS, strict=False)
    ]
    corner, end = at(0, y0).split(","), at(x1, y0).split(",")
    axes = f'<path d="M{at(0, y1)} L{at(0, y0)} L{at(x1, y0)}" fill="none" stroke="#888"/>'
    texts = [
        f'<text x="{left + WIDTH / 2}" y="20" text-anchor="middle">{escape(title)}</text>',
        f'<text x="{left + WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(label)}</text>',
        f'<text x="{corner[0]}" y="{HEIGHT - 30}" text-anchor="middle">0</text>',
        f'<text x="{end[0]}" y="{HEIGHT - 30}" text-anchor="middle">{x1:.3g}</text>',
        f'<text x="{left + MARGIN - 6}" y="{corner[1]}" text-anchor="end">{y0:.2f}</text>',
        f'<text x="{left + MARGIN - 6}" y="{MARGIN}" text-anchor="end">{y1:.2f}</text>',
    ]
    return axes + "".join(lines) + "".join(texts)


def _legend(names: list[str]) -> str:
    return "".join(
        f'<rect x="{MARGIN + 150 * k}" y="{HEIGHT + 8}" width="12" height="4" fill="{colour}"/>'
        f'<text x="{MARGIN + 16 + 150 * k}" y="{HEIGHT + 14}">{escape(name)}</text>'
        for k, (name, colour) in enumerate(zip(names, COLOURS, strict=False))
    )
