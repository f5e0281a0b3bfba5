"""`syncline simulate`: what a collective takes on a cluster, size by size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.packet.buffers import buffers
from syncline.cli.packet.flows import flows
from syncline.cli.packet.options import (
    BackgroundOption,
    BufferOption,
    EcnOption,
    FailOption,
    LossOption,
    MtuOption,
    PayloadOption,
    PfcOption,
    RecoveryOption,
    RerouteOption,
)
from syncline.cli.packet.simulate import shown, traffic
from syncline.cli.packet.slots import slots
from syncline.cli.shell.output import JsonOption, examples, tell

app = typer.Typer(
    help="Simulate a collective on a cluster: time, bandwidths and the limiting link, size by size.",
    epilog=examples(
        "syncline simulate allreduce --cluster h100-64-rail --size 1KiB..16GiB",
        "syncline simulate allreduce --cluster h100-64-rail --algorithm ring --routing ecmp --seeds 20 --size 1GiB",
        "syncline simulate alltoall --cluster cluster.yaml --size 1MiB..1GiB --level analytic --json",
        "syncline simulate allreduce --cluster h100-64-rail --size 64MiB --schedule best.xml",
        "syncline simulate allreduce --cluster h100-64-rail --algorithm mine.xml --size 64MiB --chunks 16",
        "syncline simulate allreduce --cluster h100-64-rail --ranks 448 --algorithm parameter-server --servers 8",
        "syncline scenario shared.yaml     several jobs, tenants with guarantees, failures, stragglers, other traffic",
    ),
)

Cluster = Annotated[str, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster.")]
Size = Annotated[str, typer.Option(help="One size, or a range that doubles: 1KiB..16GiB.")]
Algorithm = Annotated[
    str,
    typer.Option(
        help="auto (the fastest), nccl (what NCCL would choose), a family, NAME-in-8-turns (channels that take turns "
        "over a long line), or your own .xml or .json file."
    ),
]
Chunks = Annotated[int, typer.Option(help="Chunks that follow each other through the rounds (0: as suits the size).")]
Servers = Annotated[int, typer.Option(help="parameter-server: how many; on GPUs that --ranks leaves over, if it does.")]
Colocated = Annotated[bool, typer.Option("--colocated", help="parameter-server: servers share the GPUs of ranks.")]
Level = Annotated[str, typer.Option(help="flow (links shared fairly), packet (every packet) or analytic (a bound).")]
Routing = Annotated[
    str,
    typer.Option(
        help="auto: as cluster file and transport have it; ecmp, adaptive, spray, static; packets: flowlet; "
        "dragonflies: ugal, valiant"
    ),
]
Transport = Annotated[
    str, typer.Option(help="auto: what the links carry; rdma, efa, tcp, ideal; packet level: dcqcn, ndp ...")
]
PlacementName = Annotated[
    str, typer.Option("--placement", help="packed, spread, rail-aware, grid (torus), or auto: grid, else packed.")
]
Ranks = Annotated[int | None, typer.Option("--ranks", "-n", help="Number of ranks (default: every GPU).")]
Seed = Annotated[int, typer.Option(help="Seed of the ECMP hash.")]
Seeds = Annotated[int, typer.Option(help="Also give the spread over this many seeds.")]
Trace = Annotated[
    Path | None, typer.Option(help="Write the timeline of the largest size (.json for Perfetto, .parquet).")
]
ScheduleFile = Annotated[
    Path | None,
    typer.Option("--schedule", help="Write the schedule of the largest size, proved (.json, or .xml for MSCCL)."),
]
Html = Annotated[Path | None, typer.Option(help="Write a page: bandwidth curve, link load, traffic matrix.")]
Calibrate = Annotated[
    Path | None, typer.Option(help="With nccl: an nccl-tests log (text or JSON) of this operation here, to fit to.")
]
ProfileFile = Annotated[
    Path | None, typer.Option("--profile", help="With nccl: what was measured here (`syncline calibrate collective`).")
]
CrossRail = Annotated[str, typer.Option(help="Between rails: fabric (over the spine) or nvlink (PXN).")]


def simulate(
    context: typer.Context,
    cluster: Cluster,
    size: Size = "1KiB..16GiB",
    algorithm: Algorithm = "auto",
    chunks: Chunks = 0,
    servers: Servers = 0,
    colocated: Colocated = False,
    level: Level = "flow",
    routing: Routing = "auto",
    transport: Transport = "auto",
    placement: PlacementName = "auto",
    ranks: Ranks = None,
    seed: Seed = 0,
    seeds: Seeds = 0,
    cross_rail: CrossRail = "fabric",
    loss: LossOption = None,
    buffer: BufferOption = None,
    payload: PayloadOption = None,
    mtu: MtuOption = None,
    recovery: RecoveryOption = None,
    pfc: PfcOption = None,
    ecn: EcnOption = None,
    background: BackgroundOption = None,
    fail: FailOption = None,
    reroute: RerouteOption = None,
    calibrate: Calibrate = None,
    profile: ProfileFile = None,
    trace: Trace = None,
    schedule: ScheduleFile = None,
    html: Html = None,
    json: JsonOption = False,
) -> None:
    """Simulate this collective on a cluster."""
    from syncline.describe.files import check_writable
    from syncline.errors import UsageError
    from syncline.questions.simulate import simulate as ask
    from syncline.questions.simulated.packets import PacketQuestion
    from syncline.schedule.formats.files import ending_of, write
    from syncline.timeline import save

    if algorithm == "nccl" and (trace or schedule):
        what = "trace" if trace else "schedule"
        raise UsageError(
            f"--algorithm nccl is a cost model without flows: it has no {what}.", hint="Name a family, or use auto."
        )
    if schedule:
        ending_of(schedule)
    for path in (trace, schedule, html):
        if path is not None:
            check_writable(path)
    answer = ask(
        cluster, str(context.info_name), size,
        algorithm=algorithm, chunks=chunks, servers=servers, colocated=colocated, level=level,
        routing=routing, transport=transport, placement=placement, ranks=ranks,
        seed=seed, seeds=seeds, cross_rail=cross_rail, calibrate=calibrate, profile=profile, shown=shown,
        packets=PacketQuestion(loss, buffer, payload, mtu, recovery, pfc, ecn, background, fail, reroute),
    )  # fmt: skip
    if trace:
        save(answer.timeline, trace)
    if schedule:
        write(answer.schedule, schedule)
    if html:
        answer.page(html)
    tell(answer, json, trace, schedule, html)


for _name in ("allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall"):
    _manual = examples(
        f"syncline simulate {_name} --cluster h100-64-rail --size 1KiB..1GiB",
        f"syncline simulate {_name} --cluster h100-64-rail --ranks 64 --size 64MiB --html page.html --json",
    )
    app.command(_name, short_help=f"Simulate {_name}.", epilog=_manual)(simulate)

for _name in ("incast", "permutation", "all-pairs"):
    _manual = examples(
        f"syncline simulate {_name} --cluster fat-tree-1024 --transport dctcp --level packet --html page.html",
        f"syncline simulate {_name} --cluster fat-tree-1024 --transport ndp --json",
        f"syncline simulate {_name} --cluster fat-tree-1024 --loss 0.0001 --recovery selective --background 0.2",
    )
    app.command(_name, short_help=f"Simulate {_name}, packet by packet.", epilog=_manual)(traffic)

app.command(
    "flows",
    short_help="Simulate flows from a file, or by distribution and load.",
    epilog=examples(
        "syncline simulate flows flows.csv --cluster fat-tree-1024 --transport dctcp --out done.csv",
        "syncline simulate flows --cluster fat-tree-1024 --load 0.3 --sizes websearch --duration 200us --against hpcc",
        "syncline simulate flows perm.cm --cluster fat-tree-1024 --transport dctcp --law examples/laws/aimd.cpp --json",
    ),
)(flows)

app.command(
    "buffers",
    short_help="Find the smallest switch buffer, marks and pauses a job needs.",
    epilog=examples(
        "syncline simulate buffers fat-tree-1024 incast:32:2MB --transport dctcp",
        "syncline simulate buffers cluster.yaml allreduce:64MiB --transport roce --within 0.02 --json",
    ),
)(buffers)

app.command(
    "slots",
    short_help="Lay a job into time slots under synchronised clocks, against best effort.",
    epilog=examples(
        "syncline simulate slots h100-64-rail allreduce:16MiB --clock-error 100ns",
        "syncline simulate slots cluster.yaml all-pairs:64KiB --transport dctcp --buffer 2MB --background 0.2 --json",
    ),
)(slots)
