"""The price of a collective: (operation, bytes, placed ranks, fabric with its faults, software) -> `CollectivePrice`.

    found = price(Kind.ALL_REDUCE, 2**30, place("auto", fabric))
    found.nccl.time_s, found.nccl.low_s, found.nccl.algorithm      # what the job's library takes
    found.best.time_s                                              # the best known schedule; searched when first read
    found.bound_s                                                  # what no execution beats

The library is NCCL, on AMD GPUs RCCL, or what `software` names: `library: gloo` and `mpi` run the ring that they most
resemble, at flow level. Accelerators whose compiler lays out collectives itself (TPUs) have none: `refused` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from syncline.errors import DescriptionError, SimulationError
from syncline.program import Placement
from syncline.schedule import Kind
from syncline.sim.bound import Bound, bound_of
from syncline.sim.collective.executed import ProgramPricer, intervals
from syncline.sim.flow.estimate import Estimate, bus_factor
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.nccl.describe import NcclSoftware, from_placement
from syncline.sim.nccl.graph import search
from syncline.sim.nccl.job import NcclCalibration
from syncline.sim.nccl.predict import IGNORES, NcclPrediction, predict
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.nccl.wire import wires
from syncline.sim.sweep import Contest, contest_of

AS_RING = ("gloo", "mpi")
"""Libraries that are priced as the ring that their collectives most resemble."""


@dataclass(frozen=True)
class LibraryTime:
    """What the job's library takes for one size: interval, choice, and the link that limits it."""

    library: str
    size_bytes: int
    time_s: float
    low_s: float
    high_s: float
    algorithm: str
    limiting_link: str
    wire_Bps: float
    line_Bps: float
    algbw_Bps: float
    busbw_Bps: float
    bound_s: float
    """What no run of this library beats: it sends an all-to-all straight, for one."""
    channels: int | None = None
    low50_s: float | None = None
    high50_s: float | None = None
    believed_s: float | None = None
    fastest: str | None = None
    fastest_s: float | None = None

    @property
    def utilisation(self) -> float:
        """The share of its line rate that the limiting link carries."""
        return self.wire_Bps / self.line_Bps if self.line_Bps else 0.0


@dataclass(frozen=True, eq=False)
class CollectivePrice:
    """One collective of one size: what the library takes, the best known schedule, and what nothing beats."""

    kind: Kind
    size_bytes: int
    num_ranks: int
    nccl: LibraryTime | None
    bound_s: float
    refused: str
    """Why there is no library's time."""
    search: Callable[[int], Estimate] = field(repr=False)

    @cached_property
    def best(self) -> Estimate:
        """The best known schedule, priced by its pipeline: one that NCCL does not run, or NCCL's own where it wins."""
        found, own = self.search(self.size_bytes), self.nccl
        if own is None or own.library in AS_RING or own.time_s >= found.time_s:
            return found
        name = f"{own.library} {own.algorithm}"
        return replace(
            found, time_s=own.time_s, algorithm=name, chunks=1, method="nccl", limiting_link_name=own.limiting_link,
            wire_Bps=own.wire_Bps, utilisation=own.utilisation,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class CollectivePricer:
    """One collective on placed ranks, ready to be priced at any size.

    `contest` holds the schedules that the best is chosen from; `software` is laid over what the cluster file states.
    """

    kind: Kind
    placed: Placement
    software: NcclSoftware | None = None
    options: NetworkOptions = field(default_factory=NetworkOptions)
    calibration: NcclCalibration | None = None
    candidates: Callable[[FlowNetwork], Contest] | None = None

    @cached_property
    def library(self) -> str:
        """The library that the job's collectives are calls of."""
        named = str({**self.placed.fabric.spec.software, **(self.software or {})}.get("library") or "")
        if named in AS_RING:
            return named
        system, _ = self._described
        return "RCCL" if system is not None and system.facts.unverified else "NCCL"

    @cached_property
    def _described(self) -> tuple[NcclSystem | None, str]:
        """The job as NCCL meets it, or why NCCL does not run on these ranks."""
        if self.placed.num_ranks < 2:
            return None, "a collective needs at least two ranks."
        try:
            return from_placement(self.placed, self.software), ""
        except (DescriptionError, SimulationError) as error:
            return None, error.message

    @property
    def refused(self) -> str:
        """Why the library has no time here; empty where it has."""
        return "" if self.library in AS_RING else self._described[1]

    @property
    def system(self) -> NcclSystem:
        """The job as NCCL meets it.

        Raises:
            SimulationError: NCCL does not run on these ranks.
        """
        system, why = self._described
        if system is None:
            raise SimulationError(why)
        return system

    @cached_property
    def network(self) -> FlowNetwork:
        """The network that schedules are executed on."""
        return FlowNetwork(self.placed.fabric, self.options)

    @cached_property
    def contest(self) -> Contest:
        """Every schedule that may be the best."""
        if self.candidates is not None:
            return self.candidates(self.network)
        return contest_of("auto", self.kind, self.placed, self.network)

    @cached_property
    def bound(self) -> Bound:
        """What no execution of this collective beats."""
        devices = np.unique(self.placed.device)
        if self.placed.num_ranks < 2 or len(devices) < self.placed.num_ranks:
            return Bound()
        in_network = not self.refused and self.library not in AS_RING and self.system.collnet
        return bound_of(self.placed.fabric, self.kind, devices, in_network=in_network, to_next=True)

    def prediction(self, sizes: Sequence[int]) -> NcclPrediction:
        """Return NCCL's own choice and time at these sizes."""
        return predict(self.system, self.kind.value, [float(size) for size in sizes], calibration=self.calibration)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the library's time takes for granted."""
        return () if self.refused or self.library in AS_RING else self.prediction([1 << 20]).unverified

    def basis(self, sizes: Sequence[int]) -> tuple[str, ...]:
        """Return which measurements the intervals at these sizes rest on."""
        return () if self.library in AS_RING else self.prediction(sizes).basis

    @property
    def ignores(self) -> tuple[str, ...]:
        """What the library's time leaves out."""
        return IGNORES

    def at(self, sizes: Sequence[int]) -> tuple[CollectivePrice, ...]:
        """Return the price of each size."""
        bounds = self.bound.at(np.asarray(sizes, dtype=np.float64))
        if self.library in AS_RING:
            times: Sequence[LibraryTime | None] = self._as_ring(sizes)
        elif self.refused:
            times = [None] * len(sizes)
        else:
            times = self._nccl(sizes)
        return tuple(
            CollectivePrice(self.kind, size, self.placed.num_ranks, time, float(bound), self.refused, self._best)
            for size, time, bound in zip(sizes, times, bounds.tolist(), strict=True)
        )

    def library_s(self, size_bytes: int) -> float:
        """Return what the job's library takes.

        Raises:
            SimulationError: no library runs there.
        """
        found = self.at([size_bytes])[0]
        if found.nccl is None:
            raise SimulationError(found.refused)
        return found.nccl.time_s

    def _best(self, size_bytes: int) -> Estimate:
        return self.contest.best(size_bytes)

    def _nccl(self, sizes: Sequence[int]) -> list[LibraryTime]:
        system, prediction = self.system, self.prediction(sizes)
        channels = search(system).real_channels
        found = []
        for row, wire in zip(prediction.rows(), wires(prediction, self.placed.fabric, self.placed.device), strict=True):
            line = wire.rate_Bps / wire.utilisation if wire.utilisation else 0.0
            found.append(LibraryTime(
                self.library, row.size_bytes, row.time_s, row.low_s, row.high_s, row.algorithm, wire.link,
                wire.rate_Bps, line, row.algbw_Bps, row.busbw_Bps, row.bound_s, channels, row.low50_s, row.high50_s,
                row.believed_s, row.fastest, row.fastest_s,
            ))  # fmt: skip
        return found

    def _as_ring(self, sizes: Sequence[int]) -> list[LibraryTime]:
        pricer = ProgramPricer(self.placed, self.options)
        wired = pricer.wired(pricer.ring_like(self.kind))
        factor, found = bus_factor(self.kind, self.placed.num_ranks), []
        for size in sizes:
            row = pricer.at(wired, size, widen=float(intervals()["vendor_widen"]))
            algbw = size / row.time_s
            found.append(LibraryTime(
                self.library, size, row.time_s, row.low_s, row.high_s, wired.program.name, row.link,
                row.link_bytes / row.time_s, row.line_Bps, algbw, algbw * factor, float(self.bound.at(size)),
            ))  # fmt: skip
        return found


def price(
    kind: Kind, size_bytes: int, placed: Placement, software: NcclSoftware | None = None,
    options: NetworkOptions | None = None,
) -> CollectivePrice:  # fmt: skip
    """Return what a collective takes on placed ranks: the library's time, the best known schedule, the bound."""
    return CollectivePricer(kind, placed, software, options or NetworkOptions()).at([size_bytes])[0]
