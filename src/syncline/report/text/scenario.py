"""Scenarios in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from syncline.describe import units

if TYPE_CHECKING:
    from rich.console import Console

COUNTS = ("marks", "drops", "lost", "resent", "pauses")


def show_scenario(console: Console, payload: Mapping[str, Any]) -> None:
    """Print what each job lost."""
    worst = max(payload["jobs"], key=lambda job: job["slowdown"])
    console.print(
        f"{payload['scenario']} on {payload['cluster']}: done after {units.show_time(payload['makespan_s'])}; "
        f"{worst['name']} loses most, {worst['slowdown']:.2f}x its time alone"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("job", "tenant", "ranks", "starts", "ends", "took", "alone", "slowdown"):
        table.add_column(heading, justify="left" if heading in ("job", "tenant") else "right")
    for job in payload["jobs"]:
        times = (units.show_time(job[key]) for key in ("start_s", "end_s", "took_s", "alone_s"))
        table.add_row(job["name"], job["tenant"] or "-", f"{job['ranks']:,}", *times, f"{job['slowdown']:.2f}x")
    console.print(table)
    console.print()
    for link in payload["busiest_links"][:3]:
        console.print(f"{link['mean_utilisation']:6.1%}  {link['link']}")
    console.print(f"flow level; ignores {', '.join(payload['ignores'])}")


def show_packet_scenario(console: Console, payload: Mapping[str, Any]) -> None:
    """Print what each job lost, packet by packet."""
    time = units.show_time
    worst = max(payload["jobs"], key=lambda job: job["slowdown"])
    console.print(
        f"{payload['scenario']} on {payload['cluster']} ({payload['transport']}, {payload['routing']}): done after "
        f"{time(payload['makespan_s'])}, at flow level {time(payload['flow_makespan_s'])}; {worst['name']} loses most, "
        f"{worst['slowdown']:.2f}x its time alone",
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("job", "class", "ends", "took", "flow level", "alone", "slowdown"):
        table.add_column(heading, justify="left" if heading == "job" else "right")
    for job in payload["jobs"]:
        times = (time(job[key]) for key in ("end_s", "took_s", "flow_s", "alone_s"))
        table.add_row(job["name"], str(job["class"]), *times, f"{job['slowdown']:.2f}x")
    console.print(table)
    console.print()
    table = Table(box=None, pad_edge=False)
    for heading in ("messages of", "ended", "p50", "p99", "p99.9", *COUNTS):
        table.add_column(heading, justify="left" if heading == "messages of" else "right")
    for row in [*payload["jobs"], *payload["others"]]:
        done = row["completion"]
        times = (time(done[key]) if done["count"] else "-" for key in ("p50_s", "p99_s", "p999_s"))
        table.add_row(row["name"], f"{done['count']:,}", *times, *(f"{row[name]:,}" for name in COUNTS))
    console.print(table)
    console.print()
    if len(payload["classes"]) > 1:
        for number, words in enumerate(payload["classes"]):
            console.print(f"class {number}: {words}")
    console.print(f"busiest link: {payload['busiest_link']}, sending {payload['busiest_utilisation']:.0%} of the time")
    console.print(f"packet level; ignores {', '.join(payload['ignores'])}")
