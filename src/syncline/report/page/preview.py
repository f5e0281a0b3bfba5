"""What is drawn of a previewed script: two steps of every captured rank."""

from __future__ import annotations

from syncline.questions.preview import PreviewAnswer
from syncline.report.page.page import Drawing
from syncline.report.page.step import timeline_drawing


def drawings(answer: PreviewAnswer) -> list[Drawing]:
    """Return what every captured rank does."""
    return [timeline_drawing("Two steps of every captured rank", answer.timeline)]
