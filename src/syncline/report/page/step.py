"""One step as a self-contained page: where the time goes, and the timeline of every pipeline stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.report.page.shell import document
from syncline.report.text.step import PART_WORDS, split_words, step_lines
from syncline.timeline import SpanKind, Timeline

MAX_SPANS = 6000
_COLOURS = {
    "forward": "#4c8bf5", "backward": "#2f5fb3", "weight gradient": "#7aa7e8", "optimizer": "#6b7280",
    "tensor": "#e08a1e",
    "context": "#b7791f", "expert": "#c2410c", "fsdp": "#d97706", "gradients": "#be185d",
    "parameters": "#db2777", "send": "#15803d",
}  # fmt: skip
_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1180px;padding:0 16px;color:#1b1f24;background:#fff}
h1{font-size:20px} h2{font-size:16px;margin-top:26px} svg{width:100%;height:auto}
pre{font-size:12.5px;white-space:pre-wrap}
.note{color:#57606a} .bar{display:flex;height:22px;border-radius:3px;overflow:hidden} .bar span{height:100%}
.key i{font-style:normal;white-space:nowrap;display:inline-block;margin-right:14px}
.key span{display:inline-block;width:11px;height:11px;margin-right:5px;border-radius:2px}
text{font:11px system-ui,sans-serif;fill:#57606a}
@media (prefers-color-scheme: dark){body{color:#e6e6e6;background:#14171a}.note,text{color:#9aa;fill:#9aa}}
"""
_PART_COLOURS = {"compute": "#4c8bf5", "tp": "#e08a1e", "cp": "#b7791f", "ep": "#c2410c", "host": "#7c3aed",
                 "fsdp": "#d97706",
                 "dp": "#be185d", "p2p": "#15803d", "bubble": "#d1d5db", "optimizer": "#6b7280", "fixed": "#9ca3af",
                 "codec": "#0891b2", "storage": "#0f766e"}  # fmt: skip


def step_page(data: Mapping[str, Any], timeline: Timeline) -> str:
    """Return the page of one step."""
    title = f"{data['job']}: {data['model']}, {units.show_time(data['step_time_s'])} a step"
    shown = "\n".join(step_lines(data))
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{data["gpus"]:,} x {escape(data["gpu"])}, {escape(split_words(data["parallel"]))}</p>',
        "<h2>Where the time goes</h2>",
        _bar(data["parts_s"]),
        "<h2>One rank of every pipeline stage</h2>",
        f'<p class="note">{escape(timeline.source.label())}. Hover a span for its name, time and bytes.</p>',
        timeline_svg(timeline),
        _key([(name, span_colour(name)) for name in timeline.names]),
        "<h2>All numbers</h2>",
        f'<pre tabindex="0">{escape(shown)}</pre>',
    ]
    return document(title, _STYLE, "".join(body))


def _bar(parts: Mapping[str, float]) -> str:
    total = sum(parts.values()) or 1.0
    shown = [(name, value) for name, value in parts.items() if value / total > 5e-4]
    spans = "".join(
        f'<span style="width:{100 * value / total:.3f}%;background:{_PART_COLOURS[name]}" '
        f'title="{PART_WORDS[name]} {units.show_time(value)} ({value / total:.1%})"></span>'
        for name, value in shown
    )
    key = _key([(f"{PART_WORDS[name]} {value / total:.1%}", _PART_COLOURS[name]) for name, value in shown])
    return f'<div class="bar">{spans}</div>{key}'


def _key(entries: Sequence[tuple[str, str]]) -> str:
    """Return what the colours mean."""
    shown = "".join(f'<i><span style="background:{colour}"></span>{escape(words)}</i>' for words, colour in entries)
    return f'<p class="key note">{shown}</p>'


def timeline_svg(timeline: Timeline, width: int = 1140) -> str:
    """Return the spans as lanes: compute above, communication below, one pair per rank."""
    spans, names = timeline.spans, timeline.names
    rows = np.arange(len(spans)) if len(spans) <= MAX_SPANS else _thinned(timeline)
    left, lane, total = 64, 26, max(timeline.makespan_s, 1e-12)
    room = width - left - 8
    ranks = {int(rank): i for i, rank in enumerate(timeline.ranks.tolist())}
    parts = []
    for row in rows.tolist():
        name = names[int(spans.name[row])]
        start = (float(spans.start_s[row]) - timeline.start_s) / total
        length = float(spans.end_s[row] - spans.start_s[row])
        compute = int(spans.kind[row]) == SpanKind.COMPUTE
        y = ranks[int(spans.rank[row])] * lane + (2 if compute else 14)
        size = f", {units.show_size(int(spans.size_bytes[row]))}" if spans.size_bytes[row] else ""
        wide = max(length / total * room, 0.3)
        title = f"<title>{escape(name)} {units.show_time(length)}{size}</title>"
        box = f'x="{left + start * room:.2f}" y="{y}" width="{wide:.2f}" height="{11 if compute else 8}"'
        parts.append(f'<rect {box} fill="{span_colour(name)}">{title}</rect>')
    labels = "".join(f'<text x="4" y="{i * lane + 13}">stage {rank}</text>' for rank, i in ranks.items())
    height = len(ranks) * lane + 22
    end = f'<text x="{width - 8}" y="{height - 6}" text-anchor="end">{units.show_time(total)}</text>'
    axis = f'<text x="{left}" y="{height - 6}">0</text>{end}'
    box = f'viewBox="0 0 {width} {height}" role="img" aria-label="timeline of one step"'
    return f"<svg {box}>{labels}{''.join(parts)}{axis}</svg>"


def _thinned(timeline: Timeline) -> NDArray[np.int64]:
    """Return the longest span of every short time of each lane: as dense in one part of the picture as in another."""
    spans, count = timeline.spans, len(timeline.ranks)
    times = max(1, MAX_SPANS // (2 * count))
    lane = 2 * np.searchsorted(timeline.ranks, spans.rank) + (spans.kind == SpanKind.COMPUTE)
    at = (spans.start_s - timeline.start_s) / max(timeline.makespan_s, 1e-12) * times
    cell = lane * times + np.clip(at.astype(np.int64), 0, times - 1)
    longest = np.argsort(spans.start_s - spans.end_s, kind="stable")
    _, first = np.unique(cell[longest], return_index=True)
    return np.sort(longest[first])


def span_colour(name: str) -> str:
    """Return the colour of a span by its name."""
    return _COLOURS.get(name) or _COLOURS.get(name.split(" ")[0], "#9ca3af")
