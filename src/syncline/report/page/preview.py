"""A previewed script as a page: two steps of every captured rank."""

from __future__ import annotations

from syncline.describe import units
from syncline.questions.preview import PreviewAnswer
from syncline.report.chart.lanes import timeline_lanes
from syncline.report.page.page import render


def page(answer: PreviewAnswer) -> str:
    """Return the page of a previewed script."""
    timeline = answer.timeline
    time = units.show_time(answer.step_time_s)
    return render(
        "step",
        title=f"{answer.launch.script} on {answer.fabric.name}: {time} a step",
        bar=None,
        heading="Two steps of every captured rank",
        source=timeline.source.label(),
        timeline=timeline_lanes(timeline),
        key="",
        text=answer,
    )
