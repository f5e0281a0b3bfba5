"""Packet level of `syncline simulate`: collectives packet by packet beside the flow level, and traffic patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, progress
from syncline.cli.packet_options import (
    Asked,
    BackgroundOption,
    BufferOption,
    EcnOption,
    FailOption,
    LossOption,
    MtuOption,
    PayloadOption,
    PfcOption,
    RecoveryOption,
    RerouteOption,
)

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.sim.estimate import Estimate
    from syncline.sim.packet import Outcome, PacketNetwork, PacketOptions, Progress
    from syncline.sim.sweep import Contest


def packet_rows(
    contest: Contest, flows: list[Estimate], network: PacketNetwork, options: PacketOptions, asked: Asked
) -> tuple[list[dict[str, Any]], Outcome]:
    """Return one row a size: the flow level's winner packet by packet, with both times and why they differ."""
    from syncline.sim.estimate import bus_factor
    from syncline.sim.packet import Job
    from syncline.sim.packet.levels import difference
    from syncline.sim.packet.loaded import simulate_loaded

    changes, beside = asked.changes(network), asked.beside()
    rows = []
    for flow in flows:
        wired = contest.wired[flow.algorithm]
        with shown(f"{flow.algorithm}, {flow.size_bytes:,} B") as report:
            job = Job(wired.program, flow.size_bytes)
            outcome = simulate_loaded(network, [job], options, beside, flow.time_s, changes=changes, progress=report)
        found = difference(outcome, flow, wired) if outcome.done(0) and flow.time_s > 0 else None
        figures = outcome.to_json()
        time_s = outcome.job_end_s(0)
        algbw = flow.size_bytes / time_s if time_s > 0 else 0.0
        rows.append({
            "size_bytes": flow.size_bytes, "time_s": time_s, "algbw_Bps": algbw,
            "busbw_Bps": algbw * bus_factor(flow.kind, flow.num_ranks), "wire_Bps": None, "algorithm": flow.algorithm,
            "limiting_link": figures["busiest_link"], "utilisation": figures["busiest_utilisation"],
            "method": "packets", "exact": True, "flow_time_s": flow.time_s,
            "over_flow": time_s / flow.time_s if flow.time_s > 0 else None,
            "why": found.lines() if found else [f"packets: {outcome.state}"],
            "difference": found.to_json() if found else None, "packet": figures | by_load(outcome),
        })  # fmt: skip
    return rows, outcome


def traffic(
    context: typer.Context,
    cluster: Annotated[str, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster.")],
    size: Annotated[str, typer.Option(help="Bytes of each message.")] = "2MB",
    senders: Annotated[int, typer.Option(help="incast: how many send to one.")] = 16,
    transport: Annotated[str, typer.Option(help="A set of sim/packet/transports.yaml: dctcp, ndp ...")] = "dcqcn",
    routing: Annotated[str, typer.Option(help="ecmp, flowlet, adaptive, spray, first, valiant or ugal.")] = "ecmp",
    loss: LossOption = None,
    buffer: BufferOption = None,
    payload: PayloadOption = None,
    mtu: MtuOption = None,
    recovery: RecoveryOption = None,
    pfc: PfcOption = None,
    ecn: EcnOption = None,
    background: BackgroundOption = None,
    fail: FailOption = None,
    reroute: RerouteOption = None,
    level: Annotated[str, typer.Option(help="packet; a pattern without a program has no other.")] = "packet",
    seed: Annotated[int, typer.Option(help="Seed of hashes, marks, losses, background and the permutation.")] = 0,
    trace: Annotated[Path | None, typer.Option(help="Write the timeline (.json for Perfetto, .parquet).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page: queues, marks and rates over time.")] = None,
    json: JsonOption = False,
) -> None:
    """Simulate this pattern of messages between all NICs of a cluster, packet by packet."""
    from syncline import units
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.files import check_writable
    from syncline.sim.packet import all_to_all, incast, packet_network, permutation
    from syncline.sim.packet.loaded import least_s, simulate_loaded
    from syncline.timeline import save

    if level != "packet":
        raise UsageError(f"{context.info_name} is simulated at packet level only, not at level {level}.",
                         hint="Leave --level out, or simulate a collective (allreduce, alltoall ...).")  # fmt: skip
    for path in (trace, html):
        if path is not None:
            check_writable(path)
    fabric = load(cluster)
    network = packet_network(fabric)
    asked = Asked(loss, buffer, payload, mtu, recovery, pfc, ecn, background, fail, reroute)
    options = asked.options(network, transport, routing, seed)
    bytes_each = units.size(size)
    if bytes_each <= 0:
        raise UsageError(f"messages of {size} have no packets.", hint="Write --size 2MB.")
    pattern = str(context.info_name)
    if pattern == "incast":
        messages = incast(fabric, senders, bytes_each)
    elif pattern == "permutation":
        messages = permutation(fabric, bytes_each, seed=seed)
    else:
        messages = all_to_all(fabric, bytes_each)
    with shown(pattern) as report:
        outcome = simulate_loaded(
            network, [messages], options, asked.beside(), least_s(network, messages),
            changes=asked.changes(network), progress=report,
        )  # fmt: skip
    payload_json = {"cluster": fabric.name, "pattern": pattern, "messages": len(messages), "size_bytes": bytes_each,
                    "transport": options.transport, "routing": routing, "seed": seed,
                    "asked": asked.shown()} | outcome.to_json() | by_load(outcome)  # fmt: skip
    if trace:
        save(outcome.timeline(), trace)
        payload_json["trace"] = str(trace)
    if html:
        name = f"{senders}-to-1 incast" if pattern == "incast" else pattern
        write_page(html, f"{name} of {size} each on {fabric.name}", outcome)
        payload_json["html"] = str(html)
    emit(payload_json, json, lambda console: _show_traffic(console, payload_json, outcome))


def by_load(outcome: Outcome) -> dict[str, Any]:
    """Return the state, end and completion of what was asked for, and the background beside it, if any."""
    from syncline.sim.packet import Completion

    done = outcome.done(0)
    found: dict[str, Any] = {
        "state": "finished" if done else outcome.state, "time_s": outcome.job_end_s(0) if done else outcome.now_s,
        "completion": Completion.of(outcome.times_s(0)).to_json(), "tally": outcome.tally(0),
    }  # fmt: skip
    if len(outcome.jobs) > 1:
        found["background"] = Completion.of(outcome.times_s(1)).to_json() | outcome.tally(1)
    return found


def background_line(found: dict[str, Any]) -> str:
    """Return how the messages of the background fared, in words."""
    from syncline import units

    beside, time = found["background"], units.show_time
    if beside["count"] == 0:
        return "background: no message of it ended"
    return (
        f"background: {beside['count']:,} messages ended, mean {time(beside['mean_s'])}, p50 {time(beside['p50_s'])}, "
        f"p99 {time(beside['p99_s'])}; {beside['marks']:,} marks, {beside['lost']:,} packets lost"
    )


def against_flow(row: dict[str, Any]) -> list[str]:
    """Return the flow level's time for a row of `packet_rows`, and why packets take another."""
    from syncline import units

    head = f"{units.show_size(row['size_bytes'])}: flow level {units.show_time(row['flow_time_s'])}"
    if row["over_flow"] is None:  # one rank sends nothing
        return [head]
    return [f"{head}, packets x{row['over_flow']:.3f}", *row["why"]]


def write_page(path: Path, title: str, outcome: Outcome, against: Sequence[str] = ()) -> None:
    """Run the same again, which takes the same course, while watching the deepest queues, and write the page."""
    import numpy as np

    from syncline.files import write_text
    from syncline.report.packet_page import packet_page
    from syncline.sim.packet import Watching, simulate
    from syncline.sim.packet.run import mark_bytes

    network, options = outcome.network, outcome.options
    deepest = np.argsort(-outcome.ports["peak_bytes"], kind="stable")[:4]
    links = tuple(int(network.link[p]) for p in deepest if outcome.ports["peak_bytes"][p] > 0 and network.link[p] >= 0)
    flows = tuple(range(min(outcome.num_flows, 256)))
    watching = Watching(max(outcome.end_of_run_s / 400, 1e-9), links, flows)
    watched = simulate(
        network, list(outcome.jobs), options, changes=outcome.changes, watching=watching, until_s=outcome.end_of_run_s
    )
    marks = options.marks or options.sets[0].marks
    depths = None if marks is None else mark_bytes(marks, network.access_Bps, outcome.rtt_s)
    write_text(path, packet_page(title, watched, depths, against))


def _show_traffic(console: Console, payload: dict[str, Any], outcome: Outcome) -> None:
    from syncline import units
    from syncline.sim.packet.chronicle import queue_rows

    time, done, count = units.show_time, payload["completion"], payload["counters"]
    console.print(
        f"{payload['pattern']} on {payload['cluster']}: {payload['messages']:,} messages of "
        f"{units.show_size(payload['size_bytes'])} ({payload['transport']}, {payload['routing']})"
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
        console.print(f"  queue of {row['link']}: up to {units.show_size(row['peak_bytes'])}, {row['marks']:,} marks, "
                      f"paused {time(row['paused_s'])}")  # fmt: skip
    for name in payload["deadlock"]:
        console.print(f"  waits for the next: {name}")
    console.print(f"packet level; ignores {', '.join(payload['ignores'])}")
    for name in ("trace", "html"):
        if name in payload:
            console.print(f"wrote {payload[name]}")


@contextmanager
def shown(words: str) -> Iterator[Callable[[Progress], None]]:
    """Show how far a run is, and the time left, on stderr."""
    from syncline import units

    with progress() as bar:
        task = bar.add_task(words, total=1.0)

        def report(now: Progress) -> None:
            left = f", {units.show_time(now.left_s)} left" if 0 < now.share < 1 else ""
            bar.update(task, completed=now.share, description=f"{words}: {now.events:,} events{left}")

        yield report
