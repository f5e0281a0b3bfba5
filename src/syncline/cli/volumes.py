"""`syncline volumes`: how many bytes each kind of parallelism sends."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.output import JsonOption, emit, examples

EPILOG = examples(
    "syncline volumes job.yaml", "syncline volumes job.yaml --gpus 1024 --json", "syncline volumes --models"
)
app = typer.Typer(help="Say how many bytes a job sends, by kind of parallelism.", epilog=EPILOG)

JobFile = Annotated[Path | None, typer.Argument(metavar="JOB", help="A job file (docs/guides/job-file.md).")]
Gpus = Annotated[int | None, typer.Option(help="GPUs, where the job file does not fix dp.")]
Models = Annotated[bool, typer.Option("--models", help="List the models that ship, with their parameters.")]


# A group reads no options after its arguments unless told so.
@app.callback(invoke_without_command=True, epilog=EPILOG, context_settings={"allow_interspersed_args": True})
def volumes(job: JobFile = None, gpus: Gpus = None, models: Models = False, json: JsonOption = False) -> None:
    """Say how many bytes one GPU sends in a step, by kind of parallelism, with formula and place in the graph."""
    from syncline.errors import UsageError
    from syncline.report.step_text import volume_lines
    from syncline.workload.read_job import load_job
    from syncline.workload.volumes import volumes as count
    from syncline.workload.zoo import model, names

    if models:
        listed = {name: model(name).params for name in names()}
        emit(
            {"models": listed},
            json,
            lambda console: console.print("\n".join(f"{n:20} {p / 1e9:10.3f} B" for n, p in listed.items())),
        )
        return
    if job is None:
        raise UsageError("name a job file.", hint="Try: syncline volumes --help")
    described = load_job(job)
    split = described.parallel.fill(gpus or described.gpus)
    described = described.on(split.model_ranks * (split.dp or 1))
    rows = [asdict(volume) for volume in count(described)]
    num = split.model_ranks * (split.dp or 1)
    payload = {"job": described.name, "gpus": num, "parallel": described.parallel.model_dump(), "volumes": rows,
               "total_bytes": sum(row["size_bytes"] for row in rows)}  # fmt: skip
    emit(
        payload, json, lambda console: console.print("\n".join(volume_lines(described.name, rows, num)), soft_wrap=True)
    )
