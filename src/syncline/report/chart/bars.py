"""Pictures of the plan report: bars, stacked bars and the scaling curve, as SVG and HTML without scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from syncline.describe import units
from syncline.plan.scaling import ScalePoint

PART_COLOURS = {
    "compute": "#3f73c7", "tp": "#e08a1e", "cp": "#b7791f", "ep": "#c2410c", "host": "#7c3aed", "fsdp": "#d97706",
    "dp": "#be185d", "p2p": "#15803d", "bubble": "#aab2bd", "optimizer": "#6b7280", "fixed": "#8f98a3",
    "codec": "#0891b2", "storage": "#0f766e",
}  # fmt: skip
MEMORY_COLOURS = {
    "parameters": "#3f73c7", "gradients": "#be185d", "optimizer": "#6b7280", "activations": "#e08a1e",
    "logits": "#b7791f", "buffers": "#15803d", "fragmentation": "#aab2bd",
}  # fmt: skip
TIER_COLOURS = {"scale-up": "#2d7f6a", "network": "#3b6fb0"}


def ink_on(colour: str) -> str:
    """Return black or white, whichever reads better on a colour: the one with the higher contrast (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#fff"


def stacked(parts: Sequence[tuple[str, float, str]], whole: float, height: int = 30) -> str:
    """Return one bar of several parts (words, value, colour), its key below; values are shares of `whole`."""
    shown = [(words, value, colour) for words, value, colour in parts if value / whole > 5e-4]
    bar = "".join(
        f'<span style="width:{100 * value / whole:.3f}%;background:{colour};color:{ink_on(colour)}" '
        f'title="{escape(words)}: {value / whole:.1%}">'
        f"{escape(words) if value / whole > 0.12 else ''}</span>"
        for words, value, colour in shown
    )
    key = "".join(f'<li><i style="background:{c}"></i>{escape(w)} <b>{v / whole:.1%}</b></li>' for w, v, c in shown)
    return f'<div class="stack" style="height:{height}px;line-height:{height}px">{bar}</div><ul class="key">{key}</ul>'


def bars(rows: Sequence[tuple[str, float, str]], colour: str = "#3f73c7") -> str:
    """Return horizontal bars: words, value, and the value as it is shown."""
    most = max((abs(value) for _, value, _ in rows), default=0.0) or 1.0
    cells = "".join(
        f'<tr><th class="t">{escape(words)}</th><td class="b">'
        f'<span class="bar" style="width:{100 * abs(value) / most:.2f}%;'
        f'background:{colour if value >= 0 else "#b91c1c"}"></span></td><td>{escape(shown)}</td></tr>'
        for words, value, shown in rows
    )
    return f'<table class="bars">{cells}</table>'


def traffic(comm_bytes: Mapping[str, Mapping[str, float]]) -> str:
    """Return bytes by kind of parallelism, split by tier."""
    most = max((sum(tiers.values()) for tiers in comm_bytes.values()), default=0.0) or 1.0
    rows = []
    for kind, tiers in comm_bytes.items():
        spans = "".join(
            f'<span style="width:{100 * size / most:.2f}%;background:{TIER_COLOURS.get(tier, "#777")}" '
            f'title="{escape(tier)}: {units.show_size(size)}"></span>'
            for tier, size in tiers.items()
        )
        cells = "".join(f"<td>{units.show_size(tiers.get(tier, 0.0))}</td>" for tier in TIER_COLOURS)
        rows.append(
            f'<tr><th class="t">{escape(kind)}</th><td class="b"><div class="stack thin">{spans}</div></td>{cells}</tr>'
        )
    heads = "".join(f'<th><i style="background:{c}"></i>{t}</th>' for t, c in TIER_COLOURS.items())
    return f'<table class="bars"><tr><td></td><td></td>{heads}</tr>{"".join(rows)}</table>'


def scaling_svg(points: Sequence[ScalePoint], now: int, width: int = 560, height: int = 300) -> str:
    """Return tokens per second over GPUs, both logarithmic, with the line that perfect scaling would be."""
    if len(points) < 2:
        return "<p class='note'>The job fits on one number of GPUs only.</p>"
    left, right, top, bottom = 62, 30, 14, 40
    low, high = math.log2(points[0].num_gpus), math.log2(points[-1].num_gpus)
    per_gpu = max(p.tokens_per_s / p.num_gpus for p in points)
    values = [math.log2(p.tokens_per_s) for p in points] + [math.log2(per_gpu * p.num_gpus) for p in points]
    floor, ceiling = min(values) - 0.15, max(values) + 0.15

    def at(gpus: float, rate: float) -> tuple[float, float]:
        across = (math.log2(gpus) - low) / (high - low)
        up = (math.log2(rate) - floor) / (ceiling - floor)
        return left + across * (width - left - right), height - bottom - up * (height - top - bottom)

    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="tokens per second by number of GPUs">']
    for tick in round_ticks(2.0**floor, 2.0**ceiling):
        _, y = at(points[0].num_gpus, tick)
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    ideal = [at(p.num_gpus, per_gpu * p.num_gpus) for p in (points[0], points[-1])]
    out.append(f'<polyline class="ideal" points="{_path(ideal)}"/>')
    line = [at(p.num_gpus, p.tokens_per_s) for p in points]
    out.append(f'<polyline class="line" points="{_path(line)}"/>')
    for p, (x, y) in zip(points, line, strict=True):
        share = p.tokens_per_s / (per_gpu * p.num_gpus)
        title = f"{p.num_gpus:,} GPUs: {p.tokens_per_s:,.0f} tokens/s, {share:.0%} of perfect; {p.label}"
        big = p.num_gpus == now
        out.append(
            f'<circle class="{"now" if big else "dot"}" cx="{x:.1f}" cy="{y:.1f}" r="{6 if big else 4}">'
            f"<title>{escape(title)}</title></circle>"
        )
        out.append(f'<text x="{x:.1f}" y="{height - 22}" text-anchor="middle">{p.num_gpus:,}</text>')
        out.append(f'<text class="small" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{share:.0%}</text>')
    return "".join(out) + "</svg>"


def short(value: float) -> str:
    """Return a number of tokens as a tick.

    >>> short(2e4), short(5e5), short(2.5e6)
    ('20k', '500k', '2.5M')
    """
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"


def round_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two numbers."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
