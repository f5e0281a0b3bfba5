"""`syncline schedule`: list, show, prove, price and convert collective schedules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.fabric import Fabric
    from syncline.schedule import Options, Schedule

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

What = Annotated[str, typer.Argument(metavar="FAMILY|FILE", help="A family (see list), or a .json or .xml file.")]
Ranks = Annotated[int | None, typer.Option("--ranks", "-n", help="Number of ranks.")]
CollectiveOption = Annotated[str | None, typer.Option("--collective", "-c", help="all_reduce, all_gather, ...")]
Root = Annotated[int, typer.Option(help="Root of a broadcast, reduce, scatter, gather or send.")]
Peer = Annotated[int, typer.Option(help="Who receives a send_recv.")]
Channels = Annotated[int, typer.Option(help="Equal strands side by side.")]
Directions = Annotated[int, typer.Option(help="Directions of a ring: 1 or 2.")]
Chunks = Annotated[int, typer.Option(help="Chunks in a pipeline (0: the family's own).")]
Shape = Annotated[str, typer.Option(help="Grid or levels from the outside in: 64x8, 4x4x4.")]
Hosts = Annotated[int, typer.Option(help="Hosts, with --per-host: short for --shape HxP.")]
PerHost = Annotated[int, typer.Option("--per-host", help="Ranks a host.")]
Levels = Annotated[str, typer.Option(help="Family of each level, outside first: ring,direct.")]
Servers = Annotated[int, typer.Option(help="Parameter servers.")]
Colocated = Annotated[bool, typer.Option("--colocated", help="Servers live with the first workers.")]
Radix = Annotated[int, typer.Option(help="Children of a reducing switch.")]
Rates = Annotated[str, typer.Option(help="Rates of rails to stripe over: 100Gbps,400Gbps.")]
Speeds = Annotated[str, typer.Option(help="Speed of each rank, for balanced: 100Gbps,400Gbps.")]


def _numbers(text: str) -> tuple[int, ...]:
    from syncline.errors import UsageError

    try:
        return tuple(int(part) for part in text.lower().split("x")) if text else ()
    except ValueError:
        raise UsageError(f'cannot read the shape "{text}".', hint='Write it as "64x8".') from None


def _rates(text: str) -> tuple[float, ...]:
    from syncline import units

    return tuple(units.rate(part.strip()) for part in text.split(",")) if text else ()


def _options(
    ranks: int | None,
    collective: str | None,
    shape: str,
    hosts: int,
    per_host: int,
    levels: str,
    rates: str,
    speeds: str,
    fabric: Fabric | None = None,
    **more: Any,
) -> Options:
    from math import prod

    from syncline.errors import UsageError
    from syncline.schedule import Options
    from syncline.schedule.collective import read_kind

    grid = (hosts, per_host) if hosts or per_host else _numbers(shape)
    if (hosts or per_host) and (not (hosts and per_host) or shape):
        raise UsageError("--hosts and --per-host go together, and not with --shape.")
    told = _rates(speeds)
    count = ranks if ranks is not None else prod(grid) if grid else len(told) or (fabric.num_gpus if fabric else 8)
    kind = read_kind(collective) if collective else None
    names = tuple(part.strip() for part in levels.split(",")) if levels else ()
    return Options(count, kind, shape=grid, levels=names, rates_Bps=_rates(rates), speeds_Bps=told, **more)


def _made(what: str, options: Options) -> tuple[Schedule, Any]:
    """Return the schedule of a family or file, and its family's cost law where it has one."""
    from syncline.schedule.exchange.files import is_file, read
    from syncline.schedule.families import find

    if is_file(what):
        return read(Path(what)), None
    family = find(what)
    return family.make(options), family.cost_law(options)


@app.command("list", epilog=examples("syncline schedule list", "syncline schedule list --json"))
def list_(json: JsonOption = False) -> None:
    """List the families, what each is and which collectives it does."""
    from syncline.report.fabric_text import columns
    from syncline.schedule import FAMILIES

    families = [{"name": f.name, "summary": f.summary, "collectives": list(f.kinds)} for f in FAMILIES.values()]
    rows = [(f.name, f.summary, ", ".join(f.kinds)) for f in FAMILIES.values()]
    emit({"families": families}, json, lambda c: c.print(columns(rows, ("family", "what it is", "collectives"))))


@app.command(
    epilog=examples(
        "syncline schedule show ring --ranks 8",
        "syncline schedule show double-tree --ranks 16 --html tree.html",
        "syncline schedule show torus --shape 4x4 --svg torus.svg",
    )
)
def show(
    what: What,
    ranks: Ranks = None,
    collective: CollectiveOption = None,
    root: Root = 0,
    peer: Peer = -1,
    channels: Channels = 1,
    directions: Directions = 1,
    chunks: Chunks = 0,
    shape: Shape = "",
    hosts: Hosts = 0,
    per_host: PerHost = 0,
    levels: Levels = "",
    servers: Servers = 1,
    colocated: Colocated = False,
    radix: Radix = 32,
    rates: Rates = "",
    speeds: Speeds = "",
    html: Annotated[Path | None, typer.Option(help="Write a page with the space-time picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture as SVG.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the picture as PNG (needs the png extra).")] = None,
    json: JsonOption = False,
) -> None:
    """Print the rounds of a schedule as a table, with its cost and its family's law, and draw them."""
    from syncline.report.schedule_text import rounds_table, strand_line, summary_lines
    from syncline.schedule.exchange.json_file import to_json

    options = _options(ranks, collective, shape, hosts, per_host, levels, rates, speeds, root=root, peer=peer,
                       channels=channels, directions=directions, chunks=chunks, servers=servers, colocated=colocated,
                       radix=radix)  # fmt: skip
    schedule, law = _made(what, options)
    lines = summary_lines(schedule, law)
    written = _draw(schedule, lines, html, svg, png)

    def text(console: Console) -> None:
        console.print("\n".join(lines), soft_wrap=True)
        for number, strand in enumerate(schedule.strands[:4]):
            console.print()
            console.print(strand_line(number, strand), soft_wrap=True)
            console.print(rounds_table(schedule, strand))
        console.print("\n+5>1: chunk 5 is added to rank 1's; =5>1: it is copied there", soft_wrap=True)
        if len(schedule.strands) > 4:
            console.print(f"\n{len(schedule.strands) - 4} more strands", soft_wrap=True)
        for path in written:
            console.print(f"\nwrote {path}", soft_wrap=True)

    emit(to_json(schedule) if json else {}, json, text)


def _draw(schedule: Schedule, lines: list[str], html: Path | None, svg: Path | None, png: Path | None) -> list[Path]:
    from syncline.report.picture.raster import write_png
    from syncline.report.schedule_picture import draw_html, draw_svg
    from syncline.schedule.exchange.files import write_text

    if html is not None:
        facts = dict(line.strip().split(None, 1) for line in lines[1:])
        write_text(html, draw_html(schedule, {"schedule": lines[0], **facts}))
    if svg is not None:
        write_text(svg, draw_svg(schedule))
    if png is not None:
        write_png(draw_svg(schedule), png)
    return [path for path in (html, svg, png) if path is not None]


@app.command(
    epilog=examples(
        "syncline schedule verify ring --ranks 4096 --json",
        "syncline schedule verify hierarchical --hosts 2048 --per-host 8",
        "syncline schedule verify allreduce.xml",
    )
)
def verify(
    what: What,
    ranks: Ranks = None,
    collective: CollectiveOption = None,
    root: Root = 0,
    peer: Peer = -1,
    channels: Channels = 1,
    directions: Directions = 1,
    chunks: Chunks = 0,
    shape: Shape = "",
    hosts: Hosts = 0,
    per_host: PerHost = 0,
    levels: Levels = "",
    servers: Servers = 1,
    colocated: Colocated = False,
    radix: Radix = 32,
    rates: Rates = "",
    speeds: Speeds = "",
    method: Annotated[str, typer.Option(help="auto, flat or factored.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 1,
    json: JsonOption = False,
) -> None:
    """Prove that a schedule does its collective: every contribution exactly once, safely, without deadlock."""
    import time

    from syncline.errors import NotProvedError
    from syncline.schedule import verify as prove

    options = _options(ranks, collective, shape, hosts, per_host, levels, rates, speeds, root=root, peer=peer,
                       channels=channels, directions=directions, chunks=chunks, servers=servers, colocated=colocated,
                       radix=radix)  # fmt: skip
    began = time.perf_counter()
    schedule, _ = _made(what, options)
    try:
        proved = prove(schedule, method=method, seed=seed)
    except NotProvedError as error:
        if not json:
            raise
        moves = {"ok": False, "moves": schedule.num_moves, "seconds": time.perf_counter() - began}
        emit(moves | error.to_json(), json, lambda console: None)
        raise typer.Exit(2) from None
    seconds = time.perf_counter() - began
    payload = proved.to_json() | {"schedule": schedule.name, "collective": str(schedule.collective),
                                  "rounds": schedule.num_rounds, "seconds": seconds}  # fmt: skip
    size = f"{schedule.num_rounds:,} rounds, {proved.num_moves:,} moves"
    line = f"proved: {schedule.name} does {schedule.collective}\n  {size}\n  by {proved.method}"
    emit(payload, json, lambda console: console.print(line, soft_wrap=True))


@app.command(
    epilog=examples(
        "syncline schedule cost ring --cluster h100-64-rail --size 1GiB --json",
        "syncline schedule cost ring --cluster h100-64-rail --placement spread",
        "syncline schedule cost torus --cluster tpu-v4-pod --placement grid",
    )
)
def cost(
    what: What,
    cluster: Annotated[str, typer.Option(help="A preset's name or a cluster file.")] = "h100-64-rail",
    size: Annotated[str, typer.Option(help="Size of the buffer.")] = "1GiB",
    placement: Annotated[str, typer.Option(help="packed, spread (ignores hosts) or grid (torus).")] = "",
    ranks: Ranks = None,
    collective: CollectiveOption = None,
    root: Root = 0,
    peer: Peer = -1,
    channels: Channels = 1,
    directions: Directions = 1,
    chunks: Chunks = 0,
    shape: Shape = "",
    hosts: Hosts = 0,
    per_host: PerHost = 0,
    levels: Levels = "",
    servers: Servers = 1,
    colocated: Colocated = False,
    radix: Radix = 32,
    rates: Rates = "",
    speeds: Speeds = "",
    json: JsonOption = False,
) -> None:
    """Count rounds, bytes a rank sends and bytes on each class of links, from the proved schedule."""
    from syncline import units
    from syncline.fabric import load
    from syncline.report.schedule_text import bound_lines, cost_lines
    from syncline.schedule import cost as costs
    from syncline.schedule import verify as prove
    from syncline.schedule.weighted import bound

    fabric, size_bytes = load(cluster), units.size(size)
    options = costs.fitted(_options(ranks, collective, shape, hosts, per_host, levels, rates, speeds, fabric, root=root,
                                    peer=peer, channels=channels, directions=directions, chunks=chunks, servers=servers,
                                    colocated=colocated, radix=radix), what, fabric)  # fmt: skip
    schedule, _ = _made(what, options)
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
    source: Annotated[Path, typer.Argument(help="A .json or .xml (MSCCL) schedule.")],
    target: Annotated[Path, typer.Argument(help="Where to write; the ending says the format.")],
    protocol: Annotated[str, typer.Option(help="MSCCL protocol: Simple, LL or LL128.")] = "Simple",
    json: JsonOption = False,
) -> None:
    """Read a schedule, prove it, and write it in another format."""
    from syncline.schedule import verify as prove
    from syncline.schedule.exchange.files import read, write

    proved = prove(read(source))
    write(proved.schedule, target, protocol=protocol)
    payload = {"written": str(target), "moves": proved.num_moves, "method": proved.method}
    emit(payload, json, lambda console: console.print(f"proved {source} and wrote {target}", soft_wrap=True))


@app.command(epilog=examples("syncline schedule export ring ring.xml --ranks 8"))
def export(
    what: What,
    target: Annotated[Path, typer.Argument(help="Where to write: .json or .xml (MSCCL).")],
    ranks: Ranks = None,
    collective: CollectiveOption = None,
    channels: Channels = 1,
    directions: Directions = 1,
    chunks: Chunks = 0,
    shape: Shape = "",
    levels: Levels = "",
    protocol: Annotated[str, typer.Option(help="MSCCL protocol: Simple, LL or LL128.")] = "Simple",
    json: JsonOption = False,
) -> None:
    """Build a family's schedule, prove it, and write it to a file."""
    from syncline.schedule import verify as prove
    from syncline.schedule.exchange.files import write

    options = _options(ranks, collective, shape, 0, 0, levels, "", "", channels=channels, directions=directions,
                       chunks=chunks)  # fmt: skip
    proved = prove(_made(what, options)[0])
    write(proved.schedule, target, protocol=protocol)
    payload = {"written": str(target), "moves": proved.num_moves, "method": proved.method}
    emit(payload, json, lambda console: console.print(f"proved {proved.schedule.name} and wrote {target}"))
