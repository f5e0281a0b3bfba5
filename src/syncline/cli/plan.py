"""`syncline plan`: how fast, what limits it, does it fit, what does it cost, what to change first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from syncline.cli.cost import read_set
from syncline.cli.shell.output import JsonOption, examples, progress, tell
from syncline.describe.plain import JsonObject


class PlanGroup(TyperGroup):
    """`syncline plan CLUSTER JOB` is short for `syncline plan best CLUSTER JOB`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `best` in front unless a command or the manual is asked for."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["best", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=PlanGroup,
    help="Plan a job on a cluster: how fast, what limits it, does it fit, what does it cost, what to change first.\n\n"
    "`syncline plan CLUSTER JOB` is short for `syncline plan best CLUSTER JOB`.",
    epilog=examples("syncline plan h100-64-rail llama3-70b", "syncline plan compare a.yaml b.yaml@nebius job.yaml"),
)

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset (`syncline fabric list`).")]
JobFile = Annotated[str, typer.Argument(metavar="JOB", help="A job file, or a job that ships: llama3-70b, gpt3-175b.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="One assumption about money: --set years=3.")]
Assume = Annotated[Path | None, typer.Option(help="YAML with any assumption about money by name.")]


@app.command(
    epilog=examples(
        "syncline plan h100-64-rail llama3-70b",
        "syncline plan cluster.yaml job.yaml --html plan.html --save plan.json",
        "syncline plan h100-64-rail llama3-70b --fix tp=8,pp=8,recompute=none --json",
        "syncline plan h100-64-rail llama3-70b --objective pareto",
        "syncline plan h100-64-rail llama3-70b --for megatron --write launch",
        "syncline plan cluster.yaml job.yaml --full --allow-lossy --workers 2",
    )
)
def best(
    cluster: Cluster,
    job: JobFile,
    fix: Annotated[str | None, typer.Option(help="Choices that are fixed: tp=8,pp=4,zero=1,recompute=none.")] = None,
    objective: Annotated[str, typer.Option(help="time, cost (per token, fewer GPUs allowed) or pareto.")] = "time",
    full: Annotated[
        bool, typer.Option("--full", help="Try overlap on and off, offloading, GPipe and zero-bubble too.")
    ] = False,
    allow_lossy: Annotated[
        bool, typer.Option("--allow-lossy", help="Try gradient widths and codecs that change what training sees.")
    ] = False,
    headroom: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of a GPU's memory to keep free; full allocators are slow.")
    ] = 0.08,
    for_: Annotated[
        str | None, typer.Option("--for", help="megatron, torchtitan, nemo, deepspeed or maxtext: obey its rules.")
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Folder for the files that start the job (with --for).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report: one page to forward.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="Write the report as PDF (needs chromium or Chrome).")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    write_job: Annotated[Path | None, typer.Option(help="Write the job file of the plan, for `syncline step`.")] = None,
    workers: Annotated[int, typer.Option(min=0, max=1024, help="Processes; 0: as many as it is worth.")] = 0,
    on: Annotated[str | None, typer.Option(help='"ray" spreads the search over a Ray cluster.')] = None,
    cloud: Annotated[str | None, typer.Option(help="Price by this cloud's rent instead of owning.")] = None,
    gpu_hour: Annotated[
        float | None, typer.Option(help="Dollars you pay for a rented GPU-hour: 2.40. Taken as fixed.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="CSV of prices instead of those that ship.")] = None,
    assumptions: Assume = None,
    set_: Set = None,
    profile: Annotated[Path | None, typer.Option(help="What was measured here (`syncline calibrate`).")] = None,
    json: JsonOption = False,
) -> None:
    """Find the best way to run a job on a cluster.

    Tries every split, micro-batch, schedule and recomputation that divides and fits in memory, and shows the fastest
    (or cheapest) with what limits it, what it costs, and which single change buys most.
    """
    from syncline.describe.files import check_folder, check_writable
    from syncline.errors import UsageError
    from syncline.questions.phases import has_phases, plan_phases
    from syncline.questions.plan import plan as ask
    from syncline.questions.serve import is_serving, serve
    from syncline.report.answers import html as render
    from syncline.report.pdf import browser, write_pdf

    if write is not None and for_ is None:
        raise UsageError(
            "--write needs a framework.", hint="Add --for megatron, torchtitan, nemo, deepspeed or maxtext."
        )
    for path in (html, pdf, save, write_job):
        if path is not None:
            check_writable(path)
    if write is not None:
        check_folder(write)
    if pdf is not None:
        browser()  # before a search that would be in vain
    own_price = read_set(set_ or []) | ({"gpu_hour_usd": gpu_hour} if gpu_hour is not None else {})
    phases = has_phases(job)
    if phases or is_serving(job):
        not_taken = {"--for": for_, "--write": write, "--save": save, "--write-job": write_job, "--profile": profile,
                     "--fix": fix}  # fmt: skip
        if other := next((name for name, value in not_taken.items() if value), ""):
            kind = "a run in phases" if phases else "a serving job"
            raise UsageError(f"{other} is not for {kind}.", hint="Plan one training job for it.")
        given = own_price | ({"cloud": cloud} if cloud else {})
        ways: Any = plan_phases if phases else serve
        found = ways(cluster, job, assumptions=assumptions, assume=given, prices=prices)
        if html is not None:
            found.page(html)
        if pdf is not None:
            write_pdf(render(found), pdf)
        tell(found, json, html, pdf)
        return
    with progress() as bar:
        task = bar.add_task("configurations", total=None)
        answer = ask(
            cluster, job, fix=fix, objective=objective, full=full, allow_lossy=allow_lossy, headroom=headroom,
            framework=for_,
            cloud=cloud, prices=prices, assumptions=assumptions, assume=own_price, workers=workers, on=on,
            profile=profile,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    if html is not None:
        answer.page(html)
    if pdf is not None:
        write_pdf(render(answer), pdf)
    if save is not None:
        answer.save(save)
    if write_job is not None:
        answer.write_job(write_job)
    written = answer.write_launch(for_, write) if for_ is not None and write is not None else ()
    tell(answer, json, html, pdf, save, write_job, *written)


@app.command(
    epilog=examples(
        "syncline plan compare b200.yaml h100.yaml@nebius nvl72.yaml@rent job.yaml",
        "syncline plan compare cluster.yaml job.yaml --set host.nics=1,2,4,8 --html sweep.html",
        "syncline plan compare llama3-70b --gpus 512",
        "syncline plan compare llama3-70b --budget 25M --fabrics rail-optimized,fat-tree,rail-only",
    )
)
def compare(
    names: Annotated[
        list[str], typer.Argument(metavar="CLUSTER... JOB", help="Clusters, owned or rented (`@aws`, `@rent`), a job.")
    ],
    gpus: Annotated[int | None, typer.Option(help="Without clusters: GPUs of every fabric.")] = None,
    budget: Annotated[str | None, typer.Option(help="Without clusters: dollars for hosts and network: 25M.")] = None,
    host: Annotated[str, typer.Option(help="Host model of the catalogue.")] = "dgx-h100",
    link: Annotated[str, typer.Option(help="Network link.")] = "NDR",
    fabrics: Annotated[str | None, typer.Option(help="Which: rail-optimized,fat-tree 2:1,torus ...")] = None,
    prices: Annotated[Path | None, typer.Option(help="CSV of prices instead of those that ship.")] = None,
    assumptions: Assume = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="years=3; or a sweep: host.nics=1,2,4,8, job.batch.global=512,1024."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="What was measured on one of the parts (`syncline calibrate`).")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the comparison as a page.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare clusters, or fabrics, for a job.

    Clusters may be owned and rented, mixed; fabrics are compared at a number of GPUs or a budget.

    The best plan on each, what it costs, and which are too close to call. With --set and several values, a sweep.
    """
    from syncline.describe.files import check_writable
    from syncline.plan.compare import FABRICS
    from syncline.questions.plan import compare as ask

    if html is not None:
        check_writable(html)
    job, clusters = _job_among(names)
    assume, sweep = _sets(set_ or [])
    chosen = tuple(name.strip() for name in fabrics.split(",") if name.strip()) if fabrics else FABRICS
    answer = ask(
        job, clusters=clusters, sweep=sweep, prices=prices, gpus=gpus, budget=budget, host=host, link=link,
        fabrics=chosen, assumptions=assumptions, assume=assume, profile=profile,
    )  # fmt: skip
    if html is not None:
        answer.page(html)
    tell(answer, json, html)


def _job_among(names: list[str]) -> tuple[str, list[str]]:
    """Return the one job among names of clusters and jobs, and the clusters in their order."""
    from syncline.errors import UsageError
    from syncline.questions.plan import is_job

    if len(names) == 1:
        return names[0], []
    jobs = [name for name in names if is_job(name)]
    if len(jobs) != 1:
        found = ", ".join(jobs) or "none"
        raise UsageError(f"name one job beside the clusters; found: {found}.", hint="A job file has a `model:`.")
    return jobs[0], [name for name in names if name != jobs[0]]


def _sets(pairs: list[str]) -> tuple[JsonObject, tuple[str, list[Any]] | None]:
    """Return assumptions about money, and the sweep: a key path with a dot, or `hosts`, and its values."""
    from syncline.describe.document import read_document
    from syncline.errors import UsageError

    swept = [pair for pair in pairs if "." in pair.partition("=")[0] or pair.startswith("hosts=")]
    if len(swept) > 1:
        raise UsageError("sweep one setting at a time.", hint=f"Keep one of {' and '.join(swept)}.")
    assume = read_set([pair for pair in pairs if pair not in swept])
    if not swept:
        return assume, None
    key, _, text = swept[0].partition("=")
    values = [read_document(value, "--set").data for value in text.split(",") if value.strip()]
    if not values:
        raise UsageError(f'--set "{swept[0]}" has no value.', hint="Write --set host.nics=1,2,4,8.")
    return assume, (key.strip(), values)
