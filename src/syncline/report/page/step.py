"""One step as a page: where the time goes, and the timeline of every rank drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.describe import units
from syncline.report.chart.bars import PART_COLOURS, BarPart, stacked
from syncline.report.chart.lanes import timeline_key, timeline_lanes
from syncline.report.page.page import render
from syncline.report.text.step import PART_WORDS

if TYPE_CHECKING:
    from syncline.questions.step import StepPrediction


def page(answer: StepPrediction) -> str:
    """Return the page of a predicted step."""
    timeline, parts = answer.timeline, answer.parts_s
    shown = [
        BarPart(f"{PART_WORDS[name]} {units.show_time(s)}", s, PART_COLOURS[name])
        for name, s in parts.items()
        if s >= 0
    ]
    return render(
        "step",
        title=f"{answer.job}: {answer.model}, {units.show_time(answer.step_time_s)} a step",
        split=f"{answer.gpus:,} x {answer.gpu} on {answer.cluster}",
        bar=stacked(shown, sum(part.value for part in shown) or 1.0),
        heading="One rank of every pipeline stage",
        source=timeline.source.label(),
        timeline=timeline_lanes(timeline),
        key=timeline_key(timeline),
        text=answer,
    )
