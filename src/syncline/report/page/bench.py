"""The page of a sweep: findings, the worst first, and measured beside predicted."""

from __future__ import annotations

from syncline.questions.bench import BenchAnswer
from syncline.report.page.findings import findings_page
from syncline.report.text.bench import answer_lines


def page(answer: BenchAnswer) -> str:
    """Return the page."""
    return findings_page(f"Bench of {answer.ranks} ranks", answer_lines(answer), answer.findings, answer.rows)
