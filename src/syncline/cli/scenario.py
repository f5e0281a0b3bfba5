"""`syncline scenario`: several jobs on one cluster, with tenants, failures, stragglers and other traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.sim.play import Report

app = typer.Typer(
    help="Play several jobs on one cluster: tenants with guarantees, failures, stragglers, other traffic.",
    epilog=examples(
        "syncline scenario shared.yaml --cluster h100-64-rail",
        "syncline scenario shared.yaml --trace shared.json --json",
    ),
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The scenario (docs/guides/scenario.md has the keys).")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster, if the file names none.")
]
Trace = Annotated[Path | None, typer.Option(help="Write the timeline (.json for Perfetto, .parquet).")]


# A group reads no options after its arguments unless told so.
@app.callback(invoke_without_command=True, context_settings={"allow_interspersed_args": True})
def scenario(file: File, cluster: Cluster = None, trace: Trace = None, json: JsonOption = False) -> None:
    """Play a scenario and say what each job lost against having the cluster to itself."""
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.sim.chronicle import timeline
    from syncline.sim.play import play
    from syncline.sim.scenario import load_scenario
    from syncline.timeline import save

    described = load_scenario(file)
    named = cluster or described.cluster
    if named is None:
        raise UsageError(f"{file} names no cluster.", hint="Add `cluster: FILE|PRESET` to it, or give --cluster.")
    beside = file.parent / named
    fabric = load(beside if cluster is None and beside.is_file() else named)
    report = play(described, fabric, record=trace is not None)
    payload = _payload(described.name, fabric.name, report)
    if trace:
        save(timeline(report.outcome), trace)
        payload["trace"] = str(trace)
    emit(payload, json, lambda console: _show(console, payload))


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
