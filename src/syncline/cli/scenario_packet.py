"""`syncline scenario --level packet`: the jobs of a scenario packet by packet, beside the flow level's time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.cli.packet_options import Asked
from syncline.cli.simulate_packet import shown

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.fabric import Fabric
    from syncline.sim.packet import PacketNetwork, PacketOptions
    from syncline.sim.packet.play import PacketReport
    from syncline.sim.scenario import Scenario

COUNTS = ("marks", "drops", "lost", "resent", "pauses")


def played(
    described: Scenario,
    fabric: Fabric,
    asked: Asked,
    how: tuple[str | None, str | None, int | None],
    trace: Path | None,
) -> dict[str, Any]:
    """Play a scenario packet by packet and return the answer; `how` are transport, routing and seed, where given."""
    from syncline.sim.packet import packet_network
    from syncline.sim.packet.play import play_packets
    from syncline.timeline import save

    network = packet_network(fabric)
    options = _options(described, network, asked, how)
    with shown(described.name) as report:
        found = play_packets(described, network, options, beside=asked.beside(), progress=report)
    payload = _payload(described.name, found) | {"asked": asked.shown()}
    if trace:
        save(found.outcome.timeline(), trace)
        payload["trace"] = str(trace)
    return payload


def _options(
    described: Scenario, network: PacketNetwork, asked: Asked, how: tuple[str | None, str | None, int | None]
) -> PacketOptions:
    from syncline.errors import UsageError

    transport, routing, seed = how
    own = described.network
    if transport is None and own.transport != "rdma":
        raise UsageError(f'"{own.transport}" is a transport of the flow level.', hint="Add --transport dctcp, srd ...")
    if routing is None and own.routing == "static":
        raise UsageError('routing "static" is of the flow level.', hint="Add --routing ecmp, first ...")
    return asked.options(
        network, transport or own.transport, routing or own.routing, own.seed if seed is None else seed,
        cross_rail=own.cross_rail,
    )  # fmt: skip


def _payload(name: str, report: PacketReport) -> dict[str, Any]:
    outcome, options = report.outcome, report.outcome.options
    figures = outcome.to_json()
    return {
        "scenario": name, "cluster": outcome.network.fabric.name, "level": "packet",
        "transport": options.transport, "routing": options.routing, "seed": options.seed,
        "makespan_s": report.makespan_s, "flow_makespan_s": report.flow.outcome.makespan_s,
        "classes": list(report.classes),
        "jobs": [
            {
                "name": job.name, "tenant": job.tenant, "ranks": job.num_ranks, "class": job.traffic_class,
                "start_s": job.start_s, "end_s": job.end_s, "took_s": job.took_s, "alone_s": job.alone_s,
                "slowdown": job.slowdown, "flow_s": job.flow_s, "completion": job.completion.to_json(),
            } | dict(job.tally)
            for job in report.jobs
        ],
        "others": [
            {"name": other.name, "completion": other.completion.to_json()} | dict(other.tally)
            for other in report.others
        ],
        "counters": figures["counters"], "busiest_link": figures["busiest_link"],
        "busiest_utilisation": figures["busiest_utilisation"], "peak_queue_bytes": figures["peak_queue_bytes"],
        "ignores": figures["ignores"],
    }  # fmt: skip


def show(console: Console, payload: dict[str, Any]) -> None:
    """Print the answer for people."""
    from rich.table import Table

    from syncline import units

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
    if "trace" in payload:
        console.print(f"wrote {payload['trace']}")
