"""`syncline step`: predict one training step of a job on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, examples, tell
from syncline.describe.guide import cite

EPILOG = examples(
    "syncline step h100-64-rail job.yaml",
    "syncline step cluster.yaml job.yaml --json",
    "syncline step h100-64-rail job.yaml --trace step.json --html step.html",
    "syncline step h100-64-rail profile.json.gz",
    "syncline step h100-64-rail traces/",
    "syncline step h100-64-rail job.yaml --level flow --json",
    "syncline step h100-64-rail job.yaml --profile profile.yaml",
)
app = typer.Typer()

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset (`syncline fabric list`).")]
JobFile = Annotated[
    Path,
    typer.Argument(metavar="JOB", help=f"A job file ({cite('job-file')}), or a Chakra or PyTorch profiler trace."),
]
Trace = Annotated[Path | None, typer.Option(help="Write the timeline (.json or .json.gz for Perfetto, .parquet).")]
Level = Annotated[
    str | None,
    typer.Option(
        help="analytic (closed forms, a job's default), flow (executed on the fabric, a trace's default) or packet."
    ),
]
RoutingName = Annotated[
    str,
    typer.Option("--routing", help="With flow: spray (balanced), ecmp (hashed) or static; with packet: spray or ecmp."),
]
MaxPackets = Annotated[int | None, typer.Option(min=1, help="With packet: refuse a step of more (50,000,000).")]
ProfileFile = Annotated[Path | None, typer.Option("--profile", help="What was measured here (`syncline calibrate`).")]
Html = Annotated[Path | None, typer.Option(help="Write a page: where the time goes, and every pipeline stage.")]


@app.command(epilog=EPILOG)
def step(
    cluster: Cluster, job: JobFile, level: Level = None, routing: RoutingName = "spray", trace: Trace = None,
    html: Html = None, profile: ProfileFile = None, max_packets: MaxPackets = None, json: JsonOption = False,
) -> None:  # fmt: skip
    """Predict one training step of a job on a cluster: time, MFU, memory, traffic, and what limits it.

    The job file fixes the parallelism; everything it does not say is a default that depends on the software's year and
    is listed with the answer. A job of `kind: decode` gives the time of one generated token instead. A trace of a real
    step (.et, .json, .json.gz; a folder, or the part of their names before `.0.et`, for one file a rank) keeps its
    compute as measured and gets its communication priced on this cluster.
    """
    from syncline.describe.files import check_writable
    from syncline.errors import UsageError
    from syncline.questions.step import DecodePrediction, TracePrediction
    from syncline.questions.step import step as ask
    from syncline.timeline import save

    for path in (trace, html):
        if path is not None:
            check_writable(path)
    answer = ask(cluster, job, level=level, routing=routing, profile=profile, max_packets=max_packets)
    if html is not None and isinstance(answer, TracePrediction):
        raise UsageError("--html draws the step of a job file.", hint="For a trace, use --trace FILE (Perfetto).")
    if (trace or html) and isinstance(answer, DecodePrediction):
        raise UsageError("a decode step has no timeline to write.", hint="Leave --trace and --html out.")
    if trace is not None:
        save(answer.timeline, trace)
    if html is not None:
        answer.page(html)
    tell(answer, json, trace, html)
