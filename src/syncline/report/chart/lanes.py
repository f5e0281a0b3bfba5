"""Time from left to right, one lane below the other: spans of a timeline, predicted above measured, load of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from syncline.describe import units
from syncline.report.chart.plot import WIDTH, Axis, Floats, Line, legend, plot
from syncline.report.chart.svg import Svg, num
from syncline.timeline import SpanKind, Timeline
from syncline.timeline.rates import binned_bytes

MAX_SPANS = 6000
MOST_LINKS = 24
PACKET_BYTES = 9018
SPAN_COLOURS = {
    "forward": "#4c8bf5", "backward": "#2f5fb3", "weight gradient": "#7aa7e8", "optimizer": "#6b7280",
    "tensor": "#e08a1e", "context": "#b7791f", "expert": "#c2410c", "fsdp": "#d97706", "gradients": "#be185d",
    "parameters": "#db2777", "send": "#15803d",
}  # fmt: skip
ACTIVITIES: tuple[tuple[str, tuple[SpanKind, ...], str], ...] = (
    ("computing", (SpanKind.COMPUTE,), "var(--c0)"),
    ("encoding, adding, decoding", (SpanKind.ENCODE, SpanKind.REDUCE, SpanKind.COPY, SpanKind.DECODE), "var(--c3)"),
    ("sending", (SpanKind.SEND,), "var(--c2)"),
    ("receiving", (SpanKind.RECV,), "var(--c5)"),
    ("all-reduce of a bucket", (SpanKind.COLLECTIVE,), "var(--c4)"),
)
"""What a rank does at once, one below the other: name, kinds, colour."""

Spans = Mapping[tuple[str, str], Sequence[tuple[float, float]]]
"""Starts and ends, by what hovering over the span says and its colour."""


@dataclass(frozen=True)
class ChartLane:
    """One lane: its name, its spans, and moments that a tick marks. `tone` is the class of its name."""

    name: str
    spans: Spans
    height: float = 11
    gap: float = 2
    tone: str = ""
    ticks: Sequence[float] = field(default=())


def lanes(label: str, rows: Sequence[ChartLane], axis: Axis, ends: Sequence[tuple[float, str, str]] = ()) -> Markup:
    """Return lanes over one axis of time; `ends` are moments with words and a tone, marked across all lanes."""
    left, right, top, bottom = 150, 40, 20 if ends else 4, 24
    svg = Svg(WIDTH, top + sum(lane.height + lane.gap for lane in rows) + bottom, label)

    def x(time_s: float) -> float:
        return round(float(left + (WIDTH - left - right) * axis.share(time_s)), 1)

    for time_s, words in axis.ticks:
        svg.line(x(time_s), top, x(time_s), svg.height - bottom + 4, class_="grid")
        svg.text(x(time_s), svg.height - 6, words, text_anchor="middle")
    y = float(top)
    for lane in rows:
        middle = y + lane.height / 2
        if lane.name:
            svg.text(left - 8, middle + 4, lane.name, text_anchor="end", class_=lane.tone)
        svg.line(left, middle, WIDTH - right, middle, class_="lane", stroke_width=lane.height)
        for (title, colour), spans in lane.spans.items():
            path, at = f"M{left} {num(middle)}", float(left)
            for start_s, end_s in spans:
                begin, wide = x(start_s), max(x(end_s) - x(start_s), 0.4)
                path += f"m{num(begin - at)} 0h{num(wide)}"
                at = begin + round(wide, 1)
            svg.add("path", title=title, d=path, stroke=colour, stroke_width=lane.height)
        if lane.ticks:
            marks = "".join(f"M{num(x(time_s))} {num(y - 2)}v{num(lane.height + 4)}" for time_s in lane.ticks)
            svg.add("path", d=marks, stroke="currentColor")
        y += lane.height + lane.gap
    for number, (time_s, words, tone) in enumerate(sorted(ends)):
        side, shift = ("end", -4) if number == 0 else ("start", 4)
        svg.line(x(time_s), top - 6, x(time_s), svg.height - bottom, class_=f"end {tone}")
        svg.text(x(time_s) + shift, top - 8, words, text_anchor=side, class_=tone)
    return svg.markup()


def span_colour(name: str) -> str:
    """Return the colour of a span by its name."""
    return SPAN_COLOURS.get(name) or SPAN_COLOURS.get(name.split(" ")[0], "#9ca3af")


def timeline_lanes(timeline: Timeline) -> Markup:
    """Return every rank's compute above its communication. Spans that are alike in a lane are one element."""
    spans = timeline.spans
    rows = np.arange(len(spans)) if len(spans) <= MAX_SPANS else _thinned(timeline)
    by_lane: dict[tuple[int, bool], dict[tuple[str, str], list[tuple[float, float]]]] = {
        (int(rank), computes): {} for rank in timeline.ranks for computes in (True, False)
    }
    for row in rows[np.argsort(spans.start_s[rows], kind="stable")].tolist():
        name = timeline.names[int(spans.name[row])]
        start_s, end_s = float(spans.start_s[row]) - timeline.start_s, float(spans.end_s[row]) - timeline.start_s
        size = f", {units.show_size(int(spans.size_bytes[row]))}" if spans.size_bytes[row] else ""
        title = f"{name} {units.show_time(float(f'{end_s - start_s:.3g}'))}{size}"
        lane = by_lane[int(spans.rank[row]), int(spans.kind[row]) == SpanKind.COMPUTE]
        lane.setdefault((title, span_colour(name)), []).append((start_s, end_s))
    shown = [
        ChartLane(f"stage {rank}", drawn, 11, 1) if computes else ChartLane("", drawn, 8, 6)
        for (rank, computes), drawn in by_lane.items()
    ]
    return lanes("timeline of one step", shown, Axis.time(timeline.makespan_s))


def timeline_key(timeline: Timeline) -> Markup:
    """Return what the colours of a timeline mean."""
    return legend([(name, span_colour(name)) for name in timeline.names])


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


def aligned_ranks(predicted: Timeline, measured: Timeline) -> Markup:
    """Return what every rank does when: the prediction above what was measured, with the end of each."""
    both = np.concatenate((predicted.spans.kind, measured.spans.kind))
    activities = [activity for activity in ACTIVITIES if np.isin(both, activity[1]).any()]
    runs = ((predicted, "predicted"), (measured, "measured"))
    rows = []
    for rank in sorted({*predicted.ranks.tolist(), *measured.ranks.tolist()}):
        for timeline, word in runs:
            for number, (name, kinds, colour) in enumerate(activities):
                title, spans = _covered(timeline, rank, kinds)
                last = number == len(activities) - 1
                gap = 10 if last and word == "measured" else 3 if last else 1
                shown = {(f"rank {rank}, {word}: {name} {title}", colour): spans} if spans else {}
                rows.append(ChartLane("" if number else f"rank {rank} {word}", shown, 6, gap, word))
    ends = [(timeline.end_s, f"{word} {units.show_time(timeline.end_s)}", word) for timeline, word in runs]
    axis = Axis.time(max(predicted.end_s, measured.end_s))
    key = legend([(name, colour) for name, _, colour in activities])
    return lanes("what every rank does, predicted above measured", rows, axis, ends) + key


def _covered(timeline: Timeline, rank: int, kinds: tuple[SpanKind, ...]) -> tuple[str, list[tuple[float, float]]]:
    """Return when a rank does something of these kinds, and how long in all."""
    place = np.flatnonzero(timeline.ranks == rank)
    busy = timeline.covered(kinds)
    rows = np.flatnonzero(busy.group == place[0]) if len(place) else place
    start_s, end_s = busy.start_s[rows], busy.end_s[rows]
    return units.show_time(float((end_s - start_s).sum())), list(zip(start_s.tolist(), end_s.tolist(), strict=True))


@dataclass(frozen=True)
class LinkChart:
    """How full one link is over time, and in the mean."""

    name: str
    mean: float
    svg: Markup


def link_charts(
    measured: Timeline | None, predicted: Timeline | None = None, most: int = MOST_LINKS
) -> tuple[list[LinkChart], int]:
    """Return charts of the busiest links, measured as an area and predicted as a line, and how many are left out."""
    given = [timeline for timeline in (measured, predicted) if timeline is not None and len(timeline.samples)]
    if not given:
        return [], 0
    end_s = max(max(timeline.end_s, float(timeline.samples.end_s.max())) for timeline in given)
    use = given[0].link_use()
    order = np.argsort(-np.nan_to_num(use.mean_utilisation), kind="stable")
    carried = [i for i in order.tolist() if use.size_bytes[i] > 0]
    share = Axis(0.0, 1.15, [(0.0, "idle"), (1.0, "full")])
    charts = []
    for i in carried[:most]:
        name, lines = given[0].links.names[i], []
        for timeline in given:
            if name in timeline.links.names:
                x, y = _use(timeline, name, end_s)
                word, base = ("measured", np.zeros_like(y)) if timeline is measured else ("predicted", None)
                title = f"{name}, {word}: {y.mean():.0%} in the mean, {y.max():.0%} at most"
                drawn = np.minimum(np.repeat(y, 2), share.high)  # a burst is cut a little above 100 %
                low = None if base is None else np.repeat(base, 2)
                lines.append(Line(title, np.repeat(x, 2)[1:-1], drawn, low, colour=f"var(--{word})"))
        chart = plot(f"share of {name} in use over time", lines, Axis.time(end_s), share, height=76, has_legend=False)
        charts.append(LinkChart(name.replace(" -> ", " → "), float(use.mean_utilisation[i]), chart))
    return charts, len(carried) - len(charts)


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
