"""The price of an all-to-all whose pairs exchange different amounts: what MoE layers and recommenders send.

    found = price_uneven(sent_bytes, place("auto", fabric))
    found.library.time_s, found.straight.time_s, found.bound_s

NCCL has no such operation: frameworks post one send and one receive for each pair, as they do for equal sizes. So the
library's time is that of the equal all-to-all that the fabric can finish as soon: whose busiest GPU, host, rack or site
needs as long for its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.errors import SimulationError
from syncline.program import Placement
from syncline.schedule import Kind, build, verify
from syncline.sim.bound import uneven_bound
from syncline.sim.candidates import MAX_RANKS_DIRECT
from syncline.sim.collective.price import CollectivePricer, LibraryTime
from syncline.sim.flow.estimate import Estimate
from syncline.sim.flow.routing import Floats, FlowNetwork, NetworkOptions
from syncline.sim.sweep import Contest

MOST_UNITS = 1 << 30
"""Relative sizes of a schedule's blocks add up to less than 2^31."""


@dataclass(frozen=True, eq=False)
class UnevenPrice:
    """An uneven all-to-all: the library's time, every pair's message sent straight at flow level, and the bound."""

    mean_bytes: int
    """The mean send buffer: what bandwidths are counted by."""
    equal_bytes: int
    """The send buffer of the equal all-to-all that needs as long."""
    library: LibraryTime | None
    refused: str
    straight: Estimate
    bound_s: float
    contest: Contest


def price_uneven(sent_bytes: Floats, placed: Placement, options: NetworkOptions | None = None) -> UnevenPrice:
    """Return what sending these bytes takes; rank i sends `sent_bytes[i, j]` to rank j.

    Raises:
        SimulationError: the matrix is not one of these ranks, or nothing leaves any of them.
    """
    num = placed.num_ranks
    if sent_bytes.shape != (num, num):
        raise SimulationError(f"{num:,} ranks exchange {num:,} x {num:,} sizes, not {sent_bytes.shape}.")
    if num > MAX_RANKS_DIRECT:
        raise SimulationError(f"pairs of {num:,} ranks are too many to simulate one by one.",
                              hint=f"Give the matrix of at most {MAX_RANKS_DIRECT:,} ranks.")  # fmt: skip
    if not (sent_bytes - np.diag(np.diag(sent_bytes))).any():
        raise SimulationError("no rank sends anything to another.")
    bound = uneven_bound(placed.fabric, sent_bytes, placed.device)
    pricer = CollectivePricer(Kind.ALL_TO_ALL, placed, options=options or NetworkOptions())
    mean = max(1, round(float(sent_bytes.sum()) / num))
    equal = max(num, round(mean * bound.s_per_byte / pricer.bound.s_per_byte))
    contest = _straight(sent_bytes, placed, pricer.network)
    return UnevenPrice(mean, equal, pricer.at([equal])[0].nccl, pricer.refused, contest.best(mean), bound.at(mean),
                       contest)  # fmt: skip


def _straight(sent_bytes: Floats, placed: Placement, network: FlowNetwork) -> Contest:
    total = float(sent_bytes.sum())
    units = np.rint(sent_bytes * min(1.0, MOST_UNITS / total)).astype(np.int64)
    units[sent_bytes > 0] = np.maximum(units[sent_bytes > 0], 1)
    schedule = build("direct", placed.num_ranks, kind=Kind.ALL_TO_ALLV, sizes=tuple(units.ravel().tolist()))
    return Contest.of({"direct": verify(schedule)}, placed, network)
