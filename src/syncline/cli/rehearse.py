"""`syncline rehearse`: predict, run and compare on an emulated copy of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, err, examples, tell
from syncline.describe.guide import cite

app = typer.Typer()
EPILOG = examples(
    "syncline rehearse cluster.yaml",
    "syncline rehearse cluster.yaml job.yaml --scale 0.1 --html rehearsal.html",
    "syncline rehearse cluster.yaml --loopback",
)

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset.")]
JobFile = Annotated[
    Path | None,
    typer.Argument(metavar="JOB", help=f"What to rehearse ({cite('rehearse')}); default: a little of all."),
]
Scale = Annotated[float | None, typer.Option(help="Factor on all rates (default: what this machine can).")]
Hosts = Annotated[int | None, typer.Option(help="Only this many hosts of the cluster.")]
Html = Annotated[Path | None, typer.Option(help="Write the report: timelines, links and the loss.")]
Loopback = Annotated[
    bool,
    typer.Option(
        "--loopback",
        help="Without a lab: over loopback, at rates that the runtime itself holds. Chosen where no lab can be made.",
    ),
]


@app.command(epilog=EPILOG)
def rehearse(
    cluster: Cluster,
    job: JobFile = None,
    scale: Scale = None,
    hosts: Hosts = None,
    html: Html = None,
    loopback: Loopback = False,
    json: JsonOption = False,
) -> None:
    """Calibrate, predict, run, compare; recommend a way to synchronise and train with it."""
    from syncline.describe.files import check_writable
    from syncline.questions.rehearse import rehearse as ask

    if html is not None:
        check_writable(html)
    answer = ask(cluster, job, scale=scale, hosts=hosts, loopback=loopback, tell=_tell, warn=_warn)
    if html is not None:
        answer.page(html)
    tell(answer, json, html)


def _tell(text: str) -> None:
    console = err()
    if console.is_terminal:
        console.print(f"[dim]{text}[/]")


def _warn(text: str) -> None:
    err().print(f"{text}.", highlight=False, soft_wrap=True)
