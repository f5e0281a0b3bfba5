"""Many sizes, one or many algorithms: the table that `syncline simulate` prints, and who wins where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from syncline.codec.codec import RAW, Codec
from syncline.errors import SimulationError
from syncline.program import Placement, lower
from syncline.schedule import Kind, Proved
from syncline.sim.analytic import bounds
from syncline.sim.estimate import Estimate, estimate
from syncline.sim.fold import barrier_s
from syncline.sim.routing import Network
from syncline.sim.wired import Wired, wire


@dataclass(frozen=True, eq=False)
class Contest:
    """Algorithms on one network, ready to be priced at any size."""

    network: Network
    wired: dict[str, Wired]

    @classmethod
    def of(cls, schedules: dict[str, Proved], placement: Placement, network: Network, codec: Codec = RAW) -> Contest:
        """Return the contest of these schedules on one placement."""
        if not schedules:
            raise SimulationError(
                f"no algorithm suits this collective on {placement.num_ranks:,} ranks.",
                hint="An all-to-all is simulated pair by pair, up to 2,048 ranks: give fewer with --ranks.",
            )
        return cls(network, {name: wire(lower(s, placement, codec), network) for name, s in schedules.items()})

    def one(self, name: str, size_bytes: int, level: str = "flow") -> Estimate:
        """Return one algorithm's estimate."""
        return replace(estimate(self.wired[name], self.network, size_bytes, level=level), algorithm=name)

    def best(self, size_bytes: int, level: str = "flow") -> Estimate:
        """Return the fastest estimate. An algorithm whose lower bound is later than the best so far is not simulated.

        The first to be simulated is the one that is fastest with a barrier after every round: often the winner.
        """
        lower_s = {name: bounds(wired, size_bytes).lower_s for name, wired in self.wired.items()}
        guess = min(self.wired, key=lambda name: barrier_s(self.wired[name], size_bytes))
        best: Estimate | None = None
        for name in (guess, *sorted(set(lower_s) - {guess}, key=lower_s.__getitem__)):
            if best is not None and lower_s[name] >= best.time_s:
                break
            found = self.one(name, size_bytes, level)
            if best is None or found.time_s < best.time_s:
                best = found
        assert best is not None
        return best

    def all(self, size_bytes: int, level: str = "flow") -> list[Estimate]:
        """Return every algorithm's estimate, fastest first."""
        return sorted((self.one(name, size_bytes, level) for name in self.wired), key=lambda e: e.time_s)


@dataclass(frozen=True)
class Crossover:
    """From this size on another algorithm wins."""

    size_bytes: int
    before: str
    after: str


def crossovers(winners: Sequence[tuple[int, str]], contest: Contest, level: str = "flow") -> list[Crossover]:
    """Return where the winner changes, to within 2 %, by bisection between the sizes of a sweep."""
    found = []
    for (low, first), (high, second) in pairwise(winners):
        if first == second:
            continue
        while high - low > max(1, low // 50):
            middle = (low + high) // 2
            if contest.one(first, middle, level).time_s <= contest.one(second, middle, level).time_s:
                low = middle
            else:
                high = middle
        found.append(Crossover(high, first, second))
    return found


def sizes_between(low: int, high: int, factor: int = 2) -> list[int]:
    """Return low, 2 low, 4 low ... up to high, as nccl-tests steps."""
    if not 0 < low <= high or factor < 2:
        raise SimulationError(
            f"sizes go from {low} to {high} in steps of x{factor}: give them rising, and a factor above 1."
        )
    found = [low]
    while found[-1] * factor <= high:
        found.append(found[-1] * factor)
    return found


def kind_name(kind: Kind) -> str:
    """Return the collective as nccl-tests calls it."""
    return kind.value.replace("_", "")
