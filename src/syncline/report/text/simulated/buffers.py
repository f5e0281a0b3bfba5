"""The buffer that a job needs, as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from syncline.describe.units import show_time
from syncline.questions.simulated.buffers import BufferAnswer
from syncline.report.table import columns


def text(answer: BufferAnswer, width: int) -> Iterator[str | Table]:
    """Yield the smallest buffer, its marks and pauses, and the runs behind them."""
    kind = "pauses instead of dropping" if answer.lossless else "drops what does not fit"
    yield (
        f"{answer.job} on {answer.cluster} ({answer.transport}, {answer.routing}; {kind}): "
        f"{show_time(answer.ideal_s)} with ample buffers"
    )
    yield f"smallest buffer a switch for at most {answer.within:.0%} longer: {answer.buffer_bytes / 1e6:.3g} MB"
    if answer.lossless:
        yield (
            f"  of it headroom {answer.headroom_bytes / 1e6:.3g} MB; an ingress is paused from "
            f"{answer.pause_bytes / 1e3:,.0f} kB on while the switch is otherwise empty"
        )
        for row in answer.headroom:
            yield (
                f"  {row.ports:,} ports of {row.rate_Bps * 8e-9:g} Gb/s, {show_time(row.latency_s)} "
                f"away (up to {row.length_m:,.0f} m): {row.headroom_bytes / 1e3:,.1f} kB each, and "
                f"{row.response_bytes / 1e3:,.1f} kB more on a switch"
            )
        yield "  more on a switch: simulated ports heed a pause at once, real ones within IEEE 802.3's pause quanta"
    if answer.marks is not None:
        marks = answer.marks
        yield (
            f"lowest marks: from {show_time(marks.low_s)} to {show_time(marks.high_s)} "
            f"of link rate, probability {marks.probability:g}"
        )
    elif answer.mark_trials:
        yield "no marks that were tried keep the job within that"
    cells = [
        (f"{trial.buffer_bytes / 1e6:,.4g} MB", show_time(trial.mark_s) if trial.mark_s else "",
         show_time(trial.time_s), f"{trial.time_s / answer.ideal_s - 1:+.1%}", f"{trial.drops:,}",
         f"{trial.pauses:,}", f"{trial.peak_bytes / 1e3:,.0f} kB")
        for trial in (*answer.buffer_trials, *answer.mark_trials)
    ]  # fmt: skip
    heads = ("buffer", "marks from", "time", "over ideal", "drops", "pauses", "deepest queue")
    yield columns(cells, heads, right=range(len(heads)))
