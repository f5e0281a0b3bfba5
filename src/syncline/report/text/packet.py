"""Packet runs in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncline.describe import units

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.sim.packet import Outcome


def background_line(found: Mapping[str, Any]) -> str:
    """Return how the messages of the background fared, in words."""
    beside, time = found["background"], units.show_time
    if beside["count"] == 0:
        return "background: no message of it ended"
    return (
        f"background: {beside['count']:,} messages ended, mean {time(beside['mean_s'])}, p50 {time(beside['p50_s'])}, "
        f"p99 {time(beside['p99_s'])}; {beside['marks']:,} marks, {beside['lost']:,} packets lost"
    )


def against_flow(row: Mapping[str, Any]) -> list[str]:
    """Return the flow level's time for a row of `packet_rows`, and why packets take another."""
    head = f"{units.show_size(row['size_bytes'])}: flow level {units.show_time(row['flow_time_s'])}"
    if row["over_flow"] is None:  # one rank sends nothing
        return [head]
    return [f"{head}, packets x{row['over_flow']:.3f}", *row["why"]]


def show_traffic(console: Console, payload: Mapping[str, Any], outcome: Outcome) -> None:
    """Print how messages of a pattern fared."""
    from syncline.sim.packet.chronicle import queue_rows

    time, done, count = units.show_time, payload["completion"], payload["counters"]
    console.print(
        f"{payload['pattern']} on {payload['cluster']}: {payload['messages']:,} messages of "
        f"{payload['size']} ({payload['transport']}, {payload['routing']})"
    )
    times = (f"completion mean {time(done['mean_s'])}, p50 {time(done['p50_s'])}, p99 {time(done['p99_s'])}, "
             f"p99.9 {time(done['p999_s'])}")  # fmt: skip
    arrived = "" if payload["state"] == "finished" else f"{done['count']:,} of {payload['messages']:,} messages arrived"
    console.print(f"{payload['state']} after {time(payload['time_s'])}; "
                  + "; ".join(part for part in (arrived, times if done["count"] else "") if part))  # fmt: skip
    console.print(f"{count['data_packets']:,} packets, {count['resent_packets']:,} sent again; "
                  f"{count['marks']:,} marks, {count['drops']:,} drops, {count['trims']:,} trims, "
                  f"{count['pauses']:,} pauses, "
                  f"{count['timeouts']:,} timeouts")  # fmt: skip
    if count["errors"] or count["dead"]:
        console.print(f"{count['errors']:,} packets destroyed on links, {count['dead']:,} lost in failed ones")
    if "background" in payload:
        console.print(background_line(payload))
    for row in queue_rows(outcome, 3):
        console.print(f"  queue of {row.link}: up to {units.show_size(row.peak_bytes)}, {row.marks:,} marks, "
                      f"paused {time(row.paused_s)}")  # fmt: skip
    for name in payload["deadlock"]:
        console.print(f"  waits for the next: {name}")
    console.print(f"packet level; ignores {', '.join(payload['ignores'])}")
