"""`syncline step`: predict one training step of a job on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.output import JsonOption, emit, examples

EPILOG = examples(
    "syncline step h100-64-rail job.yaml",
    "syncline step cluster.yaml job.yaml --json",
    "syncline step h100-64-rail job.yaml --trace step.json --html step.html",
    "syncline step h100-64-rail profile.json.gz",
    "syncline step h100-64-rail traces/",
)
app = typer.Typer(help="Predict one training step of a job on a cluster.", epilog=EPILOG)

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset (`syncline fabric list`).")]
JobFile = Annotated[
    Path,
    typer.Argument(metavar="JOB", help="A job file (docs/guides/job-file.md), or a Chakra or PyTorch profiler trace."),
]
Trace = Annotated[Path | None, typer.Option(help="Write the timeline (.json or .json.gz for Perfetto, .parquet).")]
Html = Annotated[Path | None, typer.Option(help="Write a page: where the time goes, and every pipeline stage.")]


# A group reads no options after its arguments unless told so.
@app.callback(invoke_without_command=True, epilog=EPILOG, context_settings={"allow_interspersed_args": True})
def step(
    cluster: Cluster, job: JobFile, trace: Trace = None, html: Html = None, json: JsonOption = False
) -> None:  # fmt: skip
    """Predict one training step of a job on a cluster: time, MFU, memory, traffic, and what limits it.

    The job file fixes the parallelism; everything it does not say is a default that depends on the software's year and
    is listed with the answer. A job of `kind: decode` gives the time of one generated token instead. A trace of a real
    step (.et, .json, .json.gz; a folder, or the part of their names before `.0.et`, for one file a rank) keeps its
    compute as measured and gets its communication priced on this cluster.
    """
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.files import check_writable, write_text
    from syncline.report.step_page import step_page
    from syncline.report.step_text import decode_lines, step_lines
    from syncline.sim.step import decode_step
    from syncline.sim.step import step as price
    from syncline.timeline import save
    from syncline.workload.described import blamed_on
    from syncline.workload.read_job import load_job
    from syncline.workload.trace import is_trace

    for path in (trace, html):
        if path is not None:
            check_writable(path)
    if is_trace(job):
        if html is not None:
            raise UsageError("--html draws the step of a job file.", hint="For a trace, use --trace FILE (Perfetto).")
        _replay(cluster, job, trace, json)
        return
    described = load_job(job)
    fabric = load(cluster)
    if described.kind == "decode":
        if trace is not None or html is not None:
            raise UsageError("a decode step has no timeline to write.", hint="Leave --trace and --html out.")
        with blamed_on(job):
            payload = decode_step(fabric, described).to_json()
        emit(payload, json, lambda console: console.print("\n".join(decode_lines(payload)), soft_wrap=True))
        return
    with blamed_on(job):
        result = price(fabric, described)
    payload = {"cluster": fabric.name, **result.to_json()}
    if trace is not None or html is not None:
        timeline = result.timeline()
        if trace is not None:
            save(timeline, trace)
        if html is not None:
            write_text(html, step_page(payload, timeline))
        payload["written"] = [str(path) for path in (trace, html) if path is not None]
    emit(payload, json, lambda console: console.print("\n".join(step_lines(payload)), soft_wrap=True))


def _replay(cluster: str, source: Path, trace: Path | None, json: bool) -> None:
    """Price a traced step on a cluster and print it beside what was recorded."""
    from syncline.fabric import load
    from syncline.report.step_text import replay_lines
    from syncline.sim.step.replay import OWN_WORK, replay, unpriced
    from syncline.timeline import save
    from syncline.workload.trace import read_trace

    workload = read_trace(source)
    recorded, priced = replay(workload), replay(workload, load(cluster))
    if trace is not None:
        save(priced, trace)
    payload = {
        "cluster": cluster, "trace": str(source), "operations": len(workload), "ranks": workload.num_ranks,
        "comm_bytes": workload.total_bytes(), "recorded_s": recorded.makespan_s, "step_time_s": priced.makespan_s,
        "recorded_exposed_comm_s": float(recorded.exposed_s(compute=OWN_WORK).max()),
        "exposed_comm_s": float(priced.exposed_s(compute=OWN_WORK).max()),
        "kept_as_recorded": int(unpriced(workload).sum()), "ignores": list(priced.source.ignores),
    }  # fmt: skip
    emit(payload, json, lambda console: console.print("\n".join(replay_lines(payload)), soft_wrap=True))
