"""A pattern of messages in words."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.describe import units
from syncline.questions.simulated.traffic import PatternTraffic
from syncline.report.text.simulated.packet import background_line


def text(answer: PatternTraffic, width: int) -> Iterator[str]:
    """Yield how messages of a pattern fared."""
    time, found = units.show_time, answer.figures
    done, count = found.load.completion, found.counters
    yield (
        f"{answer.pattern} on {answer.cluster}: {answer.messages:,} messages of {answer.size} "
        f"({answer.transport}, {answer.routing})"
    )
    times = (
        f"completion mean {time(done.mean_s)}, p50 {time(done.p50_s)}, p99 {time(done.p99_s)}, "
        f"p99.9 {time(done.p999_s)}"
    )
    arrived = "" if found.state == "finished" else f"{done.count:,} of {answer.messages:,} messages arrived"
    parts = filter(None, (arrived, times if done.count else ""))
    yield f"{found.state} after {time(found.time_s)}; {'; '.join(parts)}"
    yield (
        f"{count['data_packets']:,} packets, {count['resent_packets']:,} sent again; "
        f"{count['marks']:,} marks, {count['drops']:,} drops, {count['trims']:,} trims, "
        f"{count['pauses']:,} pauses, {count['timeouts']:,} timeouts"
    )
    if count["errors"] or count["dead"]:
        yield f"{count['errors']:,} packets destroyed on links, {count['dead']:,} lost in failed ones"
    if found.background is not None:
        yield background_line(found.background)
    for row in answer.queues:
        yield (
            f"  queue of {row.link}: up to {units.show_size(row.peak_bytes)}, {row.marks:,} marks, "
            f"paused {time(row.paused_s)}"
        )
    yield from (f"  waits for the next: {name}" for name in found.deadlock)
    if found.state == "livelock":
        yield "  nearly all that is sent is cut off and sent again: use a larger --payload or another --transport"
    yield f"packet level; ignores {', '.join(found.ignores)}"
