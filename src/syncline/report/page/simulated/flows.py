"""What is drawn of simulated flows."""

from __future__ import annotations

from syncline.questions.simulated.flows import FlowsAnswer
from syncline.report.page.packet import watched
from syncline.report.page.page import Drawing


def drawings(answer: FlowsAnswer) -> list[Drawing]:
    """Return slowdowns by size, and what queues, marks and rates did over time; two transports side by side."""
    outcomes, tables = zip(*answer.results, strict=True)
    names = [run.transport for run in answer.runs] if len(outcomes) > 1 else [""]
    return watched(list(zip(names, outcomes, strict=True)), tables)
