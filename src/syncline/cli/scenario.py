"""`syncline scenario`: several jobs on one cluster, with tenants, failures, stragglers and other traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, examples
from syncline.cli.packet_options import (
    Asked,
    BackgroundOption,
    BufferOption,
    EcnOption,
    LossOption,
    MtuOption,
    PayloadOption,
    PfcOption,
    RecoveryOption,
)

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.fabric import Fabric
    from syncline.sim.play import Report
    from syncline.sim.scenario import Scenario

app = typer.Typer(
    help="Play several jobs on one cluster: tenants with guarantees, failures, stragglers, other traffic.",
    epilog=examples(
        "syncline scenario shared.yaml --cluster h100-64-rail",
        "syncline scenario shared.yaml --trace shared.json --json",
        "syncline scenario shared.yaml --level packet --transport dctcp --loss 0.0001 --background 0.2:storage",
    ),
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The scenario (docs/guides/scenario.md has the keys).")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster, if the file names none.")
]
Level = Annotated[str, typer.Option(help="flow (links shared fairly) or packet (every packet).")]
Transport = Annotated[str | None, typer.Option(help="Packet level: dcqcn (default), dctcp, ndp, roce ...")]
Routing = Annotated[
    str | None, typer.Option(help="Packet level: ecmp, flowlet, adaptive, spray ... (default: the file's).")
]
Seed = Annotated[int | None, typer.Option(help="Packet level: seed of hashes, marks and losses (default: the file's).")]
Trace = Annotated[Path | None, typer.Option(help="Write the timeline (.json for Perfetto, .parquet).")]


# A group reads no options after its arguments unless told so.
@app.callback(invoke_without_command=True, context_settings={"allow_interspersed_args": True})
def scenario(
    file: File,
    cluster: Cluster = None,
    level: Level = "flow",
    transport: Transport = None,
    routing: Routing = None,
    seed: Seed = None,
    loss: LossOption = None,
    buffer: BufferOption = None,
    payload: PayloadOption = None,
    mtu: MtuOption = None,
    recovery: RecoveryOption = None,
    pfc: PfcOption = None,
    ecn: EcnOption = None,
    background: BackgroundOption = None,
    trace: Trace = None,
    json: JsonOption = False,
) -> None:
    """Play a scenario and say what each job lost against having the cluster to itself."""
    from syncline.cli import scenario_packet
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.files import check_writable
    from syncline.sim.scenario import load_scenario
    from syncline.workload.described import blamed_on

    if trace is not None:
        check_writable(trace)
    asked = Asked(loss, buffer, payload, mtu, recovery, pfc, ecn, background)
    if level not in ("flow", "packet"):
        raise UsageError(f'a scenario cannot be played at level "{level}".', hint="One of: flow, packet.")
    described = load_scenario(file)
    named = cluster or described.cluster
    if named is None:
        raise UsageError(f"{file} names no cluster.", hint="Add `cluster: FILE|PRESET` to it, or give --cluster.")
    beside = file.parent / named
    fabric = load(beside if cluster is None and beside.is_file() else named)
    if level == "packet":
        with blamed_on(file):
            answer = scenario_packet.played(described, fabric, asked, (transport, routing, seed), trace)
        emit(answer, json, lambda console: scenario_packet.show(console, answer))
        return
    asked.refuse(level)
    for name, value in (("transport", transport), ("routing", routing), ("seed", seed)):
        if value is not None:
            raise UsageError(f"--{name} is of the packet level.", hint=f"Write network: {{{name}: ...}} in {file}.")
    with blamed_on(file):
        answer = _played(described, fabric, trace)
    emit(answer, json, lambda console: _show(console, answer))


def _played(described: Scenario, fabric: Fabric, trace: Path | None) -> dict[str, Any]:
    from syncline.sim.chronicle import timeline
    from syncline.sim.play import play
    from syncline.timeline import save

    report = play(described, fabric, record=trace is not None)
    payload = _payload(described.name, fabric.name, report)
    if trace:
        save(timeline(report.outcome), trace)
        payload["trace"] = str(trace)
    return payload


def _payload(name: str, cluster: str, report: Report) -> dict[str, Any]:
    from syncline.sim.flow import IGNORES

    return {
        "scenario": name,
        "cluster": cluster,
        "makespan_s": report.outcome.makespan_s,
        "jobs": [
            {
                "name": job.name,
                "tenant": job.tenant,
                "ranks": job.num_ranks,
                "start_s": job.start_s,
                "end_s": job.end_s,
                "took_s": job.took_s,
                "alone_s": job.alone_s,
                "slowdown": job.slowdown,
            }
            for job in report.jobs
        ],
        "busiest_links": [{"link": link, "mean_utilisation": use} for link, use in report.busiest],
        "level": "flow",
        "ignores": list(IGNORES),
    }


def _show(console: Console, payload: dict[str, Any]) -> None:
    from rich.table import Table

    from syncline import units

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
    if "trace" in payload:
        console.print(f"wrote {payload['trace']}")
