"""Time slots beside best effort, as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from syncline.describe.units import show_time
from syncline.questions.simulated.slots import SlotAnswer
from syncline.report.table import columns


def text(answer: SlotAnswer, width: int) -> Iterator[str | Table]:
    """Yield a job in time slots beside best effort."""
    best = answer.best_effort
    yield (
        f"{answer.job} on {answer.cluster}: {answer.num_messages:,} messages in time slots, clocks within "
        f"{show_time(answer.clock_error_s)}, so a guard of {show_time(answer.guard_s)} between two"
    )
    yield (
        f"planned end {show_time(answer.planned_s)}; {show_time(answer.bare_s)} without guards, of which "
        f"{(answer.guards - 1) / 2:,.0f} follow each other on the way to the end"
    )
    if answer.break_even_s > 0:
        yield f"as fast as best effort with clocks within {show_time(answer.break_even_s)}"
    else:
        yield "never as fast as best effort, with clocks however good"
    rows = [(answer.transport, best), *(("slots", row) for row in answer.scheduled)]
    cells = [
        (name, show_time(row.real_error_s) if row is not best else "", show_time(row.time_s),
         f"{row.time_s / best.time_s - 1:+.1%}" if row is not best else "",
         f"{row.deepest_queue_bytes / 1e3:,.1f} kB", show_time(row.p99_s),
         f"{row.late:,}" if row is not best else "", f"{row.pauses:,}")
        for name, row in rows
    ]  # fmt: skip
    heads = ("", "clocks off", "time", "change", "deepest queue", "p99", "late", "pauses")
    yield columns(cells, heads, right=range(1, len(heads)))
    yield "p99: of messages; late: messages whose data had not arrived when their slot came"
