"""The page and the picture of a schedule."""

from __future__ import annotations

from syncline.questions.schedule import ShownSchedule
from syncline.report.schedule_picture import draw_html, draw_svg
from syncline.report.text.schedule import summary


def page(answer: ShownSchedule) -> str:
    """Return the rounds drawn over time, with what they cost."""
    return draw_html(answer.schedule, summary(answer.schedule))


def pictures(answer: ShownSchedule) -> dict[str, str]:
    """Return the rounds drawn over time."""
    return {"schedule.svg": str(draw_svg(answer.schedule))}
