"""Spans from Timeline files that a run leaves in a folder, one per rank or per step."""

from __future__ import annotations

import os

import numpy as np

from syncline.errors import SynclineError
from syncline.timeline import SpanKind, Timeline, load
from syncline.watch.clock import Clock
from syncline.watch.spans.event import SpanEvent, SpanSource
from syncline.watch.spans.tail import Tail

SUFFIXES = (".timeline", ".json.gz", ".parquet", ".json")


class TimelineSpans(SpanSource):
    """Reads every timeline that appears in a folder, once.

    A timeline's clock has its own origin: `metadata["wall_origin_s"]` (Unix time of its zero) places it; without it,
    the run is taken to have ended when its file was written.
    """

    name = "timelines"

    def __init__(self, folder: str | os.PathLike[str], clock: Clock) -> None:
        self._clock = clock
        self._tail = Tail(folder, SUFFIXES)

    def read(self) -> list[SpanEvent]:
        """Return the spans of every new timeline."""
        events: list[SpanEvent] = []
        for path in self._tail.new_files():
            try:
                timeline = load(path)
                written_s = path.stat().st_mtime
            except (SynclineError, OSError) as error:
                self.num_bad += 1
                self.problem = f"{path.name}: {error}"
                continue
            origin = timeline.metadata.get("wall_origin_s")
            origin_s = origin if isinstance(origin, (int, float)) else written_s - timeline.end_s
            events += events_of(timeline, self._clock.from_wall(float(origin_s)))
        return events


def events_of(timeline: Timeline, shift_s: float = 0.0) -> list[SpanEvent]:
    """Return a timeline's spans as events, its clock moved by `shift_s`."""
    s = timeline.spans
    if not (s.kind == SpanKind.COLLECTIVE).any() and len(s):
        return _events(timeline, shift_s) + _whole_collectives(timeline, shift_s)
    return _events(timeline, shift_s)


def _whole_collectives(timeline: Timeline, shift_s: float) -> list[SpanEvent]:
    """Return the collectives that a simulated timeline names, as every rank's own: from its first span to its last."""
    listed = timeline.metadata.get("collectives")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    if len(rows) != 1:
        return []
    s, row = timeline.spans, rows[0]
    size = row.get("size_bytes")
    name, size = str(row.get("name")), size if isinstance(size, int) else 0
    begin = {rank: float(s.start_s[s.rank == rank].min()) for rank in np.unique(s.rank).tolist()}
    return [
        SpanEvent(rank, SpanKind.COLLECTIVE, name, begin[rank] + shift_s, timeline.end_s + shift_s, size)
        for rank in begin
    ]


def _events(timeline: Timeline, shift_s: float) -> list[SpanEvent]:
    s = timeline.spans
    columns = (s.rank, s.kind, s.name, s.start_s, s.end_s, s.size_bytes, s.step, s.peer)
    return [
        SpanEvent(rank, SpanKind(kind), timeline.names[name], start + shift_s, end + shift_s, size, step, peer)
        for rank, kind, name, start, end, size, step, peer in zip(*(c.tolist() for c in columns), strict=True)
    ]
