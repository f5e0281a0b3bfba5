"""Jobs that share a cluster as a page: when each computes and sends, unsteered and steered, and what each loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from syncline.describe import units
from syncline.report.chart.lanes import ChartLane, lanes
from syncline.report.chart.plot import NUM_COLOURS, Axis
from syncline.report.page.page import render
from syncline.report.text.share import steering_words

if TYPE_CHECKING:
    from syncline.questions.share import ShareAnswer
    from syncline.sharing.epochs import Epoch

SHOWN_STEPS = 5
"""Steps of the slowest job that are drawn, once settled."""


def page(answer: ShareAnswer) -> str:
    """Return the page of jobs that share a cluster."""
    return render(
        "share",
        title=f"{len({job.name for epoch in answer.epochs for job in epoch.jobs})} jobs on {answer.cluster}",
        epochs=answer.epochs,
        words=[steering_words(epoch) for epoch in answer.epochs],
        drawings=[_sharing(epoch) for epoch in answer.epochs],
        text=answer,
    )


def _sharing(epoch: Epoch) -> Markup | None:
    """Return when each job of an epoch moves bytes, as steered."""
    if epoch.steering is None:
        return None
    course = epoch.steering.course
    longest = max(course.step_s)
    begin = min(course.horizon_s, 3 * longest)
    end = min(course.horizon_s, begin + SHOWN_STEPS * longest)
    if end - begin < longest:
        begin = max(0.0, end - longest)
    drawn = []
    for number, job in enumerate(epoch.jobs):
        spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for a, b in course.busy[number]:
            if b > begin and a < end:
                key = f"{job.name} moves bytes for {units.show_time(b - a)}", f"var(--c{number % NUM_COLOURS})"
                spans.setdefault(key, []).append((max(a, begin) - begin, min(b, end) - begin))
        ticks = [a - begin for a, _ in course.steps[number] if begin <= a <= end]
        drawn.append(ChartLane(job.name[:20], spans, 20, 10, ticks=ticks))
    return lanes("when jobs send", drawn, Axis.time(end - begin))
