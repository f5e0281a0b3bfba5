"""What a collective should take on this topology, how sure that is, and which link says so.

    oracle = Oracle(fabric, placement, NetworkOptions(transport="tcp"))
    oracle.program(program, sizes)            # a program of syncline's own: the flow model
    oracle.vendor(Kind.ALL_REDUCE, sizes, backend="nccl")       # the model of NCCL

An expectation is an interval, never a point alone: a verdict that is harder than the model is sure would be noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.errors import SimulationError, SynclineError
from syncline.fabric import Fabric
from syncline.program import Placement, Program, place
from syncline.schedule import Kind
from syncline.sim.collective.executed import ProgramPricer, ProgramTime
from syncline.sim.collective.price import CollectivePricer, LibraryTime
from syncline.sim.flow.routing import NetworkOptions
from syncline.sim.nccl.describe import NcclSoftware

Z_75, Z_95 = 0.6745, 1.645
"""Quantiles of the normal distribution."""
STALLED = 1.5
"""Times the prediction: what published systems stay below is not cut further."""


@dataclass(frozen=True)
class Expectation(ProgramTime):
    """A time with what a verdict needs: the choice that was predicted, and what a system in order stays below."""

    chosen: str = ""
    """The algorithm and protocol that the library is predicted to choose at this size."""
    note: str = ""
    healthy_s: float = 0.0
    """What a system in order usually stays below, where the interval is wider than that; 0: its upper end."""

    @property
    def usual_s(self) -> float:
        """The longest that a system in order usually takes."""
        return min(self.healthy_s or self.high_s, self.high_s)

    @property
    def origin(self) -> str:
        """Where the prediction comes from, with what was chosen at this size."""
        return "; ".join(filter(None, [", ".join(filter(None, [self.source, self.chosen])), self.note]))

    def wire_Bps(self, time_s: float) -> float:
        """Return what the limiting link carried if the collective took `time_s`."""
        return self.link_bytes / time_s if time_s > 0 else 0.0

    def to_json(self) -> JsonObject:
        """Return the expectation as plain values."""
        return {
            "time_s": self.time_s, "low_s": self.low_s, "high_s": self.high_s, "usual_s": self.usual_s,
            "limiting_link": self.link,
            "link_line_Bps": self.line_Bps, "source": self.origin, "ignores": list(self.ignores),
        }  # fmt: skip


class Oracle:
    """Expectations on one cluster, placement and network; a cluster file that was calibrated says more, more surely."""

    def __init__(self, fabric: Fabric, placement: Placement, options: NetworkOptions | None = None) -> None:
        self.fabric = fabric
        self.placement = placement
        self.options = options or NetworkOptions()

    def program(self, program: Program, sizes: Sequence[int]) -> list[Expectation]:
        """Return what a program should take at each size, by the flow model."""
        pricer = ProgramPricer(self.placement, self.options)
        wired = pricer.wired(program)
        return [Expectation(**vars(pricer.at(wired, size))) for size in sizes]

    def vendor(self, kind: Kind, sizes: Sequence[int], *, backend: str) -> list[Expectation]:
        """Return what the backend's own collective should take: the price of the job's library."""
        software: NcclSoftware | None = None if backend in ("nccl", "rccl") else {"library": backend}
        pricer = CollectivePricer(kind, self.placement, software, self.options)
        if pricer.refused:
            raise SimulationError(pricer.refused)
        notes = "; ".join(pricer.assumed)
        return [_expected(priced.nccl, pricer.ignores, notes) for priced in pricer.at(sizes) if priced.nccl]

    def nccl(self, kind: Kind, sizes: Sequence[int], *, num_ranks: int | None = None) -> list[Expectation]:
        """Return what NCCL should take, on the first hosts of the cluster where a number of ranks is given."""
        placed = self.placement if num_ranks is None else place("packed", self.fabric, num_ranks)
        return Oracle(self.fabric, placed, self.options).vendor(kind, sizes, backend="nccl")


def _expected(time: LibraryTime, ignores: tuple[str, ...], note: str) -> Expectation:
    return Expectation(
        time.size_bytes, time.time_s, time.low_s, time.high_s, time.limiting_link, time.wire_Bps * time.time_s,
        time.line_Bps, f"model of {time.library}", ignores, time.algorithm, note, _healthy_s(time),
    )  # fmt: skip


def _healthy_s(row: LibraryTime) -> float:
    """Return what a system in order usually stays below.

    Nine of ten published systems lie below `high_s`, some that stall among them. The middle half does not know those:
    its upper end, carried on as a normal distribution's 95th percentile (but no less than `STALLED`), is a reason to
    look further where that is less. It is no verdict: the model is not that sure.
    """
    if row.high50_s is None:
        return row.high_s
    half = math.log(row.high50_s / row.time_s) / Z_75
    return min(row.high_s, row.time_s * max(STALLED, math.exp(Z_95 * half)))


def expectations(oracle: Oracle | None, program: Program | None, kind: Kind, sizes: Sequence[int], backend: str
                 ) -> tuple[list[Expectation | None], str]:  # fmt: skip
    """Return what each size should take, or nothing and the reason why nothing can be said."""
    if oracle is None:
        return [None] * len(sizes), "no cluster was given (--cluster), so nothing is predicted"
    try:
        found = oracle.vendor(kind, sizes, backend=backend) if program is None else oracle.program(program, sizes)
        return list(found), ""
    except SynclineError as error:
        return [None] * len(sizes), error.message
