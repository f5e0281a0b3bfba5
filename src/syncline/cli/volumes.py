"""`syncline volumes`: how many bytes each kind of parallelism sends."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.output import JsonOption, emit, examples

EPILOG = examples(
    "syncline volumes job.yaml",
    "syncline volumes job.yaml --gpus 1024 --json",
    "syncline volumes --models",
    "syncline volumes --size 140GB --rate 100Gbps",
)
app = typer.Typer(help="Say how many bytes a job sends, by kind of parallelism.", epilog=EPILOG)

JobFile = Annotated[Path | None, typer.Argument(metavar="JOB", help="A job file (docs/guides/job-file.md).")]
Gpus = Annotated[int | None, typer.Option(help="GPUs, where the job file does not fix dp.")]
Models = Annotated[bool, typer.Option("--models", help="List the models that ship, with their parameters.")]

Size = Annotated[str | None, typer.Option(help="With --rate or --time: bytes over one link, without a job.")]
Rate = Annotated[str | None, typer.Option(help="With --size: how long it takes. With --time: how much that carries.")]
Time = Annotated[str | None, typer.Option(help="With --size: the rate that it needs.")]


# A group reads no options after its arguments unless told so.
@app.callback(invoke_without_command=True, epilog=EPILOG, context_settings={"allow_interspersed_args": True})
def volumes(
    job: JobFile = None, gpus: Gpus = None, models: Models = False, size: Size = None, rate: Rate = None,
    time: Time = None, json: JsonOption = False,
) -> None:  # fmt: skip
    """Say how many bytes one GPU sends in a step, by kind of parallelism, with formula and place in the graph.

    Without a job: two of --size, --rate and --time give the third, for a link that carries nothing else.
    """
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
    if size is not None or rate is not None or time is not None:
        third = _third(size, rate, time)
        emit(third, json, lambda console: console.print(_third_line(third)))
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


def _third(size: str | None, rate: str | None, time: str | None) -> dict[str, float]:
    """Return size, rate and time of a transfer of which two are given."""
    from syncline import units
    from syncline.errors import UsageError

    if sum(text is not None for text in (size, rate, time)) != 2:
        raise UsageError("two of --size, --rate and --time give the third.", hint="Leave one of them out.")
    size_bytes = float(units.size(size)) if size else units.rate(rate or "") * units.time(time or "")
    rate_Bps = units.rate(rate) if rate else size_bytes / _positive(units.time(time or ""), "--time")
    time_s = units.time(time) if time else size_bytes / _positive(rate_Bps, "--rate")
    return {"size_bytes": size_bytes, "rate_Bps": rate_Bps, "time_s": time_s}


def _positive(value: float, option: str) -> float:
    from syncline.errors import UsageError

    if value <= 0:
        raise UsageError(f"{option} is {value:g}; it must be above 0.")
    return value


def _third_line(third: dict[str, float]) -> str:
    from syncline import units

    size, rate, time = third["size_bytes"], third["rate_Bps"], third["time_s"]
    return (
        f"{units.show_size(size)} ({size:,.0f} B) at {units.show_rate(rate)} ({units.show_bandwidth(rate)}) take "
        f"{units.show_time(time)}"
    )
