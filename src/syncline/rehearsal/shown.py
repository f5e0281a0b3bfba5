"""What a rehearsal shows beside its figures: single runs as Timelines, predicted and measured, on one axis of time.

Ranks give the spans of a run as rows, the lab what its links carried meanwhile. All ranks are on one machine, so that
their clocks are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncline.timeline import Source, SourceKind, Timeline, TimelineBuilder
from syncline.version import __version__

Row = tuple[int, int, float, float, int, int, int]
"""The columns below, of one span; times are the machine's monotonic clock."""
COLUMNS = ("rank", "kind", "start_s", "end_s", "size_bytes", "peer", "round")
IGNORES = ("when bytes leave or reach the NIC: a send ends when the transport has taken it",)


@dataclass(frozen=True, eq=False)
class TimelinePair:
    """One thing that was predicted and run, with its links; times count from its own start."""

    name: str
    predicted: Timeline
    measured: Timeline


def measured(rows: Sequence[Row], links: Timeline | None, start_s: float | None = None) -> Timeline:
    """Return spans, and what links carried meanwhile, as one Timeline; its zero is `start_s`, or its first span."""
    builder = TimelineBuilder(Source(SourceKind.LAB, "syncline rehearsal", __version__, IGNORES))
    columns = dict(zip(COLUMNS, (np.array(column) for column in zip(*rows, strict=True)), strict=True))
    begin_s = float(columns["start_s"].min()) if start_s is None else start_s
    end_s = float(columns["end_s"].max())
    columns["start_s"], columns["end_s"] = columns["start_s"] - begin_s, columns["end_s"] - begin_s
    builder.add_spans(**columns, name="run")
    if links is not None:
        _add_links(builder, links, begin_s, end_s)
    return builder.build()


def carried(links: Timeline, begin_s: float, end_s: float) -> Timeline:
    """Return what links carried between two moments of the machine's clock; times count from the first."""
    builder = TimelineBuilder(links.source)
    _add_links(builder, links, begin_s, end_s)
    return builder.build()


def _add_links(builder: TimelineBuilder, links: Timeline, begin_s: float, end_s: float) -> None:
    for name, capacity in zip(links.links.names, links.links.capacity_Bps.tolist(), strict=True):
        builder.link(name, capacity)
    samples, origin_s = links.samples, float(links.metadata["monotonic_origin_s"])
    low, high = begin_s - origin_s, end_s - origin_s
    rows = np.flatnonzero((samples.start_s < high) & (samples.end_s > low))
    if len(rows):
        builder.add_samples(
            link=samples.link[rows], start_s=samples.start_s[rows] - low, end_s=samples.end_s[rows] - low,
            size_bytes=samples.size_bytes[rows],
        )  # fmt: skip
