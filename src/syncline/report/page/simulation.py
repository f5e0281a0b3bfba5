"""A simulated sweep as one self-contained page: bus bandwidth by size, load of the links, and who talks to whom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.fabric import Fabric
from syncline.report.fabric_picture import draw_svg
from syncline.report.page.shell import document

Floats = NDArray[np.float64]
_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1100px;padding:0 16px;color:#1b1f24;background:#fff}
h1{font-size:20px} h2{font-size:16px;margin-top:28px} table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #e3e6ea} td.t,th.t{text-align:left}
.note{color:#57606a} svg{max-width:100%;height:auto}
@media (prefers-color-scheme: dark){body{color:#e6e6e6;background:#14171a} td,th{border-color:#333}.note{color:#9aa}
.axis{fill:#cfd4da}}
"""


class FlowSummary(NamedTuple):
    """What the flows of the largest size did: the load of links, and bytes from row to column, named by `labels`."""

    link_utilisation: Floats
    traffic: Floats
    labels: Sequence[str]


def simulation_page(
    title: str,
    fabric: Fabric,
    rows: Sequence[Mapping[str, Any]],
    ignores: Sequence[str],
    flows: FlowSummary | None = None,
) -> str:
    """Return the page; a cost model without flows has the curve and the table alone."""
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{escape(fabric.name)}: {fabric.num_gpus:,} GPUs in {fabric.num_hosts:,} hosts. '
        f"The model ignores {escape(', '.join(ignores))}.</p>",
        "<h2>Bus bandwidth by size</h2>",
        curve_svg(rows),
        _table(rows),
    ]
    if flows is not None:
        parts += [
            f"<h2>Load of the links ({units.show_size(rows[-1]['size_bytes'])})</h2>",
            _busiest(fabric, flows.link_utilisation),
            draw_svg(fabric, link_load=flows.link_utilisation),
            f"<h2>Who talks to whom ({units.show_size(rows[-1]['size_bytes'])})</h2>",
            matrix_svg(flows.traffic, flows.labels),
        ]
    return document(title, _STYLE, "".join(parts))


def curve_svg(rows: Sequence[Mapping[str, Any]], width: int = 900, height: int = 320) -> str:
    """Return bus bandwidth over size (logarithmic) as an SVG; points carry their numbers as titles."""
    left, right, top, bottom = 70, 20, 14, 42
    x = [math.log2(row["size_bytes"]) for row in rows]
    y = [row["busbw_Bps"] for row in rows]
    low, high = min(x), max(x)
    ticks = even_ticks(max(y))
    most = max(ticks[-1], max(y) * 1.04)

    def at(size: float, rate: float) -> tuple[float, float]:
        across = (size - low) / (high - low) if high > low else 0.5
        return left + across * (width - left - right), height - bottom - rate / most * (height - top - bottom)

    points = [at(a, b) for a, b in zip(x, y, strict=True)]
    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="bus bandwidth by size">']
    for tick in ticks:
        _, line = at(low, tick)
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{line:.1f}" y2="{line:.1f}" stroke="#d0d7de"/>')
        out.append(f'<text class="axis" x="{left - 8}" y="{line + 4:.1f}" text-anchor="end" font-size="11">'
                   f"{escape(units.show_bandwidth(tick))}</text>")  # fmt: skip
    out.extend(
        f'<text class="axis" x="{points[k][0]:.1f}" y="{height - 18}" text-anchor="middle" font-size="11">'
        f"{escape(units.show_size(rows[k]['size_bytes']))}</text>"
        for k in range(0, len(rows), max(1, len(rows) // 9))
    )
    out.append('<polyline fill="none" stroke="#0969da" stroke-width="2" points="'
               + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"/>')  # fmt: skip
    for (a, b), row in zip(points, rows, strict=True):
        text = f"{units.show_size(row['size_bytes'])}: {units.show_bandwidth(row['busbw_Bps'])}, {row['algorithm']}"
        out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="#0969da"><title>{escape(text)}</title></circle>')
    return "".join(out) + "</svg>"


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


def matrix_svg(traffic: Floats, labels: Sequence[str], side: int = 560) -> str:
    """Return bytes between all pairs as a grid of squares, darker for more."""
    count = len(traffic)
    most = float(traffic.max()) or 1.0
    cell, edge = side / count, 90
    out = [f'<svg viewBox="0 0 {side + edge} {side + edge}" width="{side + edge}" role="img" aria-label="traffic">']
    for i, j in zip(*np.nonzero(traffic), strict=True):
        value = float(traffic[i, j])
        text = f"{labels[i]} to {labels[j]}: {units.show_size(value)}"
        place = f'x="{edge + j * cell:.2f}" y="{edge + i * cell:.2f}" width="{cell:.2f}" height="{cell:.2f}"'
        shade = f'fill="#cf222e" fill-opacity="{0.08 + 0.92 * value / most:.3f}"'
        out.append(f"<rect {place} {shade}><title>{escape(text)}</title></rect>")
    out.append(f'<rect x="{edge}" y="{edge}" width="{side}" height="{side}" fill="none" stroke="#8c959f"/>')
    for k in range(0, count, max(1, count // 8)):
        middle = edge + (k + 0.5) * cell
        name = escape(labels[k])
        out.append(
            f'<text class="axis" x="{edge - 6}" y="{middle + 4:.1f}" text-anchor="end" font-size="10">{name}</text>'
        )
        out.append(f'<text class="axis" transform="translate({middle + 3:.1f},{edge - 6}) rotate(-60)" font-size="10">'
                   f"{name}</text>")  # fmt: skip
    return "".join(out) + "</svg>"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("size", "time", "algbw", "busbw", "wire", "utilisation"))
    body = "".join(
        f"<tr><td>{units.show_size(r['size_bytes'])}</td><td>{units.show_time(r['time_s'])}</td>"
        f"<td>{units.show_bandwidth(r['algbw_Bps'])}</td><td>{units.show_bandwidth(r['busbw_Bps'])}</td>"
        f"<td>{_rate(r['wire_Bps'])}</td><td>{_share(r['utilisation'])}</td>"
        f'<td class="t">{escape(r["algorithm"])}</td><td class="t">{escape(r["limiting_link"] or "-")}</td></tr>'
        for r in rows
    )
    return f'<table><tr>{head}<th class="t">algorithm</th><th class="t">limiting link</th></tr>{body}</table>'


def _rate(rate_Bps: float | None) -> str:
    return "-" if rate_Bps is None else units.show_bandwidth(rate_Bps)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _busiest(fabric: Fabric, load: Floats) -> str:
    seen: dict[str, tuple[float, int]] = {}  # parallel cables have one name: shown once, with their number
    for i in np.argsort(-load, kind="stable"):
        name = fabric.link_name(int(i))
        if name not in seen and len(seen) == 8:
            break
        first, count = seen.get(name, (float(load[i]), 0))
        seen[name] = (first, count + 1)
    rows = "".join(
        f'<tr><td class="t">{escape(name)}{f" (busiest of {count})" if count > 1 else ""}</td><td>{use:.1%}</td></tr>'
        for name, (use, count) in seen.items()
    )
    return f'<table><tr><th class="t">busiest links</th><th>mean utilisation</th></tr>{rows}</table>'
