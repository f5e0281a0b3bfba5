"""The rounds of a schedule, drawn."""

from __future__ import annotations

from syncline.questions.schedule import ShownSchedule
from syncline.report.page.page import Drawing
from syncline.report.schedule_picture import draw_each, draw_svg


def drawings(answer: ShownSchedule) -> list[Drawing]:
    """Return every strand drawn over time, alike ones once."""
    return [Drawing("", picture) for picture in draw_each(answer.schedule)]


def pictures(answer: ShownSchedule) -> dict[str, str]:
    """Return the rounds drawn over time."""
    return {"schedule.svg": str(draw_svg(answer.schedule))}
