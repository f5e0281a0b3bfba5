"""`syncline simulate`: what a collective takes on a cluster, size by size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, examples
from syncline.cli.packet_options import (
    Asked,
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
from syncline.cli.simulate_packet import against_flow, background_line, traffic

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.fabric import Fabric
    from syncline.program import Placement
    from syncline.schedule import Kind
    from syncline.sim.estimate import Estimate
    from syncline.sim.routing import Network
    from syncline.sim.sweep import Contest

app = typer.Typer(
    help="Simulate a collective on a cluster: time, bandwidths and the limiting link, size by size.",
    epilog=examples(
        "syncline simulate allreduce --cluster h100-64-rail --size 1KiB..16GiB",
        "syncline simulate allreduce --cluster h100-64-rail --algorithm ring --routing ecmp --seeds 20 --size 1GiB",
        "syncline simulate alltoall --cluster cluster.yaml --size 1MiB..1GiB --level analytic --json",
        "syncline scenario shared.yaml     several jobs, tenants with guarantees, failures, stragglers, other traffic",
    ),
)

Cluster = Annotated[str, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster.")]
Size = Annotated[str, typer.Option(help="One size, or a range that doubles: 1KiB..16GiB.")]
Algorithm = Annotated[str, typer.Option(help="auto (the fastest), nccl (what NCCL would choose), or a family.")]
Level = Annotated[str, typer.Option(help="flow (links shared fairly), packet (every packet) or analytic (a bound).")]
Routing = Annotated[str, typer.Option(help="ecmp, adaptive, spray or static; packet level: also flowlet, ugal ...")]
Transport = Annotated[str, typer.Option(help="rdma, efa, tcp or ideal; packet level: dcqcn, dctcp, ndp, roce ...")]
PlacementName = Annotated[
    str, typer.Option("--placement", help="packed, spread, rail-aware, grid (torus), or auto: grid, else packed.")
]
Ranks = Annotated[int | None, typer.Option("--ranks", "-n", help="Number of ranks (default: every GPU).")]
Seed = Annotated[int, typer.Option(help="Seed of the ECMP hash.")]
Seeds = Annotated[int, typer.Option(help="Also give the spread over so many seeds.")]
Trace = Annotated[
    Path | None, typer.Option(help="Write the timeline of the largest size (.json for Perfetto, .parquet).")
]
Html = Annotated[Path | None, typer.Option(help="Write a page: bandwidth curve, link load, traffic matrix.")]
Calibrate = Annotated[
    Path | None, typer.Option(help="With nccl: an nccl-tests log (text or JSON) of this operation here, to fit to.")
]
CrossRail = Annotated[str, typer.Option(help="Between rails: fabric (over the spine) or nvlink (PXN).")]


def read_sizes(text: str) -> list[int]:
    """Read "1KiB..16GiB" as sizes that double, or one size."""
    from syncline import units
    from syncline.sim.sweep import sizes_between

    low, dots, high = text.partition("..")
    return sizes_between(units.size(low), units.size(high)) if dots else [units.size(low)]


def simulate(
    context: typer.Context,
    cluster: Cluster,
    size: Size = "1KiB..16GiB",
    algorithm: Algorithm = "auto",
    level: Level = "flow",
    routing: Routing = "ecmp",
    transport: Transport = "rdma",
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
    trace: Trace = None,
    html: Html = None,
    json: JsonOption = False,
) -> None:
    """Simulate this collective on a cluster."""
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.files import check_writable
    from syncline.program import place
    from syncline.sim.candidates import NAMES
    from syncline.sim.routing import Network, NetworkOptions

    kind = NAMES[str(context.info_name)]
    if level not in ("analytic", "flow", "packet"):
        raise UsageError(f'no level of simulation is called "{level}".', hint="One of: analytic, flow, packet.")
    if calibrate and algorithm != "nccl":
        raise UsageError("--calibrate fits the model of NCCL.", hint="Add --algorithm nccl.")
    asked = Asked(loss, buffer, payload, mtu, recovery, pfc, ecn, background, fail, reroute)
    if level != "packet" or algorithm == "nccl":
        asked.refuse("nccl" if algorithm == "nccl" else level)
    for path in (trace, html):
        if path is not None:
            check_writable(path)
    fabric = load(cluster)
    sizes = read_sizes(size)
    if algorithm == "nccl":
        if trace or seeds:
            raise UsageError("--algorithm nccl is a cost model without flows: it has no trace or seeds.",
                             hint="Name a family, or use auto.")  # fmt: skip
        answer = _nccl(fabric, kind, sizes, ranks, calibrate)
        if html:
            _write_page(html, kind, fabric, answer)
    elif level == "packet":
        answer = _packet(fabric, kind, sizes, place(placement, fabric, ranks), algorithm,
                         (transport, routing, seed, cross_rail), asked, trace, html)  # fmt: skip
    else:
        options = NetworkOptions(routing=routing, seed=seed, transport=transport, cross_rail=cross_rail)  # type: ignore[arg-type]
        network = Network(fabric, options)
        placed = place(placement, fabric, ranks)
        contest = _contest(fabric, kind, placed, network, algorithm)
        found = [contest.best(s, level) for s in sizes]
        answer = _payload(fabric, found, placed, network, level)
        if seeds:
            answer["spread"] = _spread(contest, found[-1], network, seeds)
        _write(trace, html, contest, found, fabric, answer)
    answer["collective"] = str(context.info_name)
    emit(answer, json, lambda console: _show(console, answer))


def _contest(fabric: Fabric, kind: Kind, placed: Placement, network: Network, algorithm: str) -> Contest:
    from syncline.sim.candidates import find, proved
    from syncline.sim.sweep import Contest

    if algorithm == "auto":
        return Contest.of(proved(fabric, kind, placed.num_ranks), placed, network)
    return Contest.of({algorithm: find(fabric, kind, placed.num_ranks, algorithm)}, placed, network)


def _payload(fabric: Fabric, found: list[Estimate], placed: Placement, network: Network, level: str) -> dict[str, Any]:
    ignores = list(dict.fromkeys(text for estimate in found for text in estimate.ignores))
    options = network.options
    return {
        "cluster": fabric.name,
        "ranks": placed.num_ranks,
        "placement": placed.name,
        "level": level,
        "routing": options.routing,
        "seed": options.seed,
        "transport": options.transport,
        "ignores": ignores,
        "rows": [estimate.row() for estimate in found],
    }


def _packet(
    fabric: Fabric,
    kind: Kind,
    sizes: list[int],
    placed: Placement,
    algorithm: str,
    how: tuple[str, str, int, str],
    asked: Asked,
    trace: Path | None,
    html: Path | None,
) -> dict[str, Any]:
    from syncline.cli.simulate_packet import packet_rows, write_page
    from syncline.sim.packet import packet_network
    from syncline.sim.packet.levels import flow_options
    from syncline.sim.routing import Network
    from syncline.timeline import save

    transport, routing, seed, cross_rail = how
    network = packet_network(fabric)
    options = asked.options(network, transport, routing, seed, cross_rail=cross_rail)
    contest = _contest(fabric, kind, placed, Network(fabric, flow_options(options)), algorithm)
    rows, outcome = packet_rows(contest, [contest.best(size, "flow") for size in sizes], network, options, asked)
    payload: dict[str, Any] = {
        "cluster": fabric.name, "ranks": placed.num_ranks, "placement": placed.name, "level": "packet",
        "routing": routing, "seed": seed, "transport": options.transport, "asked": asked.shown(),
        "ignores": rows[-1]["packet"]["ignores"], "rows": rows,
    }  # fmt: skip
    if trace:
        save(outcome.timeline(), trace)
        payload["trace"] = str(trace)
    if html:
        write_page(html, f"{kind.value.replace('_', '-')} on {fabric.name}", outcome, against_flow(rows[-1]))
        payload["html"] = str(html)
    return payload


def _nccl(fabric: Fabric, kind: Kind, sizes: list[int], ranks: int | None, log: Path | None) -> dict[str, Any]:
    from syncline.errors import UsageError
    from syncline.sim.nccl.calibrate import calibrate
    from syncline.sim.nccl.describe import from_fabric
    from syncline.sim.nccl.measured import read_log, read_text
    from syncline.sim.nccl.predict import IGNORES, predict
    from syncline.sim.nccl.wire import wires

    per_host = fabric.num_gpus // fabric.num_hosts
    if ranks is not None and ranks % per_host:
        raise UsageError(f"NCCL is modelled on whole hosts of {per_host} GPUs; {ranks} ranks are not.")
    system = from_fabric(fabric, num_hosts=(ranks or fabric.num_gpus) // per_host)
    fitted = calibrate(system, read_log(read_text(log), str(log), kind.value)) if log else None
    prediction = predict(system, kind.value, sizes, calibration=fitted)
    rows = [
        row
        | {"wire_Bps": wire.rate_Bps, "limiting_link": wire.link, "utilisation": wire.utilisation}
        | {"method": "nccl", "exact": False}
        for row, wire in zip(prediction.rows(), wires(prediction, fabric), strict=True)
    ]
    return {
        "cluster": fabric.name, "ranks": system.num_ranks, "level": "nccl", "ignores": list(IGNORES),
        "assumed": list(prediction.unverified), "calibrated_on": str(log) if log else None, "rows": rows,
    }  # fmt: skip


def _spread(contest: Contest, best: Estimate, network: Network, seeds: int) -> dict[str, Any]:
    from syncline.sim.estimate import over_seeds

    program = contest.wired[best.algorithm].program
    found = over_seeds(program, network, best.size_bytes, range(seeds))
    return {"size_bytes": best.size_bytes, "algorithm": best.algorithm} | found.to_json()


def _write(
    trace: Path | None,
    html: Path | None,
    contest: Contest,
    found: list[Estimate],
    fabric: Fabric,
    payload: dict[str, Any],
) -> None:
    if trace:
        _write_trace(trace, contest, found[-1])
        payload["trace"] = str(trace)
    if html:
        _write_page(html, found[-1].kind, fabric, payload, (contest, found[-1]))


def _write_trace(path: Path, contest: Contest, estimate: Estimate) -> None:
    from syncline.sim.chronicle import timeline
    from syncline.sim.flow import Job, simulate
    from syncline.timeline import save

    program = contest.wired[estimate.algorithm].program
    save(timeline(simulate([Job(program, estimate.size_bytes)], contest.network, record=True)), path)


def _write_page(
    path: Path, kind: Kind, fabric: Fabric, payload: dict[str, Any], largest: tuple[Contest, Estimate] | None = None
) -> None:
    """Write the page of a sweep, with the links and pairs of the largest size where its flows are known."""
    from syncline.files import write_text
    from syncline.report.simulation_page import Flows, simulation_page
    from syncline.sim.traffic import traffic_matrix

    flows = None
    if largest is not None:
        contest, last = largest
        matrix, labels = traffic_matrix(contest.wired[last.algorithm], last.size_bytes)
        flows = Flows(last.link_utilisation(contest.network), matrix, labels)
    title = f"{kind.value.replace('_', '-')} on {fabric.name}"
    write_text(path, simulation_page(title, fabric, payload["rows"], payload["ignores"], flows))
    payload["html"] = str(path)


def _show(console: Console, payload: dict[str, Any]) -> None:
    from syncline import units
    from syncline.report.simulation_text import method_lines, sweep_table

    how = ", ".join(f"{payload[name]}" for name in ("placement", "routing", "transport") if name in payload)
    console.print(
        f"{payload['collective']} on {payload['cluster']}: {payload['ranks']:,} ranks" + (f" ({how})" if how else "")
    )
    console.print(sweep_table(payload["rows"]))
    console.print()
    if "spread" in payload:
        spread = payload["spread"]
        times = ", ".join(
            f"{name} {units.show_time(spread[name + '_s'])}" for name in ("median", "p10", "p90", "worst")
        )
        console.print(f"over {spread['num_seeds']} seeds, {units.show_size(spread['size_bytes'])}: {times}")
    for row in payload["rows"]:
        if "flow_time_s" in row:
            console.print("\n  ".join(against_flow(row)), soft_wrap=True)
            if "background" in row["packet"]:
                console.print(f"  {background_line(row['packet'])}", soft_wrap=True)
    console.print(f"{payload['level']} level; ignores {', '.join(payload['ignores'])}")
    for line in method_lines([row["method"] for row in payload["rows"]]):
        console.print(line)
    for name in ("trace", "html"):
        if name in payload:
            console.print(f"wrote {payload[name]}")


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
