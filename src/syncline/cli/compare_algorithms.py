"""`syncline compare-algorithms`: which algorithm wins at which size on a cluster, and where the lead changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, examples
from syncline.cli.simulate import Cluster, CrossRail, PlacementName, Ranks, Routing, Seed, Size, Transport, read_sizes

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    help="Which algorithm wins at which size on this cluster, with the sizes at which the winner changes.",
    epilog=examples(
        "syncline compare-algorithms --cluster h100-64-rail",
        "syncline compare-algorithms --cluster cluster.yaml --collective alltoall --size 1MiB..1GiB --json",
    ),
    invoke_without_command=True,
)

CollectiveName = Annotated[str, typer.Option(help="allreduce, allgather, reducescatter, broadcast, reduce, alltoall.")]
Level = Annotated[str, typer.Option(help="flow or analytic.")]


@app.callback()
def compare_algorithms(
    cluster: Cluster,
    collective: CollectiveName = "allreduce",
    size: Size = "1KiB..4GiB",
    level: Level = "flow",
    routing: Routing = "ecmp",
    transport: Transport = "rdma",
    placement: PlacementName = "auto",
    ranks: Ranks = None,
    seed: Seed = 0,
    cross_rail: CrossRail = "fabric",
    json: JsonOption = False,
) -> None:
    """Price every algorithm at every size and say who wins where."""
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.program import place
    from syncline.sim.candidates import NAMES, proved
    from syncline.sim.routing import Network, NetworkOptions
    from syncline.sim.sweep import Contest, crossovers

    if collective not in NAMES:
        raise UsageError(f'no collective is called "{collective}".', hint=f"One of: {', '.join(NAMES)}.")
    if level not in ("analytic", "flow"):
        raise UsageError(f'no level of simulation is called "{level}".', hint="One of: analytic, flow.")
    fabric = load(cluster)
    network = Network(fabric, NetworkOptions(routing=routing, seed=seed, transport=transport, cross_rail=cross_rail))  # type: ignore[arg-type]
    placed = place(placement, fabric, ranks)
    contest = Contest.of(proved(fabric, NAMES[collective], placed.num_ranks), placed, network)
    sizes = read_sizes(size)
    ranked = [contest.all(s, level) for s in sizes]
    winners = [(s, found[0].algorithm) for s, found in zip(sizes, ranked, strict=True)]
    payload = {
        "cluster": fabric.name,
        "collective": collective,
        "ranks": placed.num_ranks,
        "level": level,
        "ignores": list(dict.fromkeys(text for found in ranked for e in found for text in e.ignores)),
        "winners": [{"size_bytes": s, "algorithm": name} for s, name in winners],
        "crossovers": [
            {"size_bytes": c.size_bytes, "from": c.before, "to": c.after} for c in crossovers(winners, contest, level)
        ],
        "rows": [estimate.row() for found in ranked for estimate in found],
    }
    emit(payload, json, lambda console: _show(console, payload))


def _show(console: Console, payload: dict[str, Any]) -> None:
    from syncline import units
    from syncline.report.simulation_text import contest_table

    names = list(dict.fromkeys(row["algorithm"] for row in payload["rows"]))
    lines = []
    for winner in payload["winners"]:
        mine = [row for row in payload["rows"] if row["size_bytes"] == winner["size_bytes"]]
        lines.append((winner["size_bytes"], {r["algorithm"]: r["time_s"] for r in mine}, winner["algorithm"]))
    console.print(f"{payload['collective']} on {payload['cluster']}: {payload['ranks']:,} ranks; * wins")
    console.print(contest_table(names, lines))
    console.print()
    for change in payload["crossovers"]:
        console.print(f"from {units.show_size(change['size_bytes'])} on: {change['to']} beats {change['from']}")
    console.print(f"{payload['level']} level; ignores {', '.join(payload['ignores'])}")
