"""`syncline schedule`: list, show, prove, price and convert collective schedules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.schedule.options import ScheduleRequest, What, asks
from syncline.cli.shell.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.schedule import Schedule

MAX_STRANDS = 4

app = typer.Typer(
    help="Build, draw, prove and price collective schedules.",
    epilog=examples(
        "syncline schedule list",
        "syncline schedule show ring --ranks 8",
        "syncline schedule verify hierarchical --hosts 2048 --per-host 8 --json",
        "syncline schedule cost hierarchical --cluster h100-64-rail --size 1GiB",
        "syncline schedule convert ring.json ring.xml",
    ),
)

Protocol = Annotated[str, typer.Option(help="MSCCL protocol: Simple, LL or LL128.")]


@app.command("list", epilog=examples("syncline schedule list", "syncline schedule list --json"))
def list_(json: JsonOption = False) -> None:
    """List the families, what each is and which collectives it does."""
    from syncline.report.text.fabric import columns
    from syncline.schedule import FAMILIES

    families = [{"name": f.name, "summary": f.summary, "collectives": list(f.kinds)} for f in FAMILIES.values()]
    rows = [(f.name, f.summary, ", ".join(f.kinds)) for f in FAMILIES.values()]
    emit({"families": families}, json, lambda c: c.print(columns(rows, ("family", "what it is", "collectives"))))


@app.command(
    short_help="Print and draw the rounds of a schedule.",
    epilog=examples(
        "syncline schedule show ring --ranks 8",
        "syncline schedule show double-tree --ranks 16 --html tree.html",
        "syncline schedule show torus --shape 4x4 --svg torus.svg",
    ),
)
@asks
def show(
    what: What,
    asked: ScheduleRequest,
    html: Annotated[Path | None, typer.Option(help="Write a page with the space-time picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture as SVG.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the picture as PNG (needs the png extra).")] = None,
    json: JsonOption = False,
) -> None:
    """Print the rounds of a schedule as a table, with its cost, and draw them."""
    from syncline.report.text.schedule import rounds_tables, strand_line, summary, summary_lines
    from syncline.schedule.formats.json_file import to_json

    schedule, _ = asked.schedule(what)
    facts = summary(schedule)
    written = _draw(schedule, facts, html, svg, png)

    def text(console: Console) -> None:
        console.print("\n".join(summary_lines(facts)), soft_wrap=True)
        for number, strand in enumerate(schedule.strands[:MAX_STRANDS]):
            console.print()
            console.print(strand_line(number, strand), soft_wrap=True)
            for part, table in enumerate(rounds_tables(schedule, strand, console.width)):
                console.print(*([""] if part else []), table, sep="\n")
        console.print("\n+5>1: chunk 5 is added to rank 1's; =5>1: it is copied there", soft_wrap=True)
        if len(schedule.strands) > MAX_STRANDS:
            console.print(f"\n{len(schedule.strands) - MAX_STRANDS} more strands", soft_wrap=True)
        for path in written:
            console.print(f"\nwrote {path}", soft_wrap=True)

    payload = to_json(schedule) if json else {}
    emit(payload | ({"written": [str(path) for path in written]} if written else {}), json, text)


def _draw(
    schedule: Schedule, facts: dict[str, str], html: Path | None, svg: Path | None, png: Path | None
) -> list[Path]:
    """Write the pictures asked for; returns their paths."""
    paths = [path for path in (html, svg, png) if path is not None]
    if not paths:
        return []
    from syncline.describe.files import check_writable, write_text
    from syncline.describe.raster import write_png
    from syncline.report.schedule_picture import draw_html, draw_svg

    for path in paths:
        check_writable(path)  # all of them before the first is written
    if html is not None:
        write_text(html, draw_html(schedule, facts))
    if svg is not None:
        write_text(svg, draw_svg(schedule))
    if png is not None:
        write_png(draw_svg(schedule), png)
    return paths


@app.command(
    short_help="Prove that a schedule does its collective.",
    epilog=examples(
        "syncline schedule verify ring --ranks 4096 --json",
        "syncline schedule verify hierarchical --hosts 2048 --per-host 8",
        "syncline schedule verify allreduce.xml",
    ),
)
@asks
def verify(
    what: What,
    asked: ScheduleRequest,
    method: Annotated[str, typer.Option(help="auto, flat or factored.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 1,
    json: JsonOption = False,
) -> None:
    """Prove that a schedule does its collective: every contribution exactly once, safely, without deadlock."""
    import time

    from syncline.errors import NotProvedError
    from syncline.schedule import verify as prove

    began = time.perf_counter()
    schedule, _ = asked.schedule(what)
    try:
        proved = prove(schedule, method=method, seed=seed)
    except NotProvedError as error:
        if not json:
            raise
        moves = {"ok": False, "moves": schedule.num_moves, "seconds": time.perf_counter() - began}
        emit({**moves, **error.to_json()}, json, lambda console: None)
        raise typer.Exit(2) from None
    seconds = time.perf_counter() - began
    payload = proved.to_json() | {"schedule": schedule.name, "collective": str(schedule.collective),
                                  "rounds": schedule.num_rounds, "seconds": seconds}  # fmt: skip
    size = f"{_counted(schedule.num_rounds, 'round')}, {_counted(proved.num_moves, 'move')}"
    line = f"proved: {schedule.name} does {schedule.collective}\n  {size}\n  by {proved.method}"
    emit(payload, json, lambda console: console.print(line, soft_wrap=True))


def _counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


@app.command(
    short_help="Count rounds and bytes on each class of links.",
    epilog=examples(
        "syncline schedule cost ring --cluster h100-64-rail --size 1GiB --json",
        "syncline schedule cost ring --cluster h100-64-rail --placement spread",
        "syncline schedule cost torus --cluster tpu-v4-pod --placement grid",
    ),
)
@asks
def cost(
    what: What,
    cluster: Annotated[str, typer.Option(help="A preset's name or a cluster file.")] = "h100-64-rail",
    size: Annotated[str, typer.Option(help="Size of the buffer.")] = "1GiB",
    placement: Annotated[str, typer.Option(help="packed, spread (ignores hosts) or grid (torus).")] = "",
    *,
    asked: ScheduleRequest,
    json: JsonOption = False,
) -> None:
    """Count rounds, bytes a rank sends and bytes on each class of links, from the proved schedule."""
    from syncline.describe import units
    from syncline.fabric import load
    from syncline.report.text.schedule import bound_lines, cost_lines
    from syncline.schedule import cost as costs
    from syncline.schedule import verify as prove
    from syncline.schedule.family.weighted import bound

    fabric, size_bytes = load(cluster), units.size(size)
    schedule, options = asked.schedule(what, fabric)
    proved = prove(schedule)
    how = placement or ("grid" if what == "torus" and fabric.facts.get("torus_shape") else "packed")
    counted = costs.cost(proved.schedule, fabric, size_bytes, ranks_on=costs.placement(fabric, how))
    limit = bound(schedule, options.rates_Bps, options.speeds_Bps, size_bytes)
    payload = {"schedule": schedule.name, "collective": str(schedule.collective), "cluster": fabric.name,
               "ranks": schedule.num_ranks, "placement": how} | counted.to_json()  # fmt: skip
    payload |= {"bound": None if limit is None else limit.to_json()}
    lines = cost_lines(f"{schedule.name} ({schedule.collective}, {how})", fabric.name, counted) + bound_lines(limit)
    emit(payload, json, lambda console: console.print("\n".join(lines), soft_wrap=True))


@app.command(
    epilog=examples("syncline schedule convert ring.json ring.xml", "syncline schedule convert allreduce.xml ar.json")
)
def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A .json or .xml (MSCCL) schedule.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Where to write; the ending says the format.")],
    protocol: Protocol = "Simple",
    json: JsonOption = False,
) -> None:
    """Read a schedule, prove it, and write it in another format."""
    from syncline.schedule.formats.files import read

    _prove_and_write(read(source), str(source), target, protocol, json)


@app.command(epilog=examples("syncline schedule export ring ring.xml --ranks 8"))
@asks
def export(
    what: What,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Where to write: .json or .xml (MSCCL).")],
    asked: ScheduleRequest,
    protocol: Protocol = "Simple",
    json: JsonOption = False,
) -> None:
    """Build a family's schedule, prove it, and write it to a file."""
    schedule, _ = asked.schedule(what)
    _prove_and_write(schedule, schedule.name, target, protocol, json)


def _prove_and_write(schedule: Schedule, name: str, target: Path, protocol: str, json: bool) -> None:
    from syncline.schedule import verify as prove
    from syncline.schedule.formats.files import write

    proved = prove(schedule)
    write(proved.schedule, target, protocol=protocol)
    payload = {"written": str(target), "moves": proved.num_moves, "method": proved.method}
    emit(payload, json, lambda console: console.print(f"proved {name} and wrote {target}", soft_wrap=True))
