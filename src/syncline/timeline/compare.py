"""Predicted against measured: where two timelines part, and by how much.

compare(predicted, measured).lines      # text, as data
comparison.makespan.relative            # +0.12: measured took 12 % longer
comparison.parting                      # the first span that is off by more than the tolerance

A gap is always measured minus predicted; a relative gap is that over predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from syncline.describe.units import show_time
from syncline.errors import TimelineError
from syncline.timeline.align import Alignment, align
from syncline.timeline.columns import Floats, Ints
from syncline.timeline.gaps import Gap, Gaps, LinkGaps, kind_gaps, link_gaps, name_gaps
from syncline.timeline.source import Source
from syncline.timeline.spans import SpanKind
from syncline.timeline.timeline import Timeline

DEFAULT_TOLERANCE = 0.01
"""Share of the predicted makespan by which a span may be off before the two are said to part."""


class ClockAlignment(StrEnum):
    """How the two clocks are laid over each other before times are compared."""

    START = "start"  # the earliest matched span of each timeline is time zero
    RANK_START = "rank-start"  # each rank's earliest matched span is that rank's time zero (hosts with unlike clocks)
    NONE = "none"  # the clocks are the same


@dataclass(frozen=True)
class Parting:
    """The first point where the two part: which span, when, and whether it began off or only ended so.

    `time_s` is on the predicted clock, from the predicted start.
    """

    rank: int
    kind: SpanKind
    name: str
    step: int
    round: int
    occurrence: int
    time_s: float
    start_gap_s: float
    end_gap_s: float
    began_off: bool
    predicted_row: int
    measured_row: int

    def line(self) -> str:
        """Return the parting as one line of text."""
        place = "".join(f", {k} {v}" for k, v in (("step", self.step), ("round", self.round)) if v >= 0)
        gap_s = self.start_gap_s if self.began_off else self.end_gap_s
        how = f"{'began' if self.began_off else 'ended'} {show_time(abs(gap_s))} {'late' if gap_s > 0 else 'early'}"
        return f'they part at {show_time(self.time_s)}: rank {self.rank} {self.kind.name} "{self.name}"{place} {how}'


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything two timelines say differently. Per-span columns follow `alignment`'s pairs."""

    predicted_source: Source
    measured_source: Source
    makespan: Gap
    kinds: Gaps
    names: Gaps
    links: LinkGaps
    alignment: Alignment
    start_gap_s: Floats
    end_gap_s: Floats
    offset_s: float
    tolerance_s: float
    parting: Parting | None
    notes: tuple[str, ...]
    lines: tuple[str, ...]


def compare(
    predicted: Timeline,
    measured: Timeline,
    *,
    clock: ClockAlignment | str = ClockAlignment.START,
    scale: float = 1.0,
    tolerance_s: float | None = None,
) -> Comparison:
    """Return where `measured` parts from `predicted`; `scale` multiplies measured times first (an emulated run)."""
    clock, tolerance = _clock(clock), _tolerance(tolerance_s, predicted)
    if not (scale > 0 and math.isfinite(scale)):
        raise TimelineError(f"scale is {scale}; it must be above 0.")
    pairs = align(predicted, measured)
    offset = _offsets(predicted, measured, pairs, clock, scale)
    start_gap = measured.spans.start_s[pairs.second] * scale - predicted.spans.start_s[pairs.first] - offset
    end_gap = measured.spans.end_s[pairs.second] * scale - predicted.spans.end_s[pairs.first] - offset
    makespan = Gap("makespan", predicted.makespan_s, measured.makespan_s * scale)
    kinds, names = kind_gaps(predicted, measured, scale), name_gaps(predicted, measured, pairs, scale)
    links = link_gaps(predicted, measured, scale)
    parting = _parting(predicted, pairs, start_gap, end_gap, tolerance)
    notes = _notes(predicted, measured, pairs)
    moved = float(offset.min()) if len(offset) else 0.0
    gaps = [makespan.line(), *(gap.line() for gap in kinds.worst(3)), *(gap.line() for gap in names.worst(3))]
    gaps += [parting.line()] if parting else [f"no matched span is off by more than {show_time(tolerance)}"]
    heads = (f"predicted by {predicted.source.label()}", f"measured by {measured.source.label()}")
    lines = (*heads, *gaps, *links.lines(), *notes)
    sources = (predicted.source, measured.source)
    return Comparison(
        *sources, makespan, kinds, names, links, pairs, start_gap, end_gap, moved, tolerance, parting, notes, lines
    )


def _clock(clock: ClockAlignment | str) -> ClockAlignment:
    try:
        return ClockAlignment(clock)
    except ValueError:
        known = ", ".join(c.value for c in ClockAlignment)
        raise TimelineError(f"clock {clock!r} is unknown.", hint=f"Known: {known}.") from None


def _tolerance(tolerance_s: float | None, predicted: Timeline) -> float:
    if tolerance_s is None:
        return DEFAULT_TOLERANCE * predicted.makespan_s
    if not (tolerance_s >= 0 and math.isfinite(tolerance_s)):
        raise TimelineError(f"tolerance_s is {tolerance_s}; it must be 0 or above.")
    return tolerance_s


def _offsets(predicted: Timeline, measured: Timeline, pairs: Alignment, clock: ClockAlignment, scale: float) -> Floats:
    """Return what to take off each measured time so that both clocks begin together."""
    zero = np.zeros(len(pairs.first), np.float64)
    if clock is ClockAlignment.NONE or not len(zero):
        return zero
    expected, seen = predicted.spans.start_s[pairs.first], measured.spans.start_s[pairs.second] * scale
    if clock is ClockAlignment.START:
        return zero + float(seen.min() - expected.min())
    ranks, group = np.unique(predicted.spans.rank[pairs.first], return_inverse=True)
    offset: Floats = _least(seen, group, len(ranks)) - _least(expected, group, len(ranks))
    return offset[group]


def _least(values: Floats, group: Ints, num_groups: int) -> Floats:
    least = np.full(num_groups, np.inf)
    np.minimum.at(least, group, values)
    return least


def _parting(
    predicted: Timeline, pairs: Alignment, start_gap: Floats, end_gap: Floats, tolerance_s: float
) -> Parting | None:
    late = np.abs(start_gap) > tolerance_s
    off = np.flatnonzero(late | (np.abs(end_gap) > tolerance_s))
    if not len(off):
        return None
    spans = predicted.spans
    rows = pairs.first[off]
    time_s = np.where(late[off], spans.start_s[rows], spans.end_s[rows])
    # At one moment the span that ended late comes before the spans that therefore began late.
    pick = int(np.lexsort((spans.rank[rows], late[off], time_s))[0])
    row, pair = int(rows[pick]), int(off[pick])
    return Parting(
        rank=int(spans.rank[row]),
        kind=SpanKind(int(spans.kind[row])),
        name=predicted.names[int(spans.name[row])],
        step=int(spans.step[row]),
        round=int(spans.round[row]),
        occurrence=int(pairs.occurrence[pair]),
        time_s=float(time_s[pick]) - predicted.start_s,
        start_gap_s=float(start_gap[pair]),
        end_gap_s=float(end_gap[pair]),
        began_off=bool(late[pair]),
        predicted_row=row,
        measured_row=int(pairs.second[pair]),
    )


def _notes(predicted: Timeline, measured: Timeline, pairs: Alignment) -> tuple[str, ...]:
    """Return what a reader must know before trusting the gaps."""
    notes = []
    for label, mine, other in (("predicted", predicted, measured), ("measured", measured, predicted)):
        alone = [what for what in mine.source.ignores if what not in other.source.ignores]
        if alone:
            notes.append(f"only {label} ignores {', '.join(alone)}")
    for label, timeline, rows in (
        ("predicted", predicted, pairs.only_first),
        ("measured", measured, pairs.only_second),
    ):
        if len(rows):
            notes.append(
                f"{len(rows):,} of {len(timeline.spans):,} {label} spans have no partner: {_most(timeline, rows)}"
            )
    if pairs.dropped:
        notes.append(f"not used for matching, only one side fills it: {', '.join(pairs.dropped)}")
    return tuple(notes)


def _most(timeline: Timeline, rows: Ints) -> str:
    count = np.bincount(timeline.spans.name[rows], minlength=len(timeline.names))
    top = [int(i) for i in np.argsort(-count, kind="stable")[:3] if count[i]]
    more = " ..." if int(np.count_nonzero(count)) > len(top) else ""
    return ", ".join(f'"{timeline.names[i]}" ({count[i]:,})' for i in top) + more
