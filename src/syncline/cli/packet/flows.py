"""`syncline simulate flows`: traffic from a file, or drawn by distribution and load; a row a flow out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.packet.options import (
    BufferOption,
    EcnOption,
    FailOption,
    LossOption,
    MtuOption,
    PacketTransport,
    PayloadOption,
    PfcOption,
    RecoveryOption,
    RerouteOption,
)
from syncline.cli.shell.output import JsonOption, emit
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from syncline.fabric import Fabric
    from syncline.questions.simulated.packets import PacketQuestion
    from syncline.sim.packet import Outcome, PacketNetwork, PacketOptions, Traffic
    from syncline.sim.packet.flow_table import FlowTable


def flows(
    cluster: Annotated[str, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="CSV, htsim's .cm, or flow.txt of HPCC and SimAI.")
    ] = None,
    load: Annotated[float | None, typer.Option(help="Instead of a file: the share of access links to fill.")] = None,
    sizes: Annotated[str, typer.Option(help="With --load: websearch, hadoop, storage or collectives.")] = "websearch",
    duration: Annotated[str, typer.Option(help="With --load: for how long flows start.")] = "1ms",
    connections: Annotated[str, typer.Option(help="own (one a flow) or shared (one a pair of hosts).")] = "own",
    transport: PacketTransport = "dcqcn",
    against: Annotated[str | None, typer.Option(help="Run the same under this transport, side by side.")] = None,
    law: Annotated[Path | None, typer.Option(help="Your own congestion control: a .cpp or .py file.")] = None,
    routing: Annotated[str, typer.Option(help="auto (as the cluster file has it), ecmp, adaptive, spray ...")] = "auto",
    loss: LossOption = None,
    buffer: BufferOption = None,
    payload: PayloadOption = None,
    mtu: MtuOption = None,
    recovery: RecoveryOption = None,
    pfc: PfcOption = None,
    ecn: EcnOption = None,
    fail: FailOption = None,
    reroute: RerouteOption = None,
    seed: Annotated[int, typer.Option(help="Seed of hashes, marks, losses and drawn flows.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write a row a flow (.csv or .parquet).")] = None,
    pcap: Annotated[
        list[str] | None,
        typer.Option(metavar="A->B=FILE", help="What a link sends, for Wireshark: leaf-00->host-01/nic-0=a.pcap."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page: queues, marks and rates over time.")] = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Simulate flows from a file, or drawn by size distribution and load, packet by packet."""
    import numpy as np

    from syncline.describe.files import check_writable, write_text
    from syncline.errors import UsageError
    from syncline.fabric import load as load_fabric
    from syncline.questions.simulated.packets import PacketQuestion
    from syncline.sim.packet import packet_network, transport_set
    from syncline.sim.packet.options import with_classes

    for path in (out, html):
        if path is not None:
            check_writable(path)
    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise UsageError(f'--out "{out}" is neither .csv nor .parquet.')
    fabric = load_fabric(cluster)
    network = packet_network(fabric)
    traffic = _traffic(fabric, file, load, sizes, duration, connections, seed)
    asked = PacketQuestion(loss, buffer, payload, mtu, recovery, pfc, ecn, None, fail, reroute)
    captures = [_capture(fabric, text) for text in pcap or ()]
    rows: list[JsonObject] = []
    runs: list[tuple[Outcome, FlowTable]] = []
    for name in (transport, against):
        if name is None:
            continue
        transport_set(name)
        options = with_classes(asked.options(network, name, routing, seed), int(np.max(traffic.traffic_class)))
        shown_name = name
        if law is not None and name == transport:
            options, shown_name = _with_law(options, law)
        links = tuple(link for link, _ in captures) if name == transport else ()
        outcome, table = _run(network, traffic, options, asked, links, shown_name)
        runs.append((outcome, table))
        rows.append(_row(shown_name, outcome, table))
    found: JsonObject = {
        "cluster": fabric.name, "flows": len(traffic), "from": str(file) if file else f"{sizes} at load {load}",
        "bytes": int(traffic.size_bytes.sum()), "connections": connections, "routing": options.routing, "seed": seed,
        "asked": asked.shown(), "runs": rows,
    }  # fmt: skip
    if out is not None:
        runs[0][1].write(out)
        found["out"] = str(out)
    if captures:
        from syncline.sim.packet.pcap import write_pcap

        found["pcap"] = {str(path): write_pcap(path, runs[0][0], link) for link, path in captures}
    if html is not None:
        from syncline.report.page.packet import watched_page, watched_pair

        title, tables = f"{len(traffic):,} flows on {fabric.name}", [table for _, table in runs]
        pair = [(str(row["transport"]), outcome) for row, (outcome, _) in zip(rows, runs, strict=True)]
        page = watched_pair(title, pair, tables) if against else watched_page(title, runs[0][0], flows=tables)
        write_text(html, page)
        found["html"] = str(html)
    emit(found, json, lambda console: _show(console, found))


def _traffic(
    fabric: Fabric, file: Path | None, load: float | None, sizes: str, duration: str, connections: str, seed: int
) -> Traffic:
    from dataclasses import replace

    from syncline.describe import units
    from syncline.errors import UsageError
    from syncline.sim.packet.flow_file import read_flows
    from syncline.sim.packet.traffic import SIZES, background

    if connections not in ("own", "shared"):
        raise UsageError(f'--connections is "{connections}".', hint="One of: own, shared.")
    if (file is None) == (load is None):
        raise UsageError("flows come from a file or from --load, one of the two.", hint="flows FILE, or --load 0.3.")
    if file is not None:
        return read_flows(file, fabric, connections=connections)  # type: ignore[arg-type]
    if sizes not in SIZES:
        raise UsageError(f'no distribution of sizes is called "{sizes}".', hint=f"One of: {', '.join(SIZES)}.")
    assert load is not None
    found = background(fabric, load, units.time(duration), sizes=SIZES[sizes], seed=seed)
    if len(found) == 0:
        raise UsageError(f"no flow starts within {duration} at load {load}.", hint="Give a longer --duration.")
    return replace(found, connections=connections)  # type: ignore[arg-type]


def _with_law(options: PacketOptions, path: Path) -> tuple[PacketOptions, str]:
    from syncline.sim.packet.law import load_law
    from syncline.sim.packet.options import with_law

    law = load_law(path)
    return with_law(options, law), f"{law.name} ({law.language}) on {options.transport}"


def _capture(fabric: Fabric, text: str) -> tuple[int, Path]:
    """Read "leaf-00->host-01/nic-0=a.pcap" as a link, in that direction, and a file."""
    from syncline.describe.files import check_writable
    from syncline.errors import UsageError

    place, equals, path = text.rpartition("=")
    source, arrow, target = (part.strip() for part in place.partition("->"))
    links, name = fabric.links, fabric.device_name
    if not equals or not arrow:
        raise UsageError(f'--pcap "{text}" names no link and file.', hint="Write leaf-00->host-01/nic-0=a.pcap.")
    for link in range(len(links)):
        if name(int(links.src[link])) == source and name(int(links.dst[link])) == target:
            check_writable(Path(path))
            return link, Path(path)
    raise UsageError(f"there is no link from {source} to {target}.", hint="`syncline fabric links CLUSTER` lists them.")


def _run(
    network: PacketNetwork,
    traffic: Traffic,
    options: PacketOptions,
    asked: PacketQuestion,
    capture: tuple[int, ...],
    name: str,
) -> tuple[Outcome, FlowTable]:
    from syncline.cli.packet.simulate import shown
    from syncline.sim.packet import Watching, simulate
    from syncline.sim.packet.flow_table import flow_table

    watching = Watching(1.0, capture=capture) if capture else None
    with shown(f"{len(traffic):,} flows, {name}") as report:
        outcome = simulate(
            network, [traffic], options, changes=asked.changes(network), watching=watching, progress=report
        )
    return outcome, flow_table(outcome)


def _row(name: str, outcome: Outcome, table: FlowTable) -> JsonObject:
    figures = outcome.to_json()
    times, share = table.cdf(100)
    return {
        "transport": name, "state": outcome.state, "time_s": outcome.end_of_run_s, "missing": table.num_missing,
        "inside_hosts": table.num_inside,
        "completion": figures["completion"], "slowdown": [row.to_json() for row in table.by_size()],
        "cdf": {"time_s": times.tolist(), "share": share.tolist()} if len(table) else None,
        "resent_packets": int(table.resent_packets.sum()), "counters": figures["counters"],
        "peak_queue_bytes": figures["peak_queue_bytes"], "ignores": figures["ignores"],
    }  # fmt: skip


def _show(console: Console, found: Mapping[str, Any]) -> None:
    from rich.table import Table

    from syncline.describe import units

    console.print(
        f"{found['flows']:,} flows ({found['from']}), {found['bytes'] / 1e6:,.1f} MB, on {found['cluster']}; "
        f"one connection a {'flow' if found['connections'] == 'own' else 'pair of hosts'}", soft_wrap=True,
    )  # fmt: skip
    for row in found["runs"]:
        done = row["completion"]
        console.print(
            f"{row['transport']}: {row['state']} after {units.show_time(row['time_s'])}; mean "
            f"{units.show_time(done['mean_s'])}, p99 {units.show_time(done['p99_s'])}; "
            f"{row['counters']['drops']:,} drops, {row['resent_packets']:,} packets sent again, "
            f"{row['counters']['pauses']:,} pauses", soft_wrap=True,
        )  # fmt: skip
        if row["missing"]:
            console.print(f"  {row['missing']:,} flows have not arrived")
        if row["inside_hosts"]:
            console.print(
                f"  flows inside a host, which never meet the network: {row['inside_hosts']:,}",
                soft_wrap=True,
            )
        table = Table("size", "flows", "slowdown mean", "p50", "p95", "p99", "p99.9")
        for part in row["slowdown"]:
            last = part is row["slowdown"][-1]
            upto = "all" if last else f"up to {_decimal(part['upto_bytes'])}" if part["upto_bytes"] else "larger"
            figures = (f"{part[key]:.2f}" for key in ("mean", "p50", "p95", "p99", "p999"))
            table.add_row(upto, f"{part['count']:,}", *figures)
        console.print(table)
    ignores = ", ".join(found["runs"][0]["ignores"])
    console.print(f"slowdown: time over the same flow's alone on its path. Ignores {ignores}", soft_wrap=True)
    for path in [found.get("out"), found.get("html"), *found.get("pcap", {})]:
        if path:
            console.print(f"wrote {path}", soft_wrap=True)


def _decimal(size: float) -> str:
    for step, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= step:
            return f"{size / step:g} {unit}"
    return f"{size:g} B"
