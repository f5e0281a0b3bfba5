"""`syncline fabric`: show, draw, price, route and convert a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from syncline.cli.shell.output import JsonOption, emit, examples, tell
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.fabric import Fabric

DEFAULT = "h100-64-rail"

app = typer.Typer(
    help="Describe, draw and price a cluster.",
    epilog=examples(
        "syncline fabric show",
        "syncline fabric show dgx-h100-superpod --html superpod.html",
        "syncline fabric show cluster.yaml --json",
        "syncline fabric route h100-64-rail host-00/gpu-0 host-40/gpu-3",
    ),
)


def presets_beginning(text: str) -> list[str]:
    """Return the names of presets for shell completion; files complete by themselves."""
    from syncline.fabric.load import presets

    return [name for name in presets() if name.startswith(text)]


ClusterArgument = Annotated[
    str,
    typer.Argument(metavar="CLUSTER", help="A preset's name or a cluster file.", autocompletion=presets_beginning),
]


@app.command(
    epilog=examples(
        "syncline fabric show",
        "syncline fabric show eos --html eos.html",
        "syncline fabric show cluster.yaml --png cluster.png --json",
    )
)
def show(
    cluster: ClusterArgument = DEFAULT,
    html: Annotated[Path | None, typer.Option(help="Write an interactive page with the picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture as SVG.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the picture as PNG (needs the png extra).")] = None,
    json: JsonOption = False,
) -> None:
    """Count, measure and price a cluster, and draw it."""
    from syncline.questions.fabric import inventory

    answer = inventory(cluster)
    written = _draw(answer.fabric, dict(answer.to_json()), html, svg, png)
    tell(answer, json, *written)


@app.command("list", epilog=examples("syncline fabric list", "syncline fabric list --json"))
def list_(json: JsonOption = False) -> None:
    """List the clusters that come with syncline, with their sources."""
    from syncline.fabric.load import parse_cluster, presets, read_cluster
    from syncline.report.text.fabric import columns

    specs = {name: parse_cluster(read_cluster(name)) for name in presets()}
    payload = {"presets": [{"name": n, "notes": s.notes, "source": s.source} for n, s in specs.items()]}
    rows = [(name, spec.notes) for name, spec in specs.items()]
    emit(payload, json, lambda console: console.print(columns(rows, ("preset", "what it is"))))


@app.command(
    short_help="List the parts of the catalogue and their sources.",
    epilog=examples("syncline fabric parts", "syncline fabric parts gpu", "syncline fabric parts switch QM9700 --json"),
)
def parts(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="gpu, nic, link, switch, cable, host, pcie, scale_up ...")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One part; all of its numbers and their source.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the catalogue: its kinds, the parts of one, or a part with all its numbers and where those come from."""
    from syncline.fabric.catalog import KINDS, load_catalog
    from syncline.report.text.fabric import columns, part_rows, parts_table

    catalog = load_catalog()
    if kind is None:
        kinds = [(k, str(len(catalog.parts(k)))) for k in KINDS]
        payload: JsonObject = {"kinds": {k: list(catalog.names(k)) for k in KINDS}}
        emit(payload, json, lambda console: console.print(columns(kinds, ("kind", "parts"), right=(1,))))
        return
    found = catalog.parts(kind) if name is None else (getattr(catalog, kind)(name),)
    parts = [p.model_dump(mode="json", exclude_none=True) for p in found]
    payload = {"kind": kind, "parts": parts}

    def show(console: Console) -> None:
        if name is None:
            console.print(parts_table(kind, parts))
            console.print(f"\nsyncline fabric parts {kind} NAME: all its numbers, other names and their sources")
        else:
            console.print(columns(part_rows(parts[0]), ("field", "value")))

    emit(payload, json, show)


@app.command(
    epilog=examples(
        "syncline fabric route h100-64-rail host-00/gpu-0 host-40/gpu-3",
        "syncline fabric route h100-64-rail host-00/gpu-0 host-40/gpu-3 --all --json",
    )
)
def route(
    cluster: ClusterArgument,
    source: Annotated[str, typer.Argument(metavar="FROM", help="A GPU or NIC, such as host-00/gpu-0.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another one.")],
    every: Annotated[bool, typer.Option("--all", help="All equal-cost paths (at most 1,024).")] = False,
    policy: Annotated[str, typer.Option(help="ecmp, first (dimension order), static or valiant.")] = "ecmp",
    cross_rail: Annotated[
        str, typer.Option(help="fabric: through the network; nvlink: change rail inside.")
    ] = "fabric",
    seed: Annotated[int, typer.Option(help="Seed of the ECMP hash.")] = 0,
    json: JsonOption = False,
) -> None:
    """Show which links a transfer between two devices crosses."""
    from syncline.fabric import load
    from syncline.fabric.route import Routes

    _one_of("--policy", policy, ("ecmp", "first", "static", "valiant"))
    _one_of("--cross-rail", cross_rail, ("fabric", "nvlink"))
    fabric = load(cluster)
    routes = Routes(fabric)
    a, b = fabric.device(source), fabric.device(target)
    rail: Any = cross_rail
    chosen: Any = policy
    found = (
        routes.paths(a, b, cross_rail=rail) if every else [routes.path(a, b, seed=seed, policy=chosen, cross_rail=rail)]
    )
    paths = [_path_of(fabric, path) for path in found]
    emit(
        {"paths": [path._asdict() for path in paths], "count": len(paths)},
        json,
        lambda console: _print_paths(console, paths),
    )


@app.command(
    short_help="List links by tier, or those of one device.",
    epilog=examples("syncline fabric links cluster.yaml", "syncline fabric links cluster.yaml --device leaf-03 --json"),
)
def links(
    cluster: ClusterArgument,
    device: Annotated[str | None, typer.Option(help="Only the links that leave this device.")] = None,
    json: JsonOption = False,
) -> None:
    """List links: counts by tier and medium, or every link of one device."""
    from dataclasses import asdict

    from syncline.fabric import load
    from syncline.report.fabric_links import links_of, links_table, tiers

    fabric = load(cluster)
    rows = tiers(fabric) if device is None else links_of(fabric, fabric.device(device))
    emit({"links": [asdict(row) for row in rows]}, json, lambda console: console.print(links_table(rows)))


@app.command(
    short_help="Racks, cables, addresses and switch configurations.",
    epilog=examples(
        "syncline fabric build cluster.yaml --out build/",
        "syncline fabric build cluster.yaml --system sonic --out build/ --html build.html",
        "syncline fabric build cluster.yaml --check build/",
    ),
)
def build(
    cluster: ClusterArgument = DEFAULT,
    out_folder: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write all files here.")] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Compare the files in a folder; exit 1 where one differs.")
    ] = None,
    system: Annotated[
        str, typer.Option(help="What Ethernet switches run: auto (by vendor), sonic, nvue, eos or frr.")
    ] = "auto",
    rack_power: Annotated[
        float | None,
        typer.Option(
            help="What the room feeds a rack, in kW. Unless given: 45, and racks sold as one (NVL72) what they take."
        ),
    ] = None,
    rack_units: Annotated[int, typer.Option(help="Height of a rack, in U.")] = 48,
    rack_weight: Annotated[float, typer.Option(help="What a rack may weigh, in kg.")] = 1360.0,
    html: Annotated[Path | None, typer.Option(help="Write a page with racks, cables and arithmetic.")] = None,
    json: JsonOption = False,
) -> None:
    """Work out racks, cables, addresses and the configuration of every switch and host."""
    from syncline.describe.files import check_writable
    from syncline.errors import UsageError
    from syncline.install.room import Room
    from syncline.questions.fabric_build import fabric_build

    if check is not None and out_folder is not None:
        raise UsageError(
            "--out and --check cannot be combined: one writes the files, the other compares them.",
            hint="Give one of the two.",
        )
    if html is not None:
        check_writable(html)
    room = Room(
        rack_u=rack_units, rack_power_w=None if rack_power is None else rack_power * 1e3, rack_weight_kg=rack_weight
    )
    answer = fabric_build(cluster, system=system, room=room)
    if check is not None:
        differences = answer.differences(check)
        payload = {"folder": str(check), "files": len(answer.files), "differences": list(differences)}
        found = differences or (f"{len(answer.files):,} files are as they should be",)
        emit(payload, json, lambda console: console.print("\n".join(found), soft_wrap=True))
        raise typer.Exit(1 if differences else 0)
    if out_folder is not None:
        from syncline.report.picture.elevation import cables_svg, elevations_svg

        answer.extra["racks.svg"] = elevations_svg(answer.installation)
        answer.extra["cables.svg"] = cables_svg(answer.installation)
        answer.write(out_folder)
    if html is not None:
        answer.page(html)
    tell(answer, json, out_folder, html)


@app.command(
    "export",
    epilog=examples(
        "syncline fabric export p5-ultracluster nccl topo.xml",
        "syncline fabric export cluster.yaml slurm-conf topology.conf",
        "syncline fabric export cluster.yaml graphml cluster.graphml",
    ),
)
def export_(
    cluster: ClusterArgument,
    format_: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help="One of nccl, slurm-conf, slurm-block, slurm-yaml, topograph, graphml."),
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write.")],
    host: Annotated[int | None, typer.Option(help="Which host, counted from 0 (nccl only).")] = None,
    json: JsonOption = False,
) -> None:
    """Write a cluster in another tool's format."""
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.fabric.formats import export

    if host is not None and format_ != "nccl":
        raise UsageError(f"--host picks the host of an nccl file; {format_} describes all.", hint="Leave --host out.")
    export(load(cluster), format_, path, **({} if host is None else {"host": host}))
    emit(
        {"written": str(path), "format": format_}, json, lambda console: console.print(f"wrote {path}", soft_wrap=True)
    )


@app.command(
    "import",
    epilog=examples(
        "syncline fabric import nccl-dump.xml cluster.yaml",
        "syncline fabric import ndv4-topo.xml cluster.yaml --gpu A100 --network 'fat-tree HDR' --count 16",
        "syncline fabric import topology.conf cluster.yaml --host dgx-h100",
        "syncline fabric import ibnetdiscover.out cluster.yaml --host dgx-h100",
        "syncline fabric import lldp/ cluster.yaml --host '8 x H100' --link 400GbE",
        "syncline fabric import topo.txt cluster.yaml --gpu H100 --link NDR --network 'rail-optimized NDR' --count 32",
        "syncline fabric import describe-instance-topology.json cluster.yaml --host p5",
    ),
)
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="An NCCL or Slurm topology, labels, GraphML, ibnetdiscover, iblinkinfo, ibstat, UFM links, LLDP "
            "tables, SONiC's config_db.json, nvidia-smi topo -m, or a cloud's answer where instances are.",
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The cluster file to write.")],
    format_: Annotated[str | None, typer.Option("--format", help="Name the format instead of guessing it.")] = None,
    host: Annotated[str | None, typer.Option(help="What the hosts are, for formats that do not say.")] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU, where an NCCL topology does not tell.")] = None,
    link: Annotated[str | None, typer.Option(help="What ports run, where it is not said: NDR, 400GbE.")] = None,
    network: Annotated[str | None, typer.Option(help='Join the hosts by this network: "rail-optimized NDR".')] = None,
    count: Annotated[int | None, typer.Option(help="This many hosts like the one described.", min=1)] = None,
    json: JsonOption = False,
) -> None:
    """Read another tool's description and write it as a cluster file."""
    from syncline.describe.files import check_writable
    from syncline.fabric import build, save
    from syncline.fabric.formats import import_fabric

    check_writable(target)
    spec = import_fabric(source, format_, host=host, gpu=gpu, link=link, network=network, count=count)
    fabric = build(spec)
    save(spec, target)
    payload = {"written": str(target), "gpus": fabric.num_gpus, "hosts": fabric.num_hosts, "notes": spec.notes}

    def text(console: Console) -> None:
        console.print(f"wrote {target}: {fabric.num_gpus:,} GPUs, {fabric.num_hosts:,} hosts", soft_wrap=True)
        for note in filter(None, spec.notes.split("; ")):
            console.print(f"  note: {note}", soft_wrap=True)

    emit(payload, json, text)


@app.command(
    epilog=examples(
        "syncline fabric diff cluster.yaml ibnetdiscover.out",
        "syncline fabric diff cluster.yaml lldp/ --link 400GbE --json",
        "syncline fabric diff planned.yaml built.yaml",
    ),
)
def diff(
    cluster: ClusterArgument,
    found: Annotated[
        str, typer.Argument(metavar="FOUND", help="What is there: a cluster, or a file that import reads.")
    ],
    link: Annotated[str | None, typer.Option(help="What ports run, where the file does not say.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare a described cluster with what was found.

    Cable by cable; exit status 1 where they differ.
    """
    from syncline.questions.fabric_diff import fabric_diff

    answer = fabric_diff(cluster, found, link=link)
    tell(answer, json)
    raise typer.Exit(1 if answer.differences else 0)


def _draw(fabric: Fabric, facts: JsonObject, html: Path | None, svg: Path | None, png: Path | None) -> list[Path]:
    """Write the pictures asked for; returns their paths."""
    if html is None and svg is None and png is None:
        return []
    from syncline.describe.files import check_writable, write_text
    from syncline.report.fabric_picture import draw_html, draw_svg, write_png

    for path in (html, svg, png):
        if path is not None:
            check_writable(path)  # all of them before the first is written
    if html is not None:
        write_text(html, draw_html(fabric, facts))
    if svg is not None or png is not None:
        picture = draw_svg(fabric)
        if svg is not None:
            write_text(svg, picture)
        if png is not None:
            write_png(picture, png)
    return [path for path in (html, svg, png) if path is not None]


class FoundPath(NamedTuple):
    """One way from device to device."""

    links: list[str]
    rate_Bps: float | None
    latency_s: float


def _path_of(fabric: Fabric, path: Any) -> FoundPath:
    links = fabric.links
    return FoundPath(
        [fabric.link_name(int(i)) for i in path],
        float(links.rate_Bps[path].min()) if len(path) else None,
        float(links.latency_s[path].sum()),
    )


def _print_paths(console: Console, paths: list[FoundPath]) -> None:
    from syncline.describe import units

    for path in paths:
        if path.rate_Bps is None:
            console.print("the same device: no link is crossed")
            continue
        ends = [name.split(" -> ") for name in path.links]
        console.print(" -> ".join([ends[0][0], *(end for _, end in ends)]), soft_wrap=True)
        rate, latency = units.show_rate(path.rate_Bps), units.show_time(path.latency_s)
        console.print(f"  slowest link {rate}, latency {latency}")
    if len(paths) > 1:
        console.print(f"{len(paths):,} equal-cost paths")


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    from syncline.errors import UsageError

    if value not in allowed:
        raise UsageError(f'{option} cannot be "{value}".', hint=f"It is one of {', '.join(allowed)}.")
