"""A rehearsal as one self-contained page: predicted beside measured, runs on one axis of time, links and the loss."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from syncline.describe import units
from syncline.rehearse.rehearse import Rehearsal
from syncline.rehearse.shown import TimelinePair
from syncline.report.chart import aligned as aligned_chart
from syncline.report.chart.aligned import links_svg, ranks_svg
from syncline.report.chart.over_time import STYLE
from syncline.report.page.shell import document
from syncline.report.page.simulation import even_ticks

_STYLE = (
    STYLE
    + aligned_chart.STYLE
    + """
:root{color-scheme:light dark;--p:#0969da;--m:#bc4c00}
@media (prefers-color-scheme:dark){:root{--p:#4c9aff;--m:#f0883e}}
body{font:14px/1.5 system-ui,sans-serif;margin:24px auto;max-width:1000px;padding:0 16px;color:var(--ink);
background:var(--paper)}
h1{font-size:22px;margin:0 0 4px} h2{font-size:16px;margin:34px 0 2px} .answer{font-size:17px} .soft{color:var(--soft)}
p.soft{margin:0 0 8px} text{fill:var(--ink);font:11.5px system-ui,sans-serif} pre{overflow:auto;font-size:12px}
summary{cursor:pointer;margin:8px 0} .legend{margin:2px 0 0 150px} .p{fill:var(--p)} .m{fill:var(--m)}
.thin{stroke-width:1.4;stroke-opacity:.75} .thick{stroke-width:2.6}
"""
)
MOST_SHOWN_LINKS = 4
_NUM_COLOURS = 6
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
    where = "over loopback, each held to its rate by the runtime" if found.is_loopback else "on an emulated copy"
    *programs, step = found.shown or (None,)
    parts = [
        f"<h1>Rehearsal of {escape(found.cluster)}</h1>",
        f'<p class="answer">{escape(lines[0])}</p>',
        f'<p class="soft">{found.num_ranks} ranks {where} on one machine, rates scaled by {found.scale:g}. '
        '<span style="color:var(--p)">■ predicted</span> <span style="color:var(--m)">■ measured</span></p>',
        *(f'<p class="soft">{escape(note)}.</p>' for note in found.notes),
        "<h2>Training step by synchronisation</h2>",
        '<p class="soft">Measured: the median of the steps. The gap is predicted over measured, less 1.</p>',
        bars_svg(steps),
        *([] if step is None else _aligned(step)),
        *_links(found),
        "<h2>Loss</h2>",
        losses_svg(found.trained, found.recommended.synchronisation if found.steps else ""),
        "<h2>Collectives, at sizes that were not calibrated on</h2>",
        bars_svg(operations),
    ]
    for number, shown in enumerate(programs):
        drawn = "".join(_aligned(shown, "h3"))
        summary = f"<summary>{escape(shown.name)}, rank by rank</summary>"
        parts.append(f"<details{'' if number else ' open'}>{summary}{drawn}</details>")
    parts += ["<h2>All of it</h2>", f'<pre tabindex="0">{escape(chr(10).join(lines))}</pre>']
    return document(f"Rehearsal of {found.cluster}", _STYLE, "".join(parts))


def _aligned(shown: TimelinePair, heading: str = "h2") -> list[str]:
    """Return one run: what every rank did and what the busiest links carried, on one axis of time."""
    return [
        f"<{heading}>{escape(shown.name[:1].upper() + shown.name[1:])}: predicted above measured</{heading}>",
        '<p class="soft">One run, from its start. A message is drawn from when it was posted to when it had '
        "arrived (or, where it is sent, was taken by the transport).</p>",
        ranks_svg(shown.predicted, shown.measured),
        '<p class="soft">Its busiest links, from idle to full (dotted): predicted as a line, measured as an area.</p>',
        links_svg(shown.measured, shown.predicted, MOST_SHOWN_LINKS),
    ]


def _links(found: Rehearsal) -> list[str]:
    """Return the links over the whole training."""
    if found.links is None:
        return []
    return [
        f"<h2>Links while training with {escape(found.recommended.synchronisation)}</h2>",
        '<p class="soft">Share of the emulated rate, from counters read every millisecond; dotted: full. At first DDP '
        "gives every rank the weights of rank 0.</p>",
        links_svg(found.links),
    ]


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
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 22}"/>')
        out.append(f'<text class="axis" x="{x:.1f}" y="{height - 8}" text-anchor="middle">'
                   f"{escape(units.show_time(tick))}</text>")  # fmt: skip
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


def losses_svg(curves: dict[str, list[float]], recommended: str = "", width: int = 960, height: int = 300) -> str:
    """Return the loss of each run by step, the recommended one last and thick."""
    if not curves:
        return "<p>nothing was trained</p>"
    left, right, bottom, top = 50, 190, 30, 10
    steps = max(len(curve) for curve in curves.values())
    low = min(min(curve) for curve in curves.values())
    high = max(max(curve) for curve in curves.values())
    span = (high - low) or 1.0

    def at(step: int, loss: float) -> tuple[float, float]:
        x = left + (width - left - right) * step / max(1, steps - 1)
        return x, top + (height - top - bottom) * (high - loss) / span

    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="loss by step">']
    for loss in (low, (low + high) / 2, high):
        y = at(0, loss)[1]
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="axis" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{loss:.2f}</text>')
    out.append(f'<text class="axis" x="{left}" y="{height - 8}">step 1</text>')
    out.append(f'<text class="axis" x="{width - right}" y="{height - 8}" text-anchor="end">step {steps}</text>')
    for i, (name, curve) in enumerate(sorted(curves.items(), key=lambda item: item[0] == recommended)):
        colour, is_best = f"var(--c{i % _NUM_COLOURS})", name == recommended
        points = " ".join("{:.1f},{:.1f}".format(*at(step, loss)) for step, loss in enumerate(curve))
        out.append(f'<polyline fill="none" stroke="{colour}" class="{"thick" if is_best else "thin"}" '
                   f'points="{points}"/>')  # fmt: skip
        words = f"{name}, recommended" if is_best else name
        x, y = width - right + 10, top + 14 + 16 * i
        out.append(f'<text x="{x}" y="{y}" style="fill:{colour}">{escape(words)}</text>')
    return "".join(out) + "</svg>"
