"""When: what happened, or would happen, on which rank and link; who says so."""

from __future__ import annotations

from syncline.timeline.builder import TimelineBuilder
from syncline.timeline.export import load, save
from syncline.timeline.links import LinkSamples, NamedLinks
from syncline.timeline.source import Source, SourceKind
from syncline.timeline.spans import COMMUNICATION, SpanKind, Spans
from syncline.timeline.timeline import LinkUse, Timeline

__all__ = [
    "COMMUNICATION",
    "LinkSamples",
    "LinkUse",
    "NamedLinks",
    "Source",
    "SourceKind",
    "SpanKind",
    "Spans",
    "Timeline",
    "TimelineBuilder",
    "load",
    "save",
]
