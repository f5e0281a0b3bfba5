"""`syncline plan`: how fast, what limits it, does it fit, what does it cost, what to change first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from syncline.cli.cost import _number, _set
from syncline.cli.output import JsonOption, emit, examples, progress

if TYPE_CHECKING:
    from syncline.plan.answer import Answer
    from syncline.plan.space import Axes


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
    epilog=examples("syncline plan h100-64-rail llama3-70b", "syncline plan compare llama3-70b --gpus 512"),
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
        "syncline plan cluster.yaml job.yaml --full --allow-lossy --workers 2",
    )
)
def best(
    cluster: Cluster,
    job: JobFile,
    fix: Annotated[str | None, typer.Option(help="Choices that are fixed: tp=8,pp=4,zero=1,recompute=none.")] = None,
    objective: Annotated[str, typer.Option(help="time, cost (per token, fewer GPUs allowed) or pareto.")] = "time",
    full: Annotated[
        bool, typer.Option("--full", help="Try what rarely wins too: no overlap, GPipe, zero-bubble.")
    ] = False,
    allow_lossy: Annotated[
        bool, typer.Option("--allow-lossy", help="Try gradient widths and codecs that change what training sees.")
    ] = False,
    headroom: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of a GPU's memory to keep free; full allocators are slow.")
    ] = 0.08,
    html: Annotated[Path | None, typer.Option(help="Write the report: one page to forward.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    write_job: Annotated[Path | None, typer.Option(help="Write the job file of the plan, for `syncline step`.")] = None,
    workers: Annotated[int, typer.Option(min=0, max=1024, help="Processes; 0: as many as it is worth.")] = 0,
    on: Annotated[str | None, typer.Option(help='"ray" spreads the search over a Ray cluster.')] = None,
    cloud: Annotated[str | None, typer.Option(help="Price by this cloud's rent instead of owning.")] = None,
    prices: Annotated[Path | None, typer.Option(help="CSV of prices instead of those that ship.")] = None,
    assumptions: Assume = None,
    set_: Set = None,
    json: JsonOption = False,
) -> None:
    """Find the best way to run a job on a cluster.

    Tries every split, micro-batch, schedule and recomputation that divides and fits in memory, and shows the fastest
    (or cheapest) with what limits it, what it costs, and which single change buys most.
    """
    from syncline.fabric import load
    from syncline.files import check_writable, write_text
    from syncline.plan.answer import make_plan
    from syncline.plan.cost import load_assumptions, load_prices
    from syncline.plan.fix import read_fix
    from syncline.plan.named_job import named_job
    from syncline.plan.plan import save_plan
    from syncline.report.plan_text import plan_lines

    for path in (html, save, write_job):
        if path is not None:
            check_writable(path)
    assumed, _ = load_assumptions(assumptions, _set(set_ or []) | ({"cloud": cloud} if cloud else {}))
    described, fabric = named_job(job), load(cluster)
    with progress() as bar:
        task = bar.add_task("configurations", total=None)
        answer = make_plan(
            fabric,
            described,
            axes=_axes(full, allow_lossy),
            fix=read_fix(fix),
            objective=objective,
            headroom=headroom,
            assumptions=assumed,
            prices=load_prices(prices) if prices else None,
            workers=workers,
            spread=_spread(on),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    payload = answer.to_json()
    written = _write(answer, fabric, html, save, write_job, write_text, save_plan)
    if written:
        payload["written"] = written
    lines = plan_lines(answer) + [f"  written    {path}" for path in written]
    emit(payload, json, lambda console: console.print("\n".join(lines), soft_wrap=True))


@app.command(
    epilog=examples(
        "syncline plan compare llama3-70b --gpus 512",
        "syncline plan compare llama3-70b --budget 25M --fabrics rail-optimized,fat-tree,rail-only",
        "syncline plan compare job.yaml --host dgx-a100 --link HDR --gpus 1024 --json",
    )
)
def compare(
    job: JobFile,
    gpus: Annotated[int | None, typer.Option(help="GPUs of every fabric.")] = None,
    budget: Annotated[str | None, typer.Option(help="Dollars for hosts and network: 25M.")] = None,
    host: Annotated[str, typer.Option(help="Host model of the catalogue.")] = "dgx-h100",
    link: Annotated[str, typer.Option(help="Network link.")] = "NDR",
    fabrics: Annotated[str | None, typer.Option(help="Which: rail-optimized,fat-tree 2:1,torus ...")] = None,
    assumptions: Assume = None,
    set_: Set = None,
    json: JsonOption = False,
) -> None:
    """Compare fabrics for a job, at a number of GPUs or at a budget: the best plan on each, and what it costs."""
    from syncline.plan.compare import FABRICS, compare_fabrics
    from syncline.plan.cost import load_assumptions
    from syncline.plan.named_job import named_job
    from syncline.report.plan_text import comparison_lines

    chosen = tuple(name.strip() for name in fabrics.split(",") if name.strip()) if fabrics else FABRICS
    assumed, _ = load_assumptions(assumptions, _set(set_ or []))
    comparison = compare_fabrics(
        named_job(job),
        host=host,
        link=link,
        num_gpus=gpus,
        budget_usd=_number("--budget", budget) if budget is not None else None,
        fabrics=chosen,
        assumptions=assumed,
    )
    emit(
        comparison.to_json(),
        json,
        lambda console: console.print("\n".join(comparison_lines(comparison)), soft_wrap=True),
    )


def _axes(full: bool, lossy: bool) -> Axes:
    from dataclasses import replace

    from syncline.plan.space import FULL, LOSSY_CODECS, LOSSY_WIDTHS, USUAL

    axes = FULL if full else USUAL
    return replace(axes, gradient_bytes=LOSSY_WIDTHS, codec=LOSSY_CODECS) if lossy else axes


def _spread(on: str | None) -> Any:
    from syncline.errors import UsageError

    if on is None:
        return None
    if on != "ray":
        raise UsageError(f'--on "{on}" is not known.', hint="--on ray spreads the search over a Ray cluster.")
    from syncline.plan.rayrun import on_ray

    return on_ray()


def _write(
    answer: Answer, fabric: Any, html: Path | None, save: Path | None, job: Path | None, write_text: Any, save_plan: Any
) -> list[str]:
    if html is not None:
        from syncline.plan.scaling import scaling
        from syncline.plan.space import USUAL
        from syncline.report.plan_page import plan_page

        curve = scaling(answer.question, answer.best, answer.money, USUAL)
        write_text(html, plan_page(answer, fabric, curve))
    if save is not None:
        save_plan(answer.best, save)
    if job is not None:
        from syncline.plan.job_file import job_text

        write_text(job, job_text(answer.result.job))
    return [str(path) for path in (html, save, job) if path is not None]
