"""Which algorithm wins at which size on a cluster, and where does the lead change?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.program import place
from syncline.program.levels import Level, nest
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.simulate import Sizes, assumptions, read_sizes
from syncline.questions.simulated.algorithms import AlgorithmChoice
from syncline.sim.candidates import NAMES
from syncline.sim.flow.estimate import Estimate
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.sweep import Crossover, crossovers
from syncline.sim.transport import transport_on


@dataclass(frozen=True, eq=False)
class AlgorithmComparison(Answer):
    """Every algorithm at every size: the fastest first, and the sizes at which the winner changes."""

    collective: str
    fabric: Fabric = field(repr=False)
    num_ranks: int
    level: str
    sizes: tuple[int, ...]
    ranked: tuple[tuple[Estimate, ...], ...] = field(repr=False)
    crossovers: tuple[Crossover, ...] = ()
    levels: tuple[Level, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def winners(self) -> tuple[tuple[int, str], ...]:
        """Size and the fastest algorithm there."""
        return tuple((size, found[0].algorithm) for size, found in zip(self.sizes, self.ranked, strict=True))

    @property
    def ignores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for found in self.ranked for one in found for text in one.ignores))

    def to_json(self) -> JsonObject:
        return {
            "cluster": self.fabric.name,
            "collective": self.collective,
            "ranks": self.num_ranks,
            "levels": [{"name": part.name, "size": part.size} for part in self.levels],
            "level": self.level,
            "ignores": list(self.ignores),
            "assumed": list(self.assumed),
            "winners": [
                {"size_bytes": size, "algorithm": found[0].algorithm, "chunks": found[0].chunks}
                for size, found in zip(self.sizes, self.ranked, strict=True)
            ],
            "crossovers": [{"size_bytes": c.size_bytes, "from": c.before, "to": c.after} for c in self.crossovers],
            "rows": [estimate.row() for found in self.ranked for estimate in found],
        }


def compare_algorithms(
    cluster: Cluster,
    collective: str = "allreduce",
    size: Sizes = "1KiB..4GiB",
    *,
    level: str = "flow",
    routing: str = "auto",
    transport: str = "auto",
    placement: str = "auto",
    ranks: int | None = None,
    seed: int = 0,
    cross_rail: str = "fabric",
    chunks: int = 0,
    priced: Callable[[int, int], None] = lambda done, total: None,
) -> AlgorithmComparison:
    """Price every algorithm at every size and say who wins where; `priced` hears how many sizes are done of how many.

    >>> compare_algorithms("h100-64-rail", "allreduce", "1KiB..2KiB", ranks=16).sizes
    (1024, 2048)
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
    contest = entry.contest(NAMES[collective], placed, network)
    sizes = tuple(read_sizes(size))
    ranked: tuple[tuple[Estimate, ...], ...] = ()
    for each in sizes:
        ranked += (tuple(contest.all(each, level)),)
        priced(len(ranked), len(sizes))
    winners = [(s, found[0].algorithm) for s, found in zip(sizes, ranked, strict=True)]
    changes = tuple(crossovers(winners, contest, level))
    assumed = tuple(assumptions(fabric, transport, network.options.routing))
    levels = nest(placed).levels
    return AlgorithmComparison(collective, fabric, placed.num_ranks, level, sizes, ranked, changes, levels, assumed)
