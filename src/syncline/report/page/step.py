"""What is drawn of one step: where the time goes, and the timeline of every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from syncline.describe import units
from syncline.report.chart.bars import PART_COLOURS, BarPart, stacked
from syncline.report.chart.lanes import timeline_key, timeline_lanes
from syncline.report.page.page import Drawing
from syncline.report.text.step import PART_WORDS
from syncline.timeline import Timeline

NO_KEY = Markup("")

if TYPE_CHECKING:
    from syncline.questions.step import StepPrediction


def drawings(answer: StepPrediction) -> list[Drawing]:
    """Return the parts of a predicted step, and what its ranks do."""
    parts = [
        BarPart(f"{PART_WORDS[name]} {units.show_time(s)}", s, PART_COLOURS[name])
        for name, s in answer.parts_s.items()
        if s >= 0
    ]
    return [
        Drawing("Where the time goes", stacked(parts, sum(part.value for part in parts) or 1.0)),
        timeline_drawing("One rank of every pipeline stage", answer.timeline, timeline_key(answer.timeline)),
    ]


def timeline_drawing(heading: str, timeline: Timeline, key: Markup = NO_KEY) -> Drawing:
    """Return the ranks of a timeline as lanes."""
    note = f"{timeline.source.label()}. Hover a span for its name, time and bytes."
    return Drawing(heading, timeline_lanes(timeline) + key, note)
