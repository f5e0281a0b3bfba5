"""Which algorithm wins at which size on a cluster, and where does the lead change?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from syncline.describe.progress import Meter, Progress
from syncline.errors import UsageError
from syncline.program import place
from syncline.program.levels import nest
from syncline.questions.answer import Answer, Parameter, question
from syncline.questions.inputs import ClusterOption, built
from syncline.questions.simulated.algorithms import AlgorithmChoice
from syncline.questions.simulated.rows import CollectiveRow, row_of
from syncline.questions.simulated.sweep import (
    ChunksOption,
    CrossRailOption,
    PlacementOption,
    RanksOption,
    RoutingOption,
    SeedOption,
    SizeOption,
    TransportOption,
    assumptions,
    read_sizes,
)
from syncline.sim.candidates import NAMES
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.sweep import crossovers, families
from syncline.sim.transport import transport_on


@dataclass(frozen=True)
class FabricLevel:
    """A level of the fabric, and how many of the one below it holds."""

    name: str
    size: int


@dataclass(frozen=True)
class Winner:
    """The fastest algorithm at a size."""

    size_bytes: int
    algorithm: str
    chunks: int


@dataclass(frozen=True)
class LeadChange:
    """The size from which on another algorithm wins."""

    size_bytes: int
    before: str
    after: str


@dataclass(frozen=True)
class AlgorithmComparison(Answer):
    """Every algorithm at every size: the fastest first, and the sizes at which the winner changes."""

    schema_name: ClassVar[str] = "simulate-compare"

    cluster: str
    collective: str
    ranks: int
    levels: tuple[FabricLevel, ...]
    level: str
    winners: tuple[Winner, ...]
    crossovers: tuple[LeadChange, ...]
    rows: tuple[CollectiveRow, ...]
    assumed: tuple[str, ...]
    ignores: tuple[str, ...]


@question(
    "syncline simulate compare --cluster h100-64-rail",
    "syncline simulate compare --cluster cluster.yaml --collective alltoall --size 1MiB..1GiB --json",
)
def compare_algorithms(
    cluster: ClusterOption,
    collective: Annotated[
        str, Parameter("allreduce, allgather, reducescatter, broadcast, reduce, alltoall.", names=("--collective",))
    ] = "allreduce",
    size: SizeOption = "1KiB..4GiB",
    *,
    level: Annotated[str, Parameter("flow or analytic.")] = "flow",
    routing: RoutingOption = "auto",
    transport: TransportOption = "auto",
    placement: PlacementOption = "auto",
    ranks: RanksOption = None,
    seed: SeedOption = 0,
    cross_rail: CrossRailOption = "fabric",
    chunks: ChunksOption = 0,
    progress: Progress | None = None,
) -> AlgorithmComparison:
    """Price every algorithm at every size: which wins where.

    >>> [winner.size_bytes for winner in compare_algorithms("h100-64-rail", size="1KiB..2KiB", ranks=16).winners]
    [1024, 2048]
    """
    if collective not in NAMES:
        raise UsageError(f'no collective is called "{collective}".', hint=f"One of: {', '.join(NAMES)}.")
    if level not in ("analytic", "flow"):
        raise UsageError(f'no level of simulation is called "{level}".', hint="One of: analytic, flow.")
    entry = AlgorithmChoice(chunks=chunks)
    entry.check()
    fabric = built(cluster)
    transport = transport_on(transport, fabric)
    options = NetworkOptions(routing=routing, seed=seed, transport=transport, cross_rail=cross_rail)  # type: ignore[arg-type]
    network = FlowNetwork(fabric, options)
    placed = place(placement, fabric, ranks)
    contest = families(NAMES[collective], placed, network, chunks=chunks)
    sizes = read_sizes(size)
    meter = Meter(progress)
    meter.expect(len(sizes))
    ranked = []
    for each in sizes:
        ranked.append(contest.all(each, level))
        meter.advance()
    winners = [Winner(s, found[0].algorithm, found[0].chunks) for s, found in zip(sizes, ranked, strict=True)]
    changes = crossovers([(one.size_bytes, one.algorithm) for one in winners], contest, level)
    return AlgorithmComparison(
        fabric.name,
        collective,
        placed.num_ranks,
        tuple(FabricLevel(part.name, part.size) for part in nest(placed).levels),
        level,
        tuple(winners),
        tuple(LeadChange(change.size_bytes, change.before, change.after) for change in changes),
        tuple(row_of(estimate) for found in ranked for estimate in found),
        tuple(assumptions(fabric, transport, network.options.routing)),
        tuple(dict.fromkeys(text for found in ranked for one in found for text in one.ignores)),
    )
