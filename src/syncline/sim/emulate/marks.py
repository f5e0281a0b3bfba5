"""Spans of a priced script: what a rank does between two moments of its tasks, and the Timeline that a course makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syncline.sim.flow.engine import Course, Floats
from syncline.timeline import Source, SourceKind, SpanKind, Timeline, TimelineBuilder
from syncline.version import __version__


class Mark(NamedTuple):
    """A span of one rank: from the end of task `after` (from when `task` could begin, if -1) to the end of `task`."""

    rank: int
    kind: SpanKind
    task: int
    after: int = -1
    size_bytes: float = 0.0
    peer: int = -1
    round: int = -1
    name: str = ""
    """"": that of the whole."""


def timeline_of(
    name: str,
    marks: Sequence[Mark],
    course: Course,
    names: Sequence[str],
    rate_Bps: Floats,
    ignores: Sequence[str],
) -> Timeline:
    """Return the spans of the marks in a course, and what its links carried, at their line rates."""
    builder = TimelineBuilder(Source(SourceKind.SIMULATED_FLOW, "syncline emulation", __version__, tuple(ignores)))
    task, after = (np.array([getattr(mark, field) for mark in marks], np.int64) for field in ("task", "after"))
    end = course.end_s[task]
    start = np.minimum(np.where(after < 0, course.begin_s[task], course.end_s[after]), end)
    builder.add_spans(
        name=[builder.name(mark.name or name) for mark in marks], start_s=start, end_s=end,
        rank=[mark.rank for mark in marks], kind=[mark.kind for mark in marks],
        size_bytes=[int(mark.size_bytes) for mark in marks], peer=[mark.peer for mark in marks],
        round=[mark.round for mark in marks],
    )  # fmt: skip
    for number, (link, rate) in enumerate(zip(names, rate_Bps.tolist(), strict=True)):
        builder.link(link if link not in names[:number] else f"{link} #{number}", rate)  # parallel cables: one name
    carried = np.flatnonzero(course.sample_link < len(names))
    if len(carried):
        begin_s, end_s = course.sample_begin_s[carried], course.sample_end_s[carried]
        builder.add_samples(
            link=course.sample_link[carried], start_s=begin_s, end_s=end_s,
            size_bytes=(end_s - begin_s) * course.sample_Bps[carried],
        )  # fmt: skip
    return builder.build()
