"""Bounds: what no execution of a program can beat.

* bandwidth: the busiest link must carry its bytes at its rate;
* latency: the longest chain of rounds, every transfer at the rate it has alone (contention only makes it later);

Both are lower bounds, so the larger is one too. They see no contention but on the busiest link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.sim.flow.maxplus import max_plus_end_s
from syncline.sim.flow.routing import Floats
from syncline.sim.flow.wired import WiredProgram


@dataclass(frozen=True)
class TimeBounds:
    """Lower bounds of one program's time, and the link behind the first."""

    bandwidth_s: float
    chain_s: float
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
    return TimeBounds(bandwidth, chain, link)


def link_need_s(carried_bytes: Floats, capacity_Bps: Floats) -> Floats:
    """Return how long each link needs for what it carries."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(carried_bytes > 0, carried_bytes / capacity_Bps, 0.0)


def busiest(need_s: Floats) -> int:
    """Return the link that needs longest; of links that need the same (to rounding) the first."""
    return int(np.argmax(need_s >= need_s.max() * (1 - 1e-9))) if len(need_s) else -1
