"""Many sizes, one or many algorithms: the table that `syncline simulate` prints, and who wins where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from syncline.codec.codec import RAW, Codec
from syncline.errors import SimulationError
from syncline.program import Placement, lower
from syncline.program.levels import nest
from syncline.schedule import Kind, Proved, Schedule, verify
from syncline.sim.analytic import bounds
from syncline.sim.candidates import find, proved
from syncline.sim.flow.estimate import Estimate, estimate
from syncline.sim.flow.fold import MAX_TOGETHER, most_together
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.flow.wired import WiredProgram, fingerprint, wire
from syncline.sim.pipeline import (
    FEW_FLOWS,
    MAX_CHUNKS,
    USUAL_CHUNKS,
    ChunkCosts,
    beside,
    pace,
    wired_in_pieces,
    wired_in_turns,
)
from syncline.sim.synthesis import SHARED, shared, synthesized

MADE = "synthesized"

WORTH_PRICING = 1.25
"""A pipeline whose quick guess is this much slower than the best so far, or than its guess, is not simulated."""

TURNS = 8
TURN_CHUNKS = (1, 2, 3, 5)
FEWEST_TURNS = 3
MAX_TURN_FLOWS = 50_000
"""Flows of a program in turns that `auto` tries; past this it takes fewer turns."""

POSTED, POSTED_OF_ALL = 0.25, 0.05
"""All turns must be posted in this part of the time in which the longest round arrives, or of the whole."""

TURN_NAMES = 3
"""Algorithms that are tried in turns."""

IDLE = 0.02
"""Turns are tried where they might save this part of the time."""

IN_TURNS = re.compile(r"(?P<name>.+)-in-(?P<turns>[1-9]\d{0,2})-turns")

NOT_IN_TURNS = ("auto", "nccl", "parameter-server")

NEARLY = 1.15
"""Who is so near to the winner is also tried with more and with fewer chunks."""

FAR_BEHIND = 1.5
"""Whose busiest link alone needs this much longer than the winner is not worth the search for its best chunks."""


@dataclass(frozen=True, eq=False)
class Contest:
    """Algorithms on one network, ready to be priced at any size.

    `chunks` is into how many chunks each algorithm cuts the buffer for its pipeline: 0 leaves that to the size. Where
    a round takes long to arrive, `best` also tries algorithms in up to `turns` turns.
    """

    network: FlowNetwork
    wired: dict[str, WiredProgram]
    chunks: int = 1
    turns: int = 1
    _paces: dict[str, ChunkCosts] = field(default_factory=dict)
    _cut: dict[tuple[str, int], WiredProgram] = field(default_factory=dict)
    _last: dict[tuple[bytes, int, int, str], Estimate] = field(default_factory=dict)
    """Estimates by program: two names for the same flows on the same connections are priced once."""

    @classmethod
    def of(
        cls,
        schedules: dict[str, Proved],
        placement: Placement,
        network: FlowNetwork,
        codec: Codec = RAW,
        *,
        chunks: int = 1,
        turns: int = 1,
    ) -> Contest:
        """Return the contest of these schedules on one placement."""
        if not schedules:
            raise SimulationError(
                f"no algorithm suits this collective on {placement.num_ranks:,} ranks.",
                hint="An all-to-all is simulated pair by pair, up to 2,048 ranks: give fewer with --ranks.",
            )
        wired = {name: wire(lower(s, placement, codec), network) for name, s in schedules.items()}
        return cls(network, wired, chunks, turns)

    def one(self, name: str, size_bytes: int, level: str = "flow", *, most: int = MAX_CHUNKS) -> Estimate:
        """Return one algorithm's estimate, with as many chunks as suit the size (at most `most`)."""
        options = self._options(name, size_bytes, most)
        found = min((self._priced(name, c, size_bytes, level) for c in options), key=lambda e: e.time_s)
        return self._refined(found, size_bytes, level, most)

    def _refined(self, found: Estimate, size_bytes: int, level: str, most: int = MAX_CHUNKS) -> Estimate:
        """Return the estimate with more or fewer chunks while that is faster; of large programs the guess must do."""
        name = found.algorithm
        if self.chunks or IN_TURNS.fullmatch(name):
            return found
        costs = self._pace(name)
        if costs.flows > FEW_FLOWS or not costs.overlaps:
            return found
        for way in (1, -1):
            while 0 < (chunks := beside(found.chunks, way)) <= most:
                other = self._priced(name, chunks, size_bytes, level)
                if other.time_s >= found.time_s:
                    break
                found = other
        return found

    def at(self, estimate: Estimate) -> WiredProgram:
        """Return the program that an estimate of this contest is of."""
        return self._pieces(estimate.algorithm, estimate.chunks)

    def best(self, size_bytes: int, level: str = "flow") -> Estimate:
        """Return the fastest estimate. An algorithm whose lower bound is later than the best so far is not simulated.

        The first to be simulated is the one that a quick guess calls the fastest: often the winner.
        """
        entries = [(name, c) for name in self._plain for c in self._options(name, size_bytes)]
        guess = {entry: self._pace(entry[0]).time_s(size_bytes, entry[1]) for entry in entries}
        best: Estimate | None = None
        of_name: dict[str, Estimate] = {}
        for name, chunks in sorted(entries, key=guess.__getitem__):
            if best is not None:
                worth_s = WORTH_PRICING * max(best.time_s, guess[best.algorithm, best.chunks])
                if self._hopeless(name, chunks, size_bytes, guess[name, chunks] > worth_s, best):
                    continue
            found = self._priced(name, chunks, size_bytes, level)
            of_name[name] = min(of_name.get(name, found), found, key=lambda e: e.time_s)
            if best is None or found.time_s < best.time_s:
                best = found
        assert best is not None
        near = [found for found in of_name.values() if found.time_s <= NEARLY * best.time_s]
        best = min((self._refined(found, size_bytes, level) for found in near), key=lambda e: e.time_s)
        return self._in_turns(size_bytes, best) if level == "flow" and not self.chunks else best

    def _in_turns(self, size_bytes: int, best: Estimate) -> Estimate:
        """Return this estimate, or a faster one of those algorithms that may gain most by turns."""
        costs = {name: self._pace(name) for name in self._plain}
        worth = [name for name, cost in costs.items()
                 if max(cost.bandwidth_s(size_bytes), cost.latency_s) < (1 - IDLE) * best.time_s]  # fmt: skip
        tried: dict[bytes, str] = {}
        for name in sorted(worth, key=lambda name: costs[name].in_turns_s(size_bytes)):
            turns = self._turns(name, best.time_s)
            if turns >= FEWEST_TURNS and len(tried) < TURN_NAMES:
                tried.setdefault(fingerprint(self.wired[name]), f"{name}-in-{turns}-turns")
        return min([best, *(self.one(turned, size_bytes) for turned in tried.values())], key=lambda e: e.time_s)

    def _turns(self, name: str, best_s: float) -> int:
        """Return how many turns are worth trying: fewer, or none, where posting their messages takes long.

        Channels post side by side in the model, which is too good where that is what takes the time.
        """
        costs, wired = self._pace(name), self.wired[name]
        post_s = costs.posting_s + costs.rounds * float(self.network.messages.overhead_s.max())
        by_flows = min(MAX_TURN_FLOWS // max(1, costs.flows), MAX_TOGETHER // max(1, most_together(wired)))
        room_s = max(POSTED * costs.round_latency_s, POSTED_OF_ALL * best_s)
        by_posts = room_s / post_s if post_s > 0 else self.turns
        return int(min(self.turns, by_flows, by_posts)) if costs.rounds > 1 else 0

    @cached_property
    def _plain(self) -> tuple[str, ...]:
        """The algorithms as they were given: `wired` grows by what is tried in turns."""
        return tuple(self.wired)

    def all(self, size_bytes: int, level: str = "flow") -> list[Estimate]:
        """Return every algorithm's estimate, fastest first. Who cannot come near the winner is cut in few chunks."""
        best = self.best(size_bytes, level)
        found = [best]
        for name in self._plain:
            if name != best.algorithm:
                far = self._pace(name).bandwidth_s(size_bytes) > FAR_BEHIND * best.time_s
                found.append(self.one(name, size_bytes, level, most=USUAL_CHUNKS if far else MAX_CHUNKS))
        return sorted(found, key=lambda e: e.time_s)

    def _hopeless(self, name: str, chunks: int, size_bytes: int, far: bool, best: Estimate) -> bool:
        if self._pace(name).lower_s(size_bytes, chunks) >= best.time_s:
            return True
        if chunks > 1:
            return far
        return bounds(self.wired[name], size_bytes).lower_s >= best.time_s

    def _options(self, name: str, size_bytes: int, most: int = MAX_CHUNKS) -> list[int]:
        if self.chunks:
            return [self.chunks]
        return [*TURN_CHUNKS] if IN_TURNS.fullmatch(name) else self._pace(name).options(size_bytes, most)

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
        if name not in self.wired and (turned := IN_TURNS.fullmatch(name)):
            self.wired[name] = wired_in_turns(self.wired[turned["name"]], int(turned["turns"]))
        key = (fingerprint(self.wired[name]), chunks, size_bytes, level)
        if key not in self._last:
            self._last[key] = estimate(self._pieces(name, chunks), self.network, size_bytes, level=level)
        return replace(self._last[key], algorithm=name, chunks=chunks)

    def _pieces(self, name: str, chunks: int) -> WiredProgram:
        if chunks == 1:
            return self.wired[name]
        if (name, chunks) not in self._cut:
            self._cut[name, chunks] = wired_in_pieces(self.wired[name], chunks)
        return self._cut[name, chunks]


def contest_of(algorithm: str, kind: Kind, placed: Placement, network: FlowNetwork, *, chunks: int = 0) -> Contest:
    """Return the contest of one family, or of all that could be the fastest (`auto`), ready to be priced."""
    fabric = network.fabric
    made = _made(algorithm, placed, network) if kind is Kind.ALL_REDUCE else {}
    if algorithm in (MADE, *SHARED):
        if algorithm not in made:
            raise SimulationError(
                f"there is nothing to synthesize: {fabric.name} is regular, or this is not an all-reduce.",
                hint="Use auto.",
            )
        schedules = {algorithm: verify(made[algorithm])}
    elif algorithm == "auto":
        schedules = proved(fabric, kind, placed.num_ranks, chunks=1, nested=nest(placed))
        schedules |= {name: verify(schedule) for name, schedule in made.items()}
        return Contest.of(schedules, placed, network, chunks=chunks, turns=TURNS)
    elif turned := IN_TURNS.fullmatch(algorithm):
        if turned["name"] in NOT_IN_TURNS:
            raise SimulationError(
                f"{turned['name']} is not done in turns by name.",
                hint="auto takes turns by itself where they help; name a family to ask for them.",
            )
        plain = contest_of(turned["name"], kind, placed, network, chunks=chunks)
        wired = wired_in_turns(plain.wired[turned["name"]], int(turned["turns"]))
        return Contest(network, {algorithm: wired}, chunks)
    else:
        schedules = {algorithm: find(fabric, kind, placed.num_ranks, algorithm, chunks=1, nested=nest(placed))}
    return Contest.of(schedules, placed, network, chunks=chunks)


def _made(algorithm: str, placed: Placement, network: FlowNetwork) -> dict[str, Schedule]:
    """Return the all-reduces that are made for this fabric, of those asked for."""
    found = shared(placed, network) if algorithm in ("auto", *SHARED) else {}
    if algorithm in ("auto", MADE) and (one := synthesized(placed, network)) is not None:
        found = {MADE: one, **found}
    return found


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
