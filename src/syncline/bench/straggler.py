"""Stragglers: ranks that are slower than their fellows, again and again, from a table of per-rank times.

A rank counts as a straggler when its excess over the median of all ranks, taken over the repetitions, stands clear of
what ranks differ by anyway (the spread of the others) and is more than a share of the time itself. Both must hold: on
a quiet machine the spread is so small that a harmless microsecond would stand out, on a noisy one a share alone would
flag half of the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.describe.guide import cite
from syncline.finding import Action, Finding, Severity

Floats = NDArray[np.float64]
SPREADS = 5.0
LEAST_SHARE = 0.10
ALWAYS, ALWAYS_OF = 0.2, 5
"""A rank that is late even in this quantile of so many repetitions is late always."""
LEAST_TIMES = 0.7
"""Share of the repetitions in which the rank must be among the slow: a straggler is steady, a hiccup is not."""

_NORMAL = 1.4826  # median absolute deviation to standard deviation, for normal noise


@dataclass(frozen=True)
class SlowRank:
    """One rank, how much later it is than the median rank, and how often."""

    rank: int
    excess_s: float
    typical_s: float
    share_of_times: float
    confidence: float


def stragglers(times_s: Floats, *, least_s: float = 0.0) -> list[SlowRank]:
    """Return the ranks that stand out in a table of ranks x repetitions, the worst first.

    `least_s` is an excess nobody cares about.
    """
    table = np.asarray(times_s, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 3 or not table.shape[1]:
        return []
    middle = np.median(table, axis=0)
    over = table - middle
    excess = np.median(over, axis=1)
    typical = float(np.median(middle))
    noise = _NORMAL * float(np.median(np.abs(excess - np.median(excess))))
    within = _NORMAL * np.median(np.abs(over - excess[:, None]), axis=1) / np.sqrt(table.shape[1])
    spread = np.hypot(noise, within)
    found = []
    for rank in np.argsort(-excess):
        least = max(LEAST_SHARE * typical, least_s)
        width = float(spread[rank])
        if table.shape[1] >= ALWAYS_OF and np.quantile(over[rank], ALWAYS) > max(SPREADS * noise, least):
            width = noise  # late by very different amounts, and always late: its own spread is no excuse
        limit = max(SPREADS * width, least)
        often = float((over[rank] > limit / 2).mean())
        if excess[rank] > limit and often >= LEAST_TIMES:
            clear = 1 - min(1.0, SPREADS * width / float(excess[rank])) / 2
            repeats = table.shape[1]
            sure = round(clear * often * repeats / (repeats + 1), 2)  # one repetition shows nothing steady
            found.append(SlowRank(int(rank), float(excess[rank]), typical, often, sure))
    return found


def findings(found: list[SlowRank], names: list[str], what: str) -> list[Finding]:
    """Return stragglers as findings; `names` are the hosts of the ranks, `what` the time that stands out."""
    return [
        Finding(
            "bench.straggler.rank", Severity.WARNING, f"rank {one.rank} on {names[one.rank]}",
            f"{what} is {units.show_time(one.excess_s)} more than the median rank's "
            f"{units.show_time(one.typical_s)}, in {100 * one.share_of_times:.0f} % of the repetitions",
            "as the other ranks", (), "the collective waits for its slowest rank",
            "Look at that host: CPU frequency, other load, PCIe width, a GPU that throttles.",
            cite("method/bench"), Action.INSPECT, one.confidence,
        )
        for one in found
    ]  # fmt: skip
