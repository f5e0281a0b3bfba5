"""`syncline volumes`: how many bytes each kind of parallelism sends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, emit, examples, tell
from syncline.describe.guide import cite

EPILOG = examples(
    "syncline volumes job.yaml",
    "syncline volumes job.yaml --gpus 1024 --json",
    "syncline volumes --models",
    "syncline volumes --size 140GB --rate 100Gbps",
)
app = typer.Typer()

JobFile = Annotated[Path | None, typer.Argument(metavar="JOB", help=f"A job file ({cite('job-file')}).")]
Gpus = Annotated[int | None, typer.Option(help="GPUs, where the job file does not fix dp.")]
Models = Annotated[bool, typer.Option("--models", help="List the models that ship, with their parameters.")]

Size = Annotated[str | None, typer.Option(help="With --rate or --time: bytes over one link, without a job.")]
Rate = Annotated[str | None, typer.Option(help="With --size: how long it takes. With --time: how much that carries.")]
Time = Annotated[str | None, typer.Option(help="With --size: the rate that it needs.")]


@app.command(epilog=EPILOG)
def volumes(
    job: JobFile = None, gpus: Gpus = None, models: Models = False, size: Size = None, rate: Rate = None,
    time: Time = None, json: JsonOption = False,
) -> None:  # fmt: skip
    """Say how many bytes one GPU sends in a step, by kind of parallelism, with formula and place in the graph.

    Without a job: two of --size, --rate and --time give the third, for a link that carries nothing else.
    """
    from syncline.errors import UsageError
    from syncline.questions.volumes import transfer
    from syncline.questions.volumes import volumes as ask
    from syncline.workload.zoo import model, names

    if models:
        listed = {name: model(name).params for name in names()}
        emit(
            {"models": listed},
            json,
            lambda console: console.print("\n".join(f"{n:20} {p / 1e9:10.3f} B" for n, p in listed.items())),
        )
    elif size is not None or rate is not None or time is not None:
        tell(transfer(size=size, rate=rate, time=time), json)
    elif job is None:
        raise UsageError("name a job file.", hint="Try: syncline volumes --help")
    else:
        tell(ask(job, gpus=gpus), json)
