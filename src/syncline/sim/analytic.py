"""Bounds: what no execution of a program can beat, and what no algorithm can.

* bandwidth: the busiest link must carry its bytes at its rate;
* latency: the longest chain of rounds, every transfer at the rate it has alone (contention only makes it later);
* universal: what the collective itself needs, whatever the algorithm: the bytes that must leave or enter one rank.

All three are lower bounds, so their largest is one too. They see no contention but on the busiest link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.schedule import Kind
from syncline.sim.flow.maxplus import max_plus_end_s
from syncline.sim.flow.routing import Floats
from syncline.sim.flow.wired import WiredProgram


@dataclass(frozen=True)
class TimeBounds:
    """Lower bounds of one program's time, and the link behind the first."""

    bandwidth_s: float
    chain_s: float
    universal_s: float
    limiting_link: int

    @property
    def lower_s(self) -> float:
        """The largest of the bounds that hold for this program."""
        return max(self.bandwidth_s, self.chain_s)


def bounds(wired: WiredProgram, size_bytes: float) -> TimeBounds:
    """Return the lower bounds of a program for a buffer of `size_bytes`."""
    need_s = link_need_s(wired.link_bytes(size_bytes), wired.network.capacity_Bps)
    link = busiest(need_s)
    bandwidth = float(need_s.max(initial=0.0))
    chain = float(max_plus_end_s(wired, size_bytes).max(initial=0.0))
    return TimeBounds(bandwidth, chain, universal_s(wired, size_bytes), link)


def link_need_s(carried_bytes: Floats, capacity_Bps: Floats) -> Floats:
    """Return how long each link needs for what it carries."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(carried_bytes > 0, carried_bytes / capacity_Bps, 0.0)


def busiest(need_s: Floats) -> int:
    """Return the link that needs longest; of links that need the same (to rounding) the first."""
    return int(np.argmax(need_s >= need_s.max() * (1 - 1e-9))) if len(need_s) else -1


def universal_s(wired: WiredProgram, size_bytes: float) -> float:
    """Return what the collective needs at one rank that is limited only by the links of its own device.

    In an all-reduce over n ranks each rank must send at least 2(n-1)/n of the buffer (without reducing switches), in a
    reduce-scatter or all-gather (n-1)/n; a broadcast must enter every rank once.
    """
    collective = wired.program.collective
    n = collective.num_ranks
    if n < 2:
        return 0.0
    share = {Kind.ALL_REDUCE: 2 * (n - 1) / n}.get(
        collective.kind, 1.0 if collective.kind in (Kind.BROADCAST, Kind.REDUCE, Kind.SEND_RECV) else (n - 1) / n
    )
    device = wired.program.placement.device
    links = wired.network.fabric.links
    rate = np.zeros(len(wired.network.fabric.devices))
    capacity = wired.network.capacity_Bps[: wired.network.num_links]
    np.add.at(rate, links.src, capacity)
    return float(size_bytes * share * wired.codec.wire_ratio / rate[device].max())


def closed_form_s(rounds: int, sent_max: float, size_bytes: float, latency_s: float, rate_Bps: float) -> float:
    """Return the textbook time: rounds times latency, plus what the busiest rank sends over its rate."""
    return rounds * latency_s + sent_max * size_bytes / rate_Bps
