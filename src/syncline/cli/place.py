"""`syncline place`: on which GPU of an allocation each rank should run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, examples, tell
from syncline.describe.guide import cite

EPILOG = examples(
    'syncline place cluster.yaml job.yaml --hosts "$SLURM_JOB_NODELIST" --out placement',
    "syncline place cluster.yaml job.yaml --allocation nodes.json --html placement.html",
    "syncline place cluster.yaml job.yaml --hosts 'gpu[003-011,042]' --keep placement/placement.json"
    " --replace gpu007=gpu055",
)
app = typer.Typer()

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset (`syncline fabric list`).")]
JobFile = Annotated[str, typer.Argument(metavar="JOB", help=f"A job file ({cite('job-file')}), or a shipped name.")]
Hosts = Annotated[str | None, typer.Option(metavar="LIST", help='The hosts in the scheduler\'s order: "gpu[003-011]".')]
AllocationFile = Annotated[
    Path | None,
    typer.Option("--allocation", metavar="FILE", help="scontrol, kubectl or Ray output, or a hostfile."),
]
Keep = Annotated[Path | None, typer.Option(metavar="FILE", help="The placement.json that runs now, with --replace.")]
Replace = Annotated[str | None, typer.Option(metavar="OLD=NEW", help="A host was replaced: move as few as possible.")]
Slack = Annotated[float, typer.Option(help="Part of a step that may be lost before more hosts move.", min=0, max=1)]
RoutingName = Annotated[str, typer.Option("--routing", help="spray (balanced), ecmp (hashed) or static.")]
Seed = Annotated[int, typer.Option(help="Seed of the swaps that are tried.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Write rank file, hostfiles, torchrun and JobSet.")]
Html = Annotated[Path | None, typer.Option(help="Write a page with the rank map, before and after.")]


@app.command(epilog=EPILOG)
def place(
    cluster: Cluster, job: JobFile, hosts: Hosts = None, allocation: AllocationFile = None, keep: Keep = None,
    replace: Replace = None, slack: Slack = 0.02, routing: RoutingName = "spray", seed: Seed = 0, out: Out = None,
    html: Html = None, json: JsonOption = False,
) -> None:  # fmt: skip
    """Map a job's ranks to the GPUs of an allocation so that the predicted step is shortest.

    The scheduler's order, packed order and what the search finds are executed at flow level on the same fabric; the
    shortest is taken, so the answer is never slower than either.
    """
    from syncline.describe.files import check_folder, check_writable, make_folder
    from syncline.questions.place import place as ask

    if html is not None:
        check_writable(html)
    if out is not None:
        check_folder(out)
    answer = ask(
        cluster, job, hosts=hosts, allocation=allocation, keep=keep, replace=replace, slack=slack, routing=routing,
        seed=seed,
    )  # fmt: skip
    written = []
    if out is not None:
        written = answer.write(make_folder(out))
    if html is not None:
        answer.page(html)
    tell(answer, json, *written, html)
