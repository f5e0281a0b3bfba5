"""A rehearsal in words: predicted beside measured, the largest gap and its likely reason, and what to use."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from syncline.describe import units
from syncline.questions.rehearse import RehearsalAnswer, ScriptRehearsalAnswer
from syncline.rehearsal.rehearse import OperationRow, Rehearsal, StepRow
from syncline.rehearsal.script import ScriptRehearsal
from syncline.report.text.account import cause_lines


def rehearsal_lines(found: Rehearsal) -> list[str]:
    """Return the answer first, then the tables, then what was left out."""
    costs = found.fit.costs
    where = "over loopback" if found.is_loopback else "on an emulated copy"
    lines = [
        headline(found),
        "",
        f"{found.cluster}: {found.num_ranks} ranks {where}, rates scaled by {found.scale:g}; hosts fitted: "
        f"{costs.efficiency:.1%} of line rate, {units.show_time(costs.latency_s)} a message, "
        f"{units.show_time(costs.start_s)} to start (fitted to {found.fit.median_error:.1%}, "
        f"{found.fit.worst_error:.1%} at worst)",
        "",
        f"{'collective':<20}{'size':>10}{'predicted':>12}{'measured':>12}{'gap':>8}   spread",
    ]
    lines += [_operation(row) for row in found.operations]
    lines += ["", f"{'training step':<24}{'predicted':>12}{'measured':>12}{'gap':>8}   {'sent':>10}{'loss':>8}"]
    lines += [_step(row) for row in found.steps]
    lines += ["", *(f"not run: {name}: {why}" for name, why in found.skipped.items())]
    if (account := found.account) is not None:
        lines += [f"{account.after.name}, one of them as it ran:", *cause_lines(account, "predicted", "measured"), ""]
    largest = found.largest()
    if largest is not None:
        lines += [explain(found, largest)]
    lines += [f"note: {note}" for note in found.notes]
    return lines


def headline(found: Rehearsal) -> str:
    """Return the sentence that stands alone."""
    gaps = [abs(row.gap) for row in found.operations if row.scored]
    right = f"predictions were within {statistics.median(gaps):.1%} (median), {max(gaps):.1%} at worst" if gaps else ""
    if not found.steps:
        return right
    best = found.recommended
    plain = next((row for row in found.steps if row.synchronisation == "ddp"), None)
    gain = f", {plain.measured_s / best.measured_s:.1f}x plain DDP" if plain is not None and plain != best else ""
    said = f"use {best.synchronisation}: a step takes {units.show_time(best.measured_s)}{gain}"
    worst = max(abs(row.gap) for row in found.steps)
    steps = f"median steps within {worst:.0%}"
    if (account := found.account) is not None:
        steps += f", the one shown within {abs(account.before.step_s / account.after.step_s - 1):.0%}"
    return f"{said}; {right} over {len(gaps)} collectives, {steps}" if right else f"{said}; {steps}"


def explain(found: Rehearsal, row: OperationRow | StepRow) -> str:
    """Return the largest gap and the likeliest reason for it."""
    name = row.synchronisation if isinstance(row, StepRow) else f"{row.algorithm} {units.show_size(row.size_bytes)}"
    spread = row.high_s / row.low_s - 1
    if spread > abs(row.gap):
        why = f"its own repetitions differ by {spread:.0%}, so most of it is noise of this machine"
    elif isinstance(row, StepRow) and row.synchronisation == "ddp":
        why = "the backend cuts its ring into segments of its own, which the model does not follow"
    elif isinstance(row, StepRow):
        share = found.num_ranks * found.work.total_s / found.machine.num_cores / row.measured_s
        cores = f"{found.machine.num_cores:.0f} shared cores"
        why = f"work takes {share:.0%} of the step on {cores}, and who gets them when is a guess"
    elif row.measured_s < 0.05:
        why = "at a few tens of milliseconds the scheduler decides, not the wire"
    elif row.gap > 0:
        why = "bytes overlapped that the model puts one after the other"
    else:
        why = "something beside the wire was waited for"
    return f"largest gap: {name}, {row.gap:+.1%}: {why}"


def _operation(row: OperationRow) -> str:
    mark = "  fitted" if row.calibrated_on else "" if row.scored else "  short: not scored"
    return (
        f"{row.algorithm:<20}{units.show_size(row.size_bytes):>10}{units.show_time(row.predicted_s):>12}"
        f"{units.show_time(row.measured_s):>12}{row.gap:>+8.1%}   {row.high_s / row.low_s - 1:.0%}{mark}"
    )


def _step(row: StepRow) -> str:
    return (
        f"{row.synchronisation:<24}{units.show_time(row.predicted_s):>12}{units.show_time(row.measured_s):>12}"
        f"{row.gap:>+8.1%}   {units.show_size(row.wire_bytes):>10}{row.loss:>8.3f}"
    )


def script_lines(found: ScriptRehearsal) -> Iterator[str]:
    """Yield the two steps, where they differ, and what was known before the run."""
    time = units.show_time
    low, high = found.interval_s
    yield (
        f"predicted {time(found.predicted_s)} a step ({time(low)} to {time(high)}), measured {time(found.measured_s)} "
        f"({time(found.low_s)} to {time(found.high_s)} in {found.steps} steps): {found.gap:+.1%}"
    )
    yield ""
    threads = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
    yield (
        f"{found.script} on {found.cluster}: {found.ranks} ranks of {threads} on {found.hosts} hosts and {found.cores} "
        f"cores, rates scaled by {found.rates_scaled_by:g}; on a core of its own a rank computes for "
        f"{time(found.alone_s)} in a step"
    )
    yield ""
    traced = f"one step as it was traced, which took {time(found.account.after.step_s)}"
    yield f"where the time goes: as predicted, and in {traced}"
    yield from cause_lines(found.account, "predicted", "traced")
    if found.collectives:
        yield ""
        yield f"{'collective':<20}{'calls':>8}{'predicted':>12}{'calls':>8}{'traced':>12}"
    for row in found.collectives:
        yield (
            f"{row.operation:<20}{row.predicted_calls:>8g}{time(row.predicted_s):>12}{row.calls:>8g}"
            f"{time(row.measured_s):>12}"
        )
    if found.notes:
        yield ""
    yield from (f"note: {note}" for note in found.notes)


def text(answer: RehearsalAnswer | ScriptRehearsalAnswer, width: int) -> Iterable[str]:
    """Return predicted beside measured."""
    return (
        script_lines(answer.found) if isinstance(answer, ScriptRehearsalAnswer) else rehearsal_lines(answer.rehearsal)
    )
