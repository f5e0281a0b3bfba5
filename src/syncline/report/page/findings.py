"""Findings as one page: the worst first, each with evidence, meaning and fix; it prints as it looks."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.bench.verdict import Judgement
from syncline.describe.units import show_size, show_time
from syncline.finding import Finding, Severity
from syncline.report.chart.bars import BarRow, bars
from syncline.report.page.page import render
from syncline.report.page.rehearse import both

_ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.UNKNOWN)


def findings_page(
    title: str, lines: Sequence[str], findings: Sequence[Finding], sweep: Sequence[Judgement] = ()
) -> str:  # fmt: skip
    """Return the page: the first of `lines` as the answer, findings worst first, the sweep, all lines as text."""
    wrong = [finding for severity in _ORDER for finding in findings if finding.severity is severity]
    rows = []
    for row in sweep:
        if row.expected is not None:
            times = row.expected.time_s, row.measured.timing.median_s
            name = f"{row.measured.algorithm} {show_size(row.measured.size_bytes)}"
            rows.append(BarRow(name, both(*times), [" / ".join(map(show_time, times))]))
    return render(
        "findings", title=title, lines=lines, findings=wrong, sweep=bars(rows, own_scale=True) if rows else ""
    )
