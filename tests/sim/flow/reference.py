"""Slow plain-Python twins of the native loops, written to be believed: tests compare the two on random cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

INFINITY = math.inf


def max_min_rates(
    capacity_Bps: Sequence[float],
    paths: Sequence[Sequence[int]],
    weight: Sequence[float] | None = None,
    cap_Bps: Sequence[float] | None = None,
) -> list[float]:
    """Return max-min fair rates by progressive filling, the textbook way, in O(flows x links) a round.

    All flows rise together, each in proportion to its weight. When a link is full or a flow reaches its cap, the
    flows concerned stop; the rest go on rising. Here every sum is made afresh in every round.
    """
    weights = [1.0] * len(paths) if weight is None else list(weight)
    caps = [INFINITY] * len(paths) if cap_Bps is None else list(cap_Bps)
    crossings = [Counter(path) for path in paths]
    rates: dict[int, float] = {}
    while len(rates) < len(paths):
        active = [flow for flow in range(len(paths)) if flow not in rates]
        full_at = {
            link: _level_when_full(link, capacity, active, rates, crossings, weights)
            for link, capacity in enumerate(capacity_Bps)
        }
        stops_at = {flow: min((full_at[link] for link in crossings[flow]), default=INFINITY) for flow in active}
        level = min(min(stops_at[flow], caps[flow] / weights[flow]) for flow in active)
        for flow in active:
            if caps[flow] / weights[flow] <= level:
                rates[flow] = caps[flow]
            elif stops_at[flow] <= level:
                rates[flow] = weights[flow] * level
    return [rates[flow] for flow in range(len(paths))]


def _level_when_full(
    link: int,
    capacity_Bps: float,
    active: Sequence[int],
    rates: dict[int, float],
    crossings: Sequence[Counter[int]],
    weights: Sequence[float],
) -> float:
    used = math.fsum(rate * crossings[flow][link] for flow, rate in rates.items())
    rising = math.fsum(weights[flow] * crossings[flow][link] for flow in active)
    return max(0.0, capacity_Bps - used) / rising if rising else INFINITY
