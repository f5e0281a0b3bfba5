"""Many sizes, one or many algorithms: the table that `syncline simulate` prints, and who wins where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from syncline.codec.codec import RAW
from syncline.errors import SimulationError
from syncline.program import Placement, lower
from syncline.program.levels import nest
from syncline.schedule import Kind, Proved, verify
from syncline.sim.best.best import BestKnown, BestSearch
from syncline.sim.candidates import find, proved
from syncline.sim.flow.estimate import ANALYTIC_IGNORES, Estimate, estimate
from syncline.sim.flow.routing import Floats, FlowNetwork
from syncline.sim.flow.wired import WiredProgram, fingerprint, wire
from syncline.sim.pipeline import (
    FEW_FLOWS,
    MAX_FLOWS,
    ChunkCosts,
    beside,
    pace,
    wired_in_pieces,
)

BY_FORMULA = "pipeline"
"""How an estimate was found that nothing was simulated for."""

BEST_IGNORES = ("queues and packet loss", "ECMP collisions", "host jitter", "reduction arithmetic")


@dataclass(frozen=True, eq=False)
class Contest:
    """Algorithms on one network, ready to be priced at any size.

    `chunks` is into how many chunks each algorithm cuts the buffer for its pipeline: 0 leaves that to the size. With a
    `search`, the best is the best known schedule (`sim/best/`), priced by its pipeline; its program is built when it
    is asked for.
    """

    network: FlowNetwork
    wired: dict[str, WiredProgram]
    chunks: int = 1
    search: BestSearch | None = None
    windows: bool = True
    """Whether the chunks of a connection follow each other in a window; packets are sent round by round."""
    _paces: dict[str, ChunkCosts] = field(default_factory=dict)
    _cut: dict[tuple[str, int], WiredProgram] = field(default_factory=dict)
    _last: dict[tuple[bytes, int, int, str], Estimate] = field(default_factory=dict)
    """Estimates by program: two names for the same flows on the same connections are priced once."""
    _known: dict[tuple[str, int], BestKnown] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        schedules: dict[str, Proved],
        placement: Placement,
        network: FlowNetwork,
        *,
        chunks: int = 1,
    ) -> Contest:
        """Return the contest of these schedules on one placement."""
        if not schedules:
            raise SimulationError(
                f"no algorithm suits this collective on {placement.num_ranks:,} ranks.",
                hint="An all-to-all is simulated pair by pair, up to 2,048 ranks: give fewer with --ranks.",
            )
        wired = {name: wire(lower(s, placement, RAW), network) for name, s in schedules.items()}
        return cls(network, wired, chunks)

    def one(self, name: str, size_bytes: int, level: str = "flow") -> Estimate:
        """Return one algorithm's estimate, with as many chunks as suit the size (at most `MAX_CHUNKS`)."""
        if self.chunks:
            return self._priced(name, self.chunks, size_bytes, level)
        costs = self._pace(name)
        found = self._priced(name, costs.guess(size_bytes), size_bytes, level)
        if costs.flows > FEW_FLOWS or not costs.overlaps:
            return found  # of large programs the guess must do
        for way in (1, -1):
            while chunks := beside(found.chunks, way):
                other = self._priced(name, chunks, size_bytes, level)
                if other.time_s >= found.time_s:
                    break
                found = other
        return found

    def uncut(self, found: Estimate) -> WiredProgram:
        """Return the program of an estimate, before it is cut in chunks.

        Raises:
            SimulationError: NCCL's own algorithm is the best: it has no flows here.
        """
        name, search = found.algorithm, self.search
        if name not in self.wired and search is not None:
            known = self._known.get((name, found.size_bytes))
            schedule = replace(known, chunks=1).schedule() if known is not None else None
            if schedule is None:
                raise SimulationError(f"{name} is the library's own algorithm: there is no schedule of it here.",
                                      hint="Name a family with `algorithm`.")  # fmt: skip
            # Shares differ by size: what is kept is of one size.
            self.wired[name] = wire(lower(verify(schedule), search.placement), self.network)
        return self.wired[name]

    def at(self, found: Estimate) -> WiredProgram:
        """Return the program that an estimate of this contest is of, in as many of its chunks as can be simulated."""
        whole = self.uncut(found)
        flows = sum(len(phase) for lane in whole.lanes for phase in lane.phases)
        chunks = min(found.chunks, max(1, MAX_FLOWS // max(1, flows))) if self.search is not None else found.chunks
        return self._pieces(found.algorithm, chunks)

    def executed(self, found: Estimate) -> Estimate:
        """Return an estimate as flows have it: of the best known schedule, in few chunks, executed."""
        if self.search is None:
            return found
        self.uncut(found)
        tried = (chunks for chunks in (1, 2, 4, 8) if chunks <= found.chunks)
        return min((self._priced(found.algorithm, chunks, found.size_bytes, "flow") for chunks in tried),
                   key=lambda e: e.time_s)  # fmt: skip

    def utilisation(self, found: Estimate) -> Floats:
        """Return the share of its line rate that every link of the fabric carries on average."""
        if not len(found.link_bytes):
            found = replace(found, link_bytes=self.uncut(found).link_bytes(found.size_bytes))
        return found.link_utilisation(self.network)

    def best(self, size_bytes: int, level: str = "flow") -> Estimate:
        """Return the fastest estimate."""
        if self.search is not None:
            return self._best_known(self.search, size_bytes, level)
        return self.all(size_bytes, level)[0]

    def _best_known(self, search: BestSearch, size_bytes: int, level: str) -> Estimate:
        known = search.at(size_bytes)
        chunks = self.chunks or known.chunks
        self._known[known.name, size_bytes] = known
        bare = level == "analytic"
        time_s = known.bound_s if bare else known.time_s
        used = min(1.0, known.busiest_s / time_s) if time_s > 0 else 0.0
        line, name = 0.0, ""
        if known.link >= 0:
            line, name = float(self.network.capacity_Bps[known.link]), self.network.link_name(known.link)
        return Estimate(
            size_bytes, time_s, known.name, search.kind, search.placement.num_ranks,
            "bound" if bare else BY_FORMULA, False, known.link, name, used * line,
            used * self.network.carrier.efficiency, np.zeros(0),
            ANALYTIC_IGNORES if bare else BEST_IGNORES, chunks, known.bound_s,
        )  # fmt: skip

    def all(self, size_bytes: int, level: str = "flow") -> list[Estimate]:
        """Return every algorithm's estimate, fastest first."""
        return sorted((self.one(name, size_bytes, level) for name in self.wired), key=lambda e: e.time_s)

    def _pace(self, name: str) -> ChunkCosts:
        if name not in self._paces:
            self._paces[name] = pace(self._spread(self.wired[name]))
        return self._paces[name]

    def _spread(self, wired: WiredProgram) -> WiredProgram:
        """Return the program to guess by: where switches choose, one over all paths, not on the first of them."""
        return wire(wired.program, self._sprayed) if self.network.options.routing == "adaptive" else wired

    @cached_property
    def _sprayed(self) -> FlowNetwork:
        return self.network.sprayed()

    def _priced(self, name: str, chunks: int, size_bytes: int, level: str) -> Estimate:
        key = (fingerprint(self.wired[name]), chunks, size_bytes, level)
        if key not in self._last:
            self._last[key] = estimate(self._pieces(name, chunks), self.network, size_bytes, level=level)
        return replace(self._last[key], algorithm=name, chunks=chunks)

    def _pieces(self, name: str, chunks: int) -> WiredProgram:
        if chunks == 1:
            return self.wired[name]
        if (name, chunks) not in self._cut:
            cut = wired_in_pieces(self.wired[name], chunks)
            self._cut[name, chunks] = cut if self.windows else replace(cut, unit=None, pieces=1)
        return self._cut[name, chunks]


def contest_of(algorithm: str, kind: Kind, placed: Placement, network: FlowNetwork, *, chunks: int = 0) -> Contest:
    """Return the contest of one family, or the best known schedule (`auto`), ready to be priced."""
    if algorithm == "auto":
        return Contest(network, {}, chunks, BestSearch(kind, placed, network))
    found = find(network.fabric, kind, placed.num_ranks, algorithm, chunks=1, nested=nest(placed))
    return Contest.of({algorithm: found}, placed, network, chunks=chunks)


def families(kind: Kind, placed: Placement, network: FlowNetwork, *, chunks: int = 0) -> Contest:
    """Return the contest of all families that do a collective on these ranks."""
    return Contest.of(
        proved(network.fabric, kind, placed.num_ranks, chunks=1, nested=nest(placed)), placed, network, chunks=chunks
    )


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
