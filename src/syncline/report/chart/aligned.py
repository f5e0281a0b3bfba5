"""Predicted above measured on one axis of time, rank by rank and link by link, as SVG for pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.report.chart.over_time import TimeAxis
from syncline.report.page.simulation import even_ticks
from syncline.timeline import SpanKind, Timeline
from syncline.timeline.rates import binned_bytes

Floats = NDArray[np.float64]
LANES: tuple[tuple[str, tuple[SpanKind, ...], str], ...] = (
    ("computing", (SpanKind.COMPUTE,), "var(--c0)"),
    ("encoding, adding, decoding", (SpanKind.ENCODE, SpanKind.REDUCE, SpanKind.COPY, SpanKind.DECODE), "var(--c3)"),
    ("sending", (SpanKind.SEND,), "var(--c2)"),
    ("receiving", (SpanKind.RECV,), "var(--c5)"),
    ("all-reduce of a bucket", (SpanKind.COLLECTIVE,), "var(--c4)"),
)
"""What a rank does at once, one below the other: name, kinds, colour."""
MOST_LINKS = 24
STYLE = """
.row{fill:var(--rule);fill-opacity:.35} .end{stroke-width:1.5;stroke-dasharray:4 3} .p-line{stroke:var(--p)}
.m-line{stroke:var(--m)} .p-text{fill:var(--p)} .m-text{fill:var(--m)} .full{stroke:var(--soft);stroke-dasharray:2 3}
.m-area{fill:var(--m);fill-opacity:.45} .p-curve{fill:none;stroke:var(--p);stroke-width:1.6}
"""
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 150, 132, 24, 26
_LANE, _LINK = 7, 34
PACKET_BYTES = 9018


def ranks_svg(predicted: Timeline, measured: Timeline) -> str:
    """Return what every rank does when: the prediction above what was measured, with the end of each."""
    clock = TimeAxis.of(max(predicted.end_s, measured.end_s))
    both = np.concatenate((predicted.spans.kind, measured.spans.kind))
    lanes = [lane for lane in LANES if np.isin(both, lane[1]).any()]
    ranks = sorted({*predicted.ranks.tolist(), *measured.ranks.tolist()})
    row, pair = _LANE * len(lanes) + 2, 2 * (_LANE * len(lanes) + 2) + 10
    height = _TOP + pair * len(ranks) + _BOTTOM
    parts = [_open(height, "what every rank does, predicted above measured"), _axis(clock, height)]
    for place, rank in enumerate(ranks):
        y = _TOP + pair * place
        parts.append(f'<text x="0" y="{y + row + 4}">rank {rank}</text>')
        for timeline, mark, word, top in (
            (predicted, "p", "predicted", y),
            (measured, "m", "measured", y + row + 1),
        ):
            parts.append(f'<text class="{mark}-text" x="{_LEFT - 8}" y="{top + row / 2 + 3:.1f}" text-anchor="end">'
                         f"{word}</text>")  # fmt: skip
            parts.append(f'<rect class="row" x="{_LEFT}" y="{top}" width="{_across()}" height="{row - 1}"/>')
            parts += _lanes(timeline, rank, lanes, clock, top + 1, f"rank {rank}, {word}")
    parts += _ends(predicted, measured, clock, height)
    return "".join(parts) + "</svg>" + _legend([(name, colour) for name, _, colour in lanes])


def links_svg(measured: Timeline | None, predicted: Timeline | None = None, most: int = MOST_LINKS) -> str:
    """Return how full the busiest links are over time: measured as an area, predicted as a line."""
    given = [timeline for timeline in (measured, predicted) if timeline is not None]
    first = next((timeline for timeline in given if len(timeline.samples)), None)
    if first is None:
        return '<p class="soft">No link was counted.</p>'
    end_s = max(_end_s(timeline) for timeline in given)
    clock = TimeAxis.of(end_s)
    use = first.link_use()
    order = np.argsort(-np.nan_to_num(use.mean_utilisation), kind="stable")
    names = [first.links.names[i] for i in order[:most] if use.size_bytes[i] > 0]
    height = 8 + _LINK * len(names) + _BOTTOM
    parts = [_open(height, "utilisation of links over time"), _axis(clock, height, top=4)]
    for place, name in enumerate(names):
        base = 8 + _LINK * (place + 1) - 6
        parts.append(f'<text x="{_LEFT - 8}" y="{base - 8}" text-anchor="end">{escape(_short(name))}'
                     f"<title>{escape(name)}</title></text>")  # fmt: skip
        top = base - (_LINK - 8)
        parts.append(f'<line class="full" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{top}" y2="{top}"/>')
        if measured is not None and len(measured.samples):
            parts.append(_area(measured, name, end_s, clock, base))
        if predicted is not None and name in predicted.links.names:
            parts.append(_curve(predicted, name, end_s, clock, base))
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{base - 8}">{_mean(first, name)}</text>')
    left = len([size for size in use.size_bytes if size > 0]) - len(names)
    more = f'<p class="soft">{left} less busy links are not drawn.</p>' if left > 0 else ""
    return "".join(parts) + "</svg>" + more


def _lanes(
    timeline: Timeline,
    rank: int,
    lanes: Sequence[tuple[str, tuple[SpanKind, ...], str]],
    clock: TimeAxis,
    top: float,
    title: str,
) -> list[str]:
    """Return the bars of one rank, a path for each lane."""
    place = np.flatnonzero(timeline.ranks == rank)
    if not len(place):
        return []
    parts = []
    for number, (name, kinds, colour) in enumerate(lanes):
        busy = timeline.covered(kinds)
        rows = np.flatnonzero(busy.group == place[0])
        if not len(rows):
            continue
        x = _x(busy.start_s[rows], clock)
        width = np.maximum(_x(busy.end_s[rows], clock) - x, 0.6)
        y, down = top + _LANE * number, _LANE - 1
        path = "".join(f"M{a:.1f},{y:.0f}h{w:.1f}v{down}h-{w:.1f}z" for a, w in zip(x, width, strict=True))
        total = units.show_time(float((busy.end_s - busy.start_s)[rows].sum()))
        parts.append(f'<path d="{path}" fill="{colour}"><title>{escape(f"{title}: {name} {total}")}</title></path>')
    return parts


def _ends(predicted: Timeline, measured: Timeline, clock: TimeAxis, height: float) -> list[str]:
    """Return where prediction and measurement end, each with its time at the top."""
    parts = []
    ends = ((predicted.end_s, "p", "predicted"), (measured.end_s, "m", "measured"))
    for number, (end_s, mark, word) in enumerate(sorted(ends)):
        x = float(_x(np.array(end_s), clock))
        side, shift = ("end", -4) if number == 0 else ("start", 4)
        parts.append(f'<line class="end {mark}-line" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" '
                     f'y2="{height - _BOTTOM}"/>'
                     f'<text class="{mark}-text" x="{x + shift:.1f}" y="{_TOP - 9}" text-anchor="{side}">'
                     f"{word} {escape(units.show_time(end_s))}</text>")  # fmt: skip
    return parts


def _area(timeline: Timeline, name: str, end_s: float, clock: TimeAxis, base: float) -> str:
    edges, use = _use(timeline, name, end_s)
    x, y = np.repeat(_x(edges, clock), 2)[1:-1], np.repeat(_y(use, base), 2)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    title = escape(f"{name}, measured: {use.mean():.0%} in the mean, {use.max():.0%} at most")
    close = f"{x[-1]:.1f},{base} {x[0]:.1f},{base}"
    return f'<polygon class="m-area" points="{points} {close}"><title>{title}</title></polygon>'


def _curve(timeline: Timeline, name: str, end_s: float, clock: TimeAxis, base: float) -> str:
    edges, use = _use(timeline, name, end_s)
    x, y = np.repeat(_x(edges, clock), 2)[1:-1], np.repeat(_y(use, base), 2)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return f'<polyline class="p-curve" points="{points}"><title>{escape(f"{name}, predicted")}</title></polyline>'


def _use(timeline: Timeline, name: str, end_s: float) -> tuple[Floats, Floats]:
    """Return the edges of bins, and the share of its capacity that a link carried in each."""
    link = timeline.links.index(name)
    capacity = float(timeline.links.capacity_Bps[link])
    # A bin that holds few packets shows packets, not load.
    bin_s = max(end_s / 300, 12 * PACKET_BYTES / capacity)
    bins = max(1, int(np.ceil(end_s / bin_s)))
    mine = timeline.samples.take(np.flatnonzero(timeline.samples.link == link))
    size = binned_bytes(mine, len(timeline.links), 0.0, bin_s, bins)[link]
    edges = np.minimum(bin_s * np.arange(bins + 1), end_s)
    return edges, size / np.diff(edges) / capacity


def _mean(timeline: Timeline, name: str) -> str:
    use = timeline.link_use().mean_utilisation[timeline.links.index(name)]
    return f"mean {use:.0%}"


def _end_s(timeline: Timeline) -> float:
    return max(timeline.end_s, float(timeline.samples.end_s.max(initial=0.0)))


def _short(name: str) -> str:
    """Return a link's name without the parts that every name has, so that it fits beside its row."""
    return name.replace("/nic-0", "").replace(" -> ", " → ")


def _across() -> int:
    return _WIDTH - _LEFT - _RIGHT


def _x(time_s: Floats, clock: TimeAxis) -> Floats:
    return _LEFT + _across() * time_s * clock.second / clock.end


def _y(share: Floats, base: float) -> Floats:
    """Return where a share of capacity is drawn; a burst above 100 % is cut a little above it."""
    return base - (_LINK - 8) * np.minimum(share, 1.15)


def _open(height: float, label: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'


def _axis(clock: TimeAxis, height: float, top: float = _TOP - 4) -> str:
    parts = []
    for tick in even_ticks(clock.end, 8):
        if tick > clock.end * (1 + 1e-9):
            break
        x = _LEFT + _across() * tick / clock.end
        words = f"{tick:,g}" + (f" {clock.unit}" if tick == 0 else "")
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height - _BOTTOM}"/>')
        parts.append(f'<text class="axis" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{words}</text>')
    return "".join(parts)


def _legend(names: Sequence[tuple[str, str]]) -> str:
    marks = (f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in names)
    return f'<div class="legend">{"".join(marks)}</div>'
