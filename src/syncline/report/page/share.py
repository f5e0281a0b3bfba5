"""What is drawn of jobs that share a cluster: when each computes and sends, as steered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from syncline.describe import units
from syncline.report.chart.lanes import ChartLane, lanes
from syncline.report.chart.plot import NUM_COLOURS, Axis
from syncline.report.page.page import Drawing
from syncline.report.text.share import steering_words

if TYPE_CHECKING:
    from syncline.questions.share import ShareAnswer
    from syncline.sharing.epochs import Epoch

SHOWN_STEPS = 5
"""Steps of the slowest job that are drawn, once settled."""


def drawings(answer: ShareAnswer) -> list[Drawing]:
    """Return when each job of an epoch moves bytes."""
    note = "Filled: the job moves bytes. Grey: it computes or waits. Ticks: steps begin."
    drawn = []
    for epoch in answer.epochs:
        until = "on" if epoch.end_s is None else f"to {units.show_time(epoch.end_s)}"
        heading = f"From {units.show_time(epoch.begin_s)} {until}: {steering_words(epoch)}"
        lanes = _sharing(epoch)
        drawn += [] if lanes is None else [Drawing(heading, lanes, note)]
    return drawn


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
