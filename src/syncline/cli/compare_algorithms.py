"""`syncline compare-algorithms`: which algorithm wins at which size on a cluster, and where the lead changes."""

from __future__ import annotations

from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, examples, progress, tell
from syncline.cli.simulate import Chunks, Cluster, CrossRail, PlacementName, Ranks, Routing, Seed, Size, Transport

EPILOG = examples(
    "syncline compare-algorithms --cluster h100-64-rail",
    "syncline compare-algorithms --cluster cluster.yaml --collective alltoall --size 1MiB..1GiB --json",
)
app = typer.Typer()

CollectiveName = Annotated[str, typer.Option(help="allreduce, allgather, reducescatter, broadcast, reduce, alltoall.")]
Level = Annotated[str, typer.Option(help="flow or analytic.")]


@app.command(epilog=EPILOG)
def compare_algorithms(
    cluster: Cluster,
    collective: CollectiveName = "allreduce",
    size: Size = "1KiB..4GiB",
    level: Level = "flow",
    routing: Routing = "auto",
    transport: Transport = "auto",
    placement: PlacementName = "auto",
    ranks: Ranks = None,
    seed: Seed = 0,
    cross_rail: CrossRail = "fabric",
    chunks: Chunks = 0,
    json: JsonOption = False,
) -> None:
    """Price every algorithm at every size and say who wins where."""
    from syncline.questions.compare_algorithms import compare_algorithms as ask

    with progress() as bar:
        task = bar.add_task("algorithms routed", total=None)

        def priced(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"{done} of {total} sizes priced")

        answer = ask(
            cluster, collective, size, level=level, routing=routing, transport=transport, placement=placement,
            ranks=ranks, seed=seed, cross_rail=cross_rail, chunks=chunks, priced=priced,
        )  # fmt: skip
    tell(answer, json)
