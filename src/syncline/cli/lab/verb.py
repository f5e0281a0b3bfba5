"""`syncline lab`: rehearse a cluster on this machine, out of network namespaces and shaped links."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.lab.options import (
    ClusterArgument,
    HostsOption,
    KnobOption,
    LabOption,
    ScaleOption,
    drawn,
    read_faults,
    share_of_progress,
)
from syncline.cli.shell.derive import GroupedCommand, rare
from syncline.cli.shell.output import JsonOption, emit, err, examples, print_parts, progress
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    from syncline.lab import Lab, LabJob, Process, RunResult

app = typer.Typer(
    help="Run commands on an emulated copy of a cluster: namespaces, shaped links, real TCP, faults.",
    epilog=examples(
        "syncline lab show cluster.yaml",
        "syncline lab check cluster.yaml",
        "syncline lab run cluster.yaml -- python train.py",
        "syncline lab run cluster.yaml --fault 'host-01:eth0 down at 5s for 2s' --links -- python train.py",
        "syncline lab shell host-00",
    ),
)


@app.command(
    cls=GroupedCommand,
    epilog=examples(
        "syncline lab run cluster.yaml -- python train.py",
        "syncline lab run two-sites-wan --hosts 4 --ranks-per-host 1 -- python train.py",
        "syncline lab run cluster.yaml --fault 'leaf-00 <-> spine-01 rate 25% at 2s' --links -- python train.py",
        "syncline lab run cluster.yaml --record links.json -- python train.py",
    ),
)
def run(
    cluster: ClusterArgument,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What every rank runs; after --.")],
    scale: ScaleOption = None,
    hosts: HostsOption = None,
    ranks_per_host: Annotated[int | None, typer.Option(help="Ranks on each host. [as many as it has GPUs]")] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks in all, filling hosts in order. [all]")] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="A fault, timed from the start: 'host-01:eth0 down at 5s for 2s'.")
    ] = None,
    interface: Annotated[str, rare(help="The network interface that ranks use.")] = "eth0",
    rail_per_rank: Annotated[bool, rare(help="Local rank k uses eth(k) instead.")] = False,
    launcher: Annotated[
        list[str] | None,
        rare(help="Whose variables to set: torch, mpi, slurm. [all three]"),
    ] = None,
    set_: KnobOption = None,
    timeout: Annotated[str | None, typer.Option(help="End everything after this time: 10min.")] = None,
    links: Annotated[bool, typer.Option("--links", help="Show what each link carried.")] = False,
    record: Annotated[Path | None, typer.Option(help="Write the counters of all links as a timeline.")] = None,
    prefix: Annotated[bool, rare(help="Mark lines with rank and host.")] = True,
    pin: Annotated[bool, rare(help="Pin rank i to core i mod cores.")] = False,
    json: JsonOption = False,
) -> None:
    """Run a command once per rank on an emulated copy of a cluster.

    Ranks get the environment of torchrun, Open MPI and Slurm, and their output passes through. The first rank that
    fails ends the others and sets the exit status. The lab is removed at the end, whatever happens.
    """
    from syncline.describe import units
    from syncline.describe.files import check_writable
    from syncline.lab import Lab
    from syncline.lab.environment import LAUNCHERS
    from syncline.report.text.check.lab import headline, link_table
    from syncline.timeline import save

    if record is not None:
        check_writable(record)
    limit_s = units.time(timeout) if timeout is not None else None
    blueprint = drawn(cluster, scale, hosts, set_ or [])
    faults = read_faults(fault or [], blueprint)
    with Lab(blueprint) as lab:
        if not json:
            notes = [f"could not be set: {note}" for note in lab.notes]
            err().print("\n".join([*headline(blueprint), *notes]), soft_wrap=True)
        recording = lab.counters().start() if links or record is not None else None
        job = lab.start(
            command,
            ranks_per_host=ranks_per_host,
            num_ranks=ranks,
            interface=interface,
            rail_per_rank=rail_per_rank,
            launchers=launcher or LAUNCHERS,
            pin=pin,
            faults=faults,
            keep=json,
            on_line=None if json else _printer(prefix),
        )
        result = _wait(job, limit_s)
        counters = recording.stop() if recording is not None else None
        events = list(lab.events)
    if counters is not None and record is not None:
        save(counters.timeline(), record)
    payload = _run_payload(lab, result, events)
    if counters is not None:
        payload["links"] = _link_payload(counters)
    emit(payload, json, ())
    if not json:  # stdout is the ranks'
        carried = link_table(counters) if counters and len(counters.samples) else "no link carried anything"
        happened = (
            f"{event.at_s - job.started_s:8.3f} s  {event.what}: {event.text} {event.error}".rstrip()
            for event in events
        )
        print_parts(err(), [*([carried] if links else []), *happened])
    raise typer.Exit(result.exit_status)


@app.command(epilog=examples("syncline lab show cluster.yaml", "syncline lab show dgx-h100-superpod --hosts 4 --json"))
def show(
    cluster: ClusterArgument,
    scale: ScaleOption = None,
    hosts: HostsOption = None,
    set_: KnobOption = None,
    json: JsonOption = False,
) -> None:
    """Show what would be built: hosts, switches, addresses, rates, scale. Builds nothing."""
    from syncline.report.text.check.lab import cable_table, headline

    blueprint = drawn(cluster, scale, hosts, set_ or [])
    emit(blueprint.to_json(), json, [*headline(blueprint), "", cable_table(blueprint)])


@app.command(epilog=examples("syncline lab check cluster.yaml", "syncline lab check cluster.yaml --scale 1/10 --json"))
def check(
    cluster: ClusterArgument,
    scale: ScaleOption = None,
    hosts: HostsOption = None,
    set_: KnobOption = None,
    tolerance: Annotated[float, typer.Option(help="Largest gap that passes, as a share.", min=0.0)] = 0.05,
    seconds: Annotated[float, typer.Option(help="Time for each link.", min=0.05, max=60.0)] = 0.25,
    json: JsonOption = False,
) -> None:
    """Build the lab and measure every link.

    Exit status 1 if one is not as described.
    """
    from syncline.lab import Lab
    from syncline.lab.check import check as measure
    from syncline.report.text.check.lab import check_lines, check_table, headline

    blueprint = drawn(cluster, scale, hosts, set_ or [])
    with Lab(blueprint) as lab, progress() as bar:
        found = measure(
            lab, seconds=seconds, tolerance=tolerance, on_progress=share_of_progress(bar, "measuring links")
        )
    parts = [*headline(blueprint), "", check_table(found), "", *check_lines(found)]
    emit({"scale": blueprint.scale, **found.to_json()}, json, parts)
    raise typer.Exit(0 if found.ok else 1)


@app.command(epilog=examples("syncline lab paths cluster.yaml", "syncline lab paths cluster.yaml --json"))
def paths(
    cluster: ClusterArgument,
    hosts: HostsOption = None,
    set_: KnobOption = None,
    json: JsonOption = False,
) -> None:
    """Build the lab and ask the kernel which links flows take."""
    from syncline.lab import Lab
    from syncline.report.text.check.lab import path_table

    blueprint = drawn(cluster, None, hosts, set_ or [])
    with Lab(blueprint) as lab:
        table = lab.paths()
    rows = [{**row, "names": [blueprint.link_names[link] for link in row["links"]]} for row in table.to_json()]
    emit({"hash_seed": blueprint.profile.hash_seed, "paths": rows}, json, [path_table(rows)])


@app.command(
    epilog=examples("syncline lab shell host-00", "syncline lab shell host-00 -- ip route", "syncline lab list")
)
def shell(
    host: Annotated[str, typer.Argument(help="A host of a running lab.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Instead of a shell; after --.")
    ] = None,
    lab: LabOption = None,
    json: JsonOption = False,
) -> None:
    """Open a shell (or run a command) on a host of a running lab."""
    import os

    from syncline.errors import UsageError
    from syncline.lab.join import run_inside
    from syncline.lab.registry import find_lab

    if json and not command:
        raise UsageError("--json needs a command.", hint="Write: syncline lab shell HOST --json -- COMMAND.")
    with find_lab(lab) as visit:
        code, output = run_inside(visit, host, command or [os.environ.get("SHELL", "/bin/sh")], keep_output=json)
        name = visit.lab.name
    emit({"lab": name, "host": host, "exit_code": code, "stdout": output}, json, ())
    raise typer.Exit(code if code >= 0 else 128 - code)


@app.command(
    epilog=examples(
        "syncline lab fault 'host-01:eth0 down for 2s'",
        "syncline lab fault 'host-02 slow 50%' 'host-00 -> host-03 traffic 40%'",
        "syncline lab fault --mend 3",
    )
)
def fault(
    faults: Annotated[
        list[str] | None, typer.Argument(metavar="FAULT", help="TARGET KIND [VALUE] [at T] [for T].")
    ] = None,
    mend: Annotated[list[int] | None, typer.Option(help="End the fault of that number.")] = None,
    lab: LabOption = None,
    json: JsonOption = False,
) -> None:
    """Inject faults into a running lab, or list those in force.

    A fault begins now, or after `at`. Without a fault, the command lists those in force.

    Kinds: down, rate 25%, rate 100Mbps, loss 1%, traffic 40% (a -> b), killed, paused, slow 50%, mtu 1500. Targets:
    host-01, host-01:eth0, host-01/nic-0, leaf-00, leaf-00 <-> spine-01, or one direction with ->.
    """
    from syncline.lab.registry import find_lab
    from syncline.lab.trouble import trouble

    with find_lab(lab) as visit:
        blueprint, _ = visit.describe()
        ordered = read_faults(faults or [], blueprint)
        rows = []
        for each in ordered:
            answer, _ = visit.ask("fault", **trouble(blueprint, each).to_json())
            rows.append({"fault": answer["fault"], "text": each.text})
        for number in mend or []:
            visit.ask("mend", fault=number)
        _, state = visit.describe()
        name = visit.lab.name
    shown = rows or state["faults"]
    lines = [f"fault {row['fault']}: {row['text']}{'' if row.get('begun', True) else ' (to come)'}" for row in shown]
    emit({"lab": name, "ordered": rows, "faults": state["faults"]}, json, lines or ["no faults"])


@app.command("list", epilog=examples("syncline lab list", "syncline lab list --json"))
def list_(json: JsonOption = False) -> None:
    """List the labs of this user that are running."""
    from syncline.errors import LabError
    from syncline.lab.registry import Visit, running_labs

    rows: list[dict[str, Any]] = []
    for lab in running_labs():
        try:
            with Visit(lab) as visit:
                blueprint, state = visit.describe()
        except LabError:
            continue  # it has ended meanwhile, or is still being built
        rows.append(
            {
                "name": lab.name,
                "maker_pid": lab.maker_pid,
                "cluster": blueprint.name,
                "hosts": [blueprint.boxes[host].name for host in blueprint.hosts],
                "scale": blueprint.scale,
                "processes": state["processes"],
                "faults": state["faults"],
            }
        )
    lines = [
        f"{row['name']}: {row['cluster']}, {len(row['hosts'])} hosts ({row['hosts'][0]} ...), {len(row['processes'])} "
        f"processes, {len(row['faults'])} faults; made by process {row['maker_pid']}"
        for row in rows
    ]
    emit({"labs": rows}, json, lines or ["no lab is running"])


def _printer(prefix: bool) -> Any:
    def show_line(process: Process, stream: str, line: str) -> None:
        mark = f"[{process.label}] " if prefix else ""
        print(f"{mark}{line}", file=sys.stdout if stream == "stdout" else sys.stderr, flush=True)

    return show_line


def _wait(job: LabJob, limit_s: float | None) -> RunResult:
    from syncline.errors import LabError

    try:
        return job.wait(limit_s)
    except KeyboardInterrupt:
        job.end()
        raise
    except TimeoutError as error:
        raise LabError(f"{error}; they were ended.", hint="Give more time: --timeout.") from None


def _run_payload(lab: Lab, result: RunResult, events: list[Any]) -> JsonObject:
    return {
        "cluster": lab.blueprint.name,
        "scale": lab.blueprint.scale,
        "exit_code": result.exit_code,
        "elapsed_s": result.elapsed_s,
        "ranks": [
            {"rank": r.rank, "host": r.host, "exit_code": r.exit_code, "stdout": r.stdout, "stderr": r.stderr}
            for r in result.ranks
        ],
        "events": [{"text": e.text, "what": e.what, "at_s": e.at_s, "error": e.error} for e in events],
    }


def _link_payload(counters: Any) -> list[JsonObject]:
    use = counters.timeline().link_use(0.005)
    drops = counters.drops()
    links = counters.timeline().links
    return [
        {
            "link": name,
            "rate_Bps": links.capacity_Bps[i],
            "size_bytes": use.size_bytes[i],
            "mean_utilisation": use.mean_utilisation[i],
            "peak_utilisation_5ms": use.peak_utilisation[i],
            "drops": drops.get(name, 0),
        }
        for i, name in enumerate(links.names)
    ]
