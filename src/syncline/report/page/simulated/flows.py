"""The page of simulated flows."""

from __future__ import annotations

from syncline.questions.simulated.flows import FlowsAnswer
from syncline.report.page.packet import watched_page, watched_pair


def page(answer: FlowsAnswer) -> str:
    """Return slowdowns by size, and what queues, marks and rates did over time; two transports side by side."""
    title = f"{answer.flows:,} flows on {answer.cluster}"
    outcomes, tables = zip(*answer.results, strict=True)
    if len(outcomes) > 1:
        return watched_pair(
            title, [(run.transport, out) for run, out in zip(answer.runs, outcomes, strict=True)], tables
        )
    return watched_page(title, outcomes[0], flows=tables)
