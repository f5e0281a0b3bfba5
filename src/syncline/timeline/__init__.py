"""When: what happened, or would happen, on which rank and link; who says so; and where two accounts part."""

from __future__ import annotations

from syncline.timeline.builder import TimelineBuilder, merge
from syncline.timeline.compare import ClockAlignment, Comparison, Parting, compare
from syncline.timeline.export import load, save
from syncline.timeline.links import LinkSamples, NamedLinks
from syncline.timeline.source import Source, SourceKind
from syncline.timeline.spans import COMMUNICATION, SpanKind, Spans
from syncline.timeline.summary import Summary, summarise
from syncline.timeline.timeline import LinkUse, Timeline

__all__ = [
    "COMMUNICATION",
    "ClockAlignment",
    "Comparison",
    "LinkSamples",
    "LinkUse",
    "NamedLinks",
    "Parting",
    "Source",
    "SourceKind",
    "SpanKind",
    "Spans",
    "Summary",
    "Timeline",
    "TimelineBuilder",
    "compare",
    "load",
    "merge",
    "save",
    "summarise",
]
