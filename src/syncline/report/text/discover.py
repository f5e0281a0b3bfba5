"""A discovered cluster, as a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.questions.discover import DiscoveredCluster


def text(answer: DiscoveredCluster, width: int) -> Iterator[str]:
    """Yield what was written, what was guessed and how to look at it."""
    yield f"wrote {answer.written}: hosts {answer.hosts:,}, GPUs {answer.gpus:,}"
    yield from (f"  note: {note}" for note in answer.notes.split("; ") if note)
    yield f"look at it: syncline fabric show {answer.written}"
