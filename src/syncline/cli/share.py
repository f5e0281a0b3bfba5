"""`syncline share`: several jobs on one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, examples, tell
from syncline.describe.guide import cite

EPILOG = examples(
    "syncline share h100-64-rail jobs.yaml",
    "syncline share cluster.yaml jobs.yaml --html share.html --json",
    "syncline share cluster.yaml jobs.yaml --level packet --transport dctcp",
)
app = typer.Typer()

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset (`syncline fabric list`).")]
JobsFile = Annotated[Path, typer.Argument(metavar="JOBS", help=f"The jobs ({cite('share')} has the keys).")]
Html = Annotated[Path | None, typer.Option(help="Write a page with the timeline of every job.")]


@app.command(epilog=EPILOG)
def share(
    cluster: Cluster,
    jobs: JobsFile,
    level: Annotated[str, typer.Option(help="flow, or packet: measured steps with every packet as well.")] = "flow",
    transport: Annotated[str, typer.Option(help="Packet level: auto, dcqcn, dctcp, roce, ndp ...")] = "auto",
    routing: Annotated[str, typer.Option(help="Packet level: auto, ecmp, adaptive, spray ...")] = "auto",
    seed: Annotated[int, typer.Option(help="Packet level: seed of hashes and marks.")] = 0,
    html: Html = None,
    json: JsonOption = False,
) -> None:
    """Say what several jobs on one cluster cost each other, and how to steer their bursts.

    Each job's executed steps run at flow level beside the others': slowdown against running alone, with and without
    steering, the busiest links, and what of them may be given away; epoch by epoch as jobs arrive and leave and parts
    fail, and what each arrival and departure costs while it happens. Slots are used by the jobs through SYNCLINE_SLOTS
    and `syncline.torch.StepSlots`.
    """
    from syncline.describe.files import check_writable
    from syncline.questions.share import share as ask

    if html is not None:
        check_writable(html)
    answer = ask(cluster, jobs, level=level, transport=transport, routing=routing, seed=seed)
    if html is not None:
        answer.page(html)
    tell(answer, json, html)
