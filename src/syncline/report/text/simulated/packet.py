"""Lines that several answers about packets have."""

from __future__ import annotations

from syncline.describe import units
from syncline.questions.simulated.figures import LoadFigures
from syncline.questions.simulated.rows import CollectiveRow


def background_line(found: LoadFigures) -> str:
    """Return how the messages of the background fared, in words."""
    done, tally, time = found.completion, found.tally, units.show_time
    if done.count == 0:
        return "background: no message of it ended"
    return (
        f"background: {done.count:,} messages ended, mean {time(done.mean_s)}, p50 {time(done.p50_s)}, "
        f"p99 {time(done.p99_s)}; {tally['marks']:,} marks, {tally['lost']:,} packets lost"
    )


def against_flow(row: CollectiveRow) -> list[str]:
    """Return the flow level's time for a row of the packet level, and why packets take another."""
    head = f"{units.show_size(row.size_bytes)}: flow level {units.show_time(row.flow_time_s or 0.0)}"
    if row.over_flow is None:  # one rank sends nothing
        return [head]
    return [f"{head}, packets x{row.over_flow:.3f}", *row.why]
