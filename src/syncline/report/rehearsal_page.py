"""A rehearsal as one self-contained page: predicted beside measured, and the loss."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from syncline import units
from syncline.bench.rehearsal.rehearse import Rehearsal
from syncline.report.simulation_page import even_ticks

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#57606a;--line:#d0d7de;--a:#0969da;--b:#bc4c00}
@media (prefers-color-scheme:dark){:root{--ink:#e6e6e6;--paper:#14171a;--soft:#9aa;--line:#333;--a:#4c9aff;--b:#f0883e}}
body{font:14px/1.5 system-ui,sans-serif;margin:24px auto;max-width:1000px;color:var(--ink);background:var(--paper)}
h1{font-size:20px} h2{font-size:16px;margin-top:30px} .answer{font-size:17px} .soft{color:var(--soft)}
svg{max-width:100%;height:auto} text{fill:var(--ink);font:11px system-ui,sans-serif} .axis{stroke:var(--line)}
.p{fill:var(--a)} .m{fill:var(--b)} pre{overflow:auto;font-size:12px}
"""
_COLOURS = ("var(--a)", "var(--b)", "#1a7f37", "#8250df", "#9a6700", "#cf222e", "#57606a")
Bar = tuple[str, float, float, str]
"""Name, predicted, measured, gap."""


def rehearsal_page(found: Rehearsal, lines: Sequence[str]) -> str:
    """Return the page; `lines` are the same answer as text."""
    operations = [
        (f"{row.algorithm} {units.show_size(row.size_bytes)}", row.predicted_s, row.measured_s, f"{row.gap:+.1%}")
        for row in found.operations
        if not row.calibrated_on
    ]
    steps = [(row.synchronisation, row.predicted_s, row.measured_s, f"{row.gap:+.1%}") for row in found.steps]
    parts = [
        f"<h1>Rehearsal of {escape(found.cluster)}</h1>",
        f'<p class="answer">{escape(lines[0])}</p>',
        f'<p class="soft">{found.num_ranks} ranks on an emulated copy on one machine, rates scaled by {found.scale:g}. '
        '<span style="color:var(--a)">■ predicted</span> <span style="color:var(--b)">■ measured (median)</span></p>',
        "<h2>Training step by synchronisation</h2>",
        bars_svg(steps),
        "<h2>Collectives, at sizes that were not calibrated on</h2>",
        bars_svg(operations),
        "<h2>Loss</h2>",
        losses_svg(found.trained),
        "<h2>All of it</h2>",
        f"<pre>{escape(chr(10).join(lines))}</pre>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Rehearsal of {escape(found.cluster)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def bars_svg(rows: Sequence[Bar], width: int = 960) -> str:
    """Return pairs of bars, predicted above measured, each pair with its gap."""
    if not rows:
        return "<p>nothing was run</p>"
    left, right, row_height = 210, 110, 34
    longest = max(max(predicted, measured) for _, predicted, measured, _ in rows)
    ticks = even_ticks(longest)
    scale = (width - left - right) / ticks[-1]
    height = row_height * len(rows) + 30
    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="predicted and measured times">']
    for tick in ticks:
        x = left + tick * scale
        out.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 22}"/>')
        out.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{escape(units.show_time(tick))}</text>')
    for i, (name, predicted, measured, gap) in enumerate(rows):
        y = i * row_height + 4
        out.append(f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>')
        for value, kind, down in ((predicted, "p", 0), (measured, "m", 12)):
            title = f"{'predicted' if kind == 'p' else 'measured'} {units.show_time(value)}"
            out.append(f'<rect class="{kind}" x="{left}" y="{y + down}" width="{value * scale:.1f}" height="10">'
                       f"<title>{escape(title)}</title></rect>")  # fmt: skip
        end = left + max(predicted, measured) * scale
        out.append(f'<text x="{end + 6:.1f}" y="{y + 16}">{escape(gap)}</text>')
    return "".join(out) + "</svg>"


def losses_svg(curves: dict[str, list[float]], width: int = 960, height: int = 300) -> str:
    """Return the loss of each run by step."""
    if not curves:
        return "<p>nothing was trained</p>"
    left, bottom, top = 50, 30, 10
    steps = max(len(curve) for curve in curves.values())
    low = min(min(curve) for curve in curves.values())
    high = max(max(curve) for curve in curves.values())
    span = (high - low) or 1.0

    def at(step: int, loss: float) -> str:
        x = left + (width - left - 170) * step / max(1, steps - 1)
        return f"{x:.1f},{top + (height - top - bottom) * (high - loss) / span:.1f}"

    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="loss by step">']
    for loss in (low, (low + high) / 2, high):
        y = at(0, loss).partition(",")[2]
        out.append(f'<line class="axis" x1="{left}" x2="{width - 170}" y1="{y}" y2="{y}"/>')
        out.append(f'<text x="{left - 6}" y="{y}" text-anchor="end">{loss:.2f}</text>')
    out.append(f'<text x="{left}" y="{height - 8}">step 1</text>')
    out.append(f'<text x="{width - 170}" y="{height - 8}" text-anchor="end">step {steps}</text>')
    for i, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        points = " ".join(at(step, loss) for step, loss in enumerate(curve))
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
        out.append(f'<text x="{width - 160}" y="{top + 14 + 16 * i}" style="fill:{colour}">{escape(name)}</text>')
    return "".join(out) + "</svg>"
