"""The page of a pattern of messages."""

from __future__ import annotations

from syncline.questions.simulated.traffic import PatternTraffic
from syncline.report.page.packet import watched_page


def page(answer: PatternTraffic) -> str:
    """Return what queues, marks and rates did over time."""
    return watched_page(answer.title, answer.outcome)
