"""What is drawn of a pattern of messages."""

from __future__ import annotations

from syncline.questions.simulated.traffic import PatternTraffic
from syncline.report.page.packet import watched
from syncline.report.page.page import Drawing


def drawings(answer: PatternTraffic) -> list[Drawing]:
    """Return what queues, marks and rates did over time."""
    return watched([("", answer.outcome)])
