"""A rehearsal as one page: predicted and measured bars, runs on one axis of time, links and the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from syncline.describe import units
from syncline.questions.rehearse import RehearsalAnswer, ScriptRehearsalAnswer
from syncline.rehearsal.rehearse import Rehearsal
from syncline.rehearsal.shown import TimelinePair
from syncline.report.chart.bars import BarPart, BarRow, bars
from syncline.report.chart.lanes import LinkChart, aligned_ranks, link_charts
from syncline.report.chart.plot import Axis, Line, plot
from syncline.report.page.page import answer_page, render
from syncline.report.text.rehearse import rehearsal_lines, script_lines

MOST_SHOWN_LINKS = 4


def page(answer: RehearsalAnswer | ScriptRehearsalAnswer) -> str:
    """Return the page of a rehearsal; a script's is its text."""
    if isinstance(answer, ScriptRehearsalAnswer):
        return answer_page(script_lines(answer.found))
    return rehearsal_page(answer.rehearsal, rehearsal_lines(answer.rehearsal))


def rehearsal_page(answer: Rehearsal, lines: Sequence[str]) -> str:
    """Return the page; `lines` are the same answer as text."""
    operations = [
        _pair(f"{row.algorithm} {units.show_size(row.size_bytes)}", row.predicted_s, row.measured_s, row.gap)
        for row in answer.operations
        if not row.calibrated_on
    ]
    steps = [_pair(row.synchronisation, row.predicted_s, row.measured_s, row.gap) for row in answer.steps]
    place = "over loopback, each held to its rate by the runtime" if answer.is_loopback else "on an emulated copy"
    recommended = answer.recommended.synchronisation if answer.steps else ""
    runs = [_aligned(run) for run in answer.shown]
    return render(
        "rehearsal",
        title=f"Rehearsal of {answer.cluster}",
        lines=lines,
        where=f"{answer.num_ranks} ranks {place} on one machine, rates scaled by {answer.scale:g}.",
        notes=answer.notes,
        steps=bars(steps) if steps else "",
        step=runs[-1] if runs else None,
        trained_links=None if answer.links is None else link_charts(answer.links),
        recommended=recommended,
        losses=_losses(answer.trained, recommended),
        operations=bars(operations) if operations else "",
        programs=runs[:-1],
    )


@dataclass(frozen=True)
class _AlignedRun:
    """One run: what every rank did and what the busiest links carried, on one axis of time."""

    name: str
    ranks: Markup
    links: tuple[list[LinkChart], int]


def _aligned(run: TimelinePair) -> _AlignedRun:
    charts = link_charts(run.measured, run.predicted, MOST_SHOWN_LINKS)
    return _AlignedRun(run.name[:1].upper() + run.name[1:], aligned_ranks(run.predicted, run.measured), charts)


def both(predicted_s: float, measured_s: float) -> list[list[BarPart]]:
    """Return two bars: predicted above measured."""
    return [
        [BarPart(f"{word} {units.show_time(time_s)}", time_s, f"var(--{word})")]
        for word, time_s in (("predicted", predicted_s), ("measured", measured_s))
    ]


def _pair(name: str, predicted_s: float, measured_s: float, gap: float) -> BarRow:
    times = f"{units.show_time(predicted_s)} / {units.show_time(measured_s)}"
    return BarRow(name, both(predicted_s, measured_s), [times, f"{gap:+.1%}"])


def _losses(curves: Mapping[str, Sequence[float]], recommended: str) -> Markup | str:
    """Return the loss of each run by step, the recommended one last and thick."""
    if not curves:
        return ""
    steps = max(len(curve) for curve in curves.values())
    low, high = min(map(min, curves.values())), max(map(max, curves.values()))
    lines = [
        Line(f"{name}, recommended" if name == recommended else name, range(1, len(curve) + 1), curve,
             width=2.6 if name == recommended else 1.4)
        for name, curve in sorted(curves.items(), key=lambda item: item[0] == recommended)
    ]  # fmt: skip
    x = Axis(1, max(steps, 2), [(1, "step 1"), (max(steps, 2), f"step {max(steps, 2)}")])
    y = Axis(low, high if high > low else low + 1, [(loss, f"{loss:.2f}") for loss in (low, (low + high) / 2, high)])
    return plot("loss by step", lines, x, y, height=300)
