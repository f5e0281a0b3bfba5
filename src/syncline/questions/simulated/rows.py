"""One size of a collective, as every level states it."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.questions.simulated.figures import PacketFigures
from syncline.sim.collective.price import CollectivePrice
from syncline.sim.flow.estimate import Estimate


@dataclass(frozen=True)
class DifferencePart:
    """A part of the difference between packets and flows: seconds, and their share of the flow level's time."""

    s: float
    share: float


@dataclass(frozen=True)
class BestSchedule:
    """The best known schedule of one size, priced by its pipeline. NCCL does not run it; `schedule` exports it."""

    time_s: float
    busbw_Bps: float
    name: str
    chunks: int
    limiting_link: str
    method: str


@dataclass(frozen=True)
class CollectiveRow:
    """One size. Bandwidths are those of nccl-tests; a level leaves out what it does not know."""

    size_bytes: int
    time_s: float
    algbw_Bps: float
    busbw_Bps: float
    algorithm: str
    limiting_link: str
    method: str
    exact: bool
    wire_Bps: float | None = None
    chunks: int | None = None
    utilisation: float | None = None
    bound_s: float | None = None
    low_s: float | None = None
    """The library's time: the 90 % interval, then the 50 % interval."""
    high_s: float | None = None
    low50_s: float | None = None
    high50_s: float | None = None
    believed_s: float | None = None
    """What NCCL's own tuner believes."""
    fastest: str | None = None
    fastest_s: float | None = None
    library: str | None = None
    """Whose time this is: NCCL, RCCL, gloo, mpi; None where a schedule was simulated."""
    channels: int | None = None
    best: BestSchedule | None = None
    flow_time_s: float | None = None
    """Packet level: the flow level's time, the ratio to it, and why they differ."""
    over_flow: float | None = None
    why: tuple[str, ...] = ()
    difference: dict[str, DifferencePart] | None = None
    packet: PacketFigures | None = None


def row_of_library(found: CollectivePrice, *, with_best: bool) -> CollectiveRow:
    """Return the row of what the job's library takes, the best known schedule beside it where that is wanted."""
    time = found.nccl
    assert time is not None
    return CollectiveRow(
        found.size_bytes, time.time_s, time.algbw_Bps, time.busbw_Bps, time.algorithm, time.limiting_link, "nccl",
        False, wire_Bps=time.wire_Bps, utilisation=time.utilisation,
        bound_s=found.bound_s if with_best else time.bound_s, low_s=time.low_s,
        high_s=time.high_s, low50_s=time.low50_s, high50_s=time.high50_s, believed_s=time.believed_s,
        fastest=time.fastest, fastest_s=time.fastest_s, library=time.library, channels=time.channels,
        best=best_of(found.best) if with_best else None,
    )  # fmt: skip


def best_of(found: Estimate) -> BestSchedule:
    """Return the best known schedule as a row has it."""
    return BestSchedule(
        found.time_s, found.busbw_Bps, found.algorithm, found.chunks, found.limiting_link_name, found.method
    )


def row_of(found: Estimate) -> CollectiveRow:
    """Return the row of a closed form or of simulated flows."""
    return CollectiveRow(
        found.size_bytes, found.time_s, found.algbw_Bps, found.busbw_Bps, found.algorithm, found.limiting_link_name,
        found.method, found.exact, wire_Bps=found.wire_Bps, chunks=found.chunks, utilisation=found.utilisation,
        bound_s=found.bound_s,
    )  # fmt: skip
