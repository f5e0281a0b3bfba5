"""The best known schedule of a collective, for every operation, size and fabric.

    best = BestSearch(Kind.ALL_REDUCE, place("auto", fabric)).at(1 << 30)
    best.time_s, best.name, best.chunks
    best.schedule(), best.program()

Plans with equal shares (`levels.py`) are priced first. Where something tells ranks apart (a slow or failed link, sites
or hosts of different size) the shares come from a linear program (`shares.py`). Nothing is simulated; tests execute
what is found at small sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from syncline.errors import SimulationError
from syncline.program import Placement, Program, lower
from syncline.program.levels import nest
from syncline.schedule.collective import Kind
from syncline.schedule.family.families import build
from syncline.schedule.proof.verify import Proved, verify
from syncline.schedule.schedule import Schedule, pipelined
from syncline.sim.best.cells import CellTree, cell_tree
from syncline.sim.best.levels import EqualLoads, costs, plans, straight
from syncline.sim.best.pipeline import PipelineCosts
from syncline.sim.bound import bound_of
from syncline.sim.candidates import proved
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.flow.wired import wire
from syncline.sim.pipeline import ChunkCosts, pace

if TYPE_CHECKING:
    from syncline.sim.best.shares import ShareSearch  # SciPy takes half a second to import

MAX_MESHED = 256
"""Ranks on a torus or dragonfly up to which plans with equal shares are laid on its links."""

_ROOTED = (Kind.BROADCAST, Kind.REDUCE)


@dataclass(frozen=True, eq=False)
class BestKnown:
    """The fastest schedule that is known, priced by its pipeline; `make` builds it, uncut."""

    kind: Kind
    size_bytes: int
    time_s: float
    name: str
    chunks: int
    bound_s: float
    placement: Placement
    make: Callable[[], Schedule]
    link: int = -1
    """The busiest link, and how long it is busy."""
    busiest_s: float = 0.0

    def schedule(self) -> Schedule:
        """Return the schedule, cut in its chunks."""
        return pipelined(self.make(), self.chunks)

    def program(self) -> Program:
        """Return what each rank does, proved."""
        return lower(verify(self.schedule()), self.placement)


class BestSearch:
    """The best known schedules of one collective on one placement, ready to be priced at any size."""

    def __init__(self, kind: Kind, placement: Placement, network: FlowNetwork | None = None, *, root: int = 0) -> None:
        self.kind, self.placement, self.root = kind, placement, root
        self.network = network or FlowNetwork(placement.fabric)
        self.alone = placement.num_ranks < 2 or len(np.unique(placement.device)) < placement.num_ranks
        if not self.alone:
            self.tree = cell_tree(placement, self.network)
            self.loads = EqualLoads.of(self.tree)
            self.plans = list(plans(self.tree, kind))
            self.bound = bound_of(placement.fabric, kind, placement.device, to_next=kind is Kind.SEND_RECV)

    @property
    def alike(self) -> bool:
        """Whether nothing tells ranks apart, so that equal shares, at all levels, are the best."""
        kinds = len(self.tree.insides) == 1 or _same(self.tree)
        every = any(len(plan.shape) == self.tree.depth for plan in self.plans)
        return self.tree.shape is not None and kinds and every and self.tree.lines is None

    @property
    def meshed(self) -> bool:
        """Whether switches are joined in a mesh (torus, dragonfly): there what leaves a cell does not limit alone."""
        facts = self.placement.fabric.facts
        return bool(facts.get("torus_shape") or facts.get("dragonfly_groups"))

    def at(self, size_bytes: int) -> BestKnown:
        """Return the best known schedule for a buffer."""
        if self.alone or size_bytes <= 0:
            make = partial(build, "direct", self.placement.num_ranks, kind=self.kind)
            return BestKnown(self.kind, size_bytes, 0.0, "direct", 1, 0.0, self.placement, make)
        found = [self._on_links(size_bytes)] if self.meshed else [self._equal(size_bytes), self._by_shares(size_bytes)]
        known = [one for one in found if one is not None]
        if not known:
            raise SimulationError(
                f"no schedule is known for {self.kind} on {self.placement.num_ranks:,} ranks.",
                hint="Ask for what NCCL takes.",
            )
        return replace(min(known, key=lambda one: one.time_s), bound_s=self.bound.at(size_bytes))

    def _equal(self, size_bytes: int) -> BestKnown | None:
        """Return the best plan with equal shares; where every pair has data of its own, that sent straight, too."""
        tree, kind, root = self.tree, self.kind, self.root
        priced = [(found := costs(plan, self.loads, size_bytes), found.best(), plan.name,
                   partial(plan.schedule, tree, root)) for plan in self.plans]  # fmt: skip
        if kind in (Kind.ALL_TO_ALL, Kind.SEND_RECV):
            found = straight(tree, kind, size_bytes)
            priced.append((found, (found.time_s(1), 1), "direct", partial(build, "direct", tree.num_ranks, kind=kind)))
        if not priced:
            return None
        used, (time_s, chunks), name, make = min(priced, key=lambda entry: entry[1])
        return BestKnown(kind, size_bytes, time_s, name, chunks, 0.0, self.placement, make, used.link, used.busiest_s)

    @cached_property
    def _laid(self) -> list[tuple[str, ChunkCosts, Callable[[], Schedule]]]:
        """Families and plans laid on the real links of a mesh."""
        makers = {
            name: partial(_schedule_of, one)
            for name, one in proved(
                self.placement.fabric, self.kind, self.placement.num_ranks, chunks=1, nested=nest(self.placement)
            ).items()
        }
        if self.placement.num_ranks <= MAX_MESHED:
            makers |= {plan.name: partial(plan.schedule, self.tree, self.root) for plan in self.plans}
        network = self.network.sprayed()
        return [(name, pace(wire(lower(verify(make()), self.placement), network)), make)
                for name, make in makers.items()]  # fmt: skip

    def _on_links(self, size_bytes: int) -> BestKnown | None:
        best = None
        for name, found, make in self._laid:
            stages = ((found.latency_s, size_bytes * found.alone_s_per_byte, 0.0),)
            used = PipelineCosts(stages, size_bytes * found.busiest_s_per_byte, found.posting_s)
            time_s, chunks = used.best() if found.overlaps else (used.time_s(1), 1)
            if best is None or time_s < best.time_s:
                best = BestKnown(self.kind, size_bytes, time_s, name, chunks, 0.0, self.placement, make,
                                 busiest_s=used.busiest_s)  # fmt: skip
        return best

    @cached_property
    def _shares(self) -> tuple[CellTree, ShareSearch]:
        from syncline.sim.best.shares import ShareSearch

        tree = cell_tree(self.placement, self.network, self.root if self.kind in _ROOTED else None)
        return tree, ShareSearch(tree, self.kind, self.root)

    def _by_shares(self, size_bytes: int) -> BestKnown | None:
        if self.kind not in _SHARED or self.alike:
            return None
        tree, programs = self._shares
        solution = programs.at(size_bytes)
        if solution is None:
            return None

        def make() -> Schedule:
            from syncline.sim.best.leaders import leaders_schedule

            return leaders_schedule(tree, solution, self.kind, self.root)

        return BestKnown(self.kind, size_bytes, solution.time_s, "leaders by shares", solution.chunks, 0.0,
                         self.placement, make, solution.link, solution.busiest_s)  # fmt: skip


def _schedule_of(one: Proved) -> Schedule:
    return one.schedule


_SHARED = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, *_ROOTED)


def _same(tree: CellTree) -> bool:
    first = tree.insides[0]
    return all(np.array_equal(one.out, first.out) and np.array_equal(one.spread, first.spread) for one in tree.insides)
