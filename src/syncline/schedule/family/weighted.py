"""Links and ranks of different speed: shares in proportion to what each can carry.

- `weighted`: one strand of any family a rail, each with a share in proportion to the rail's rate. All rails finish
  together, in the time the sum of the rates allows: S size / sum(rate) where the family sends S per rank.
- `balanced`: ranks of different speed c_r. Rank r owns share x_r of the sum (direct exchange): it sends and gets
  1 + (n-2) x_r, so x_r grows with c_r until all finish together. No all-reduce can beat max(1/c_min, 2(n-1)/sum c):
  everyone must send its data once, and all together must move 2(n-1) buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Collective, Kind, common_weights
from syncline.schedule.counts import counted_cost
from syncline.schedule.family.direct import direct_kernel
from syncline.schedule.kernel import whole
from syncline.schedule.schedule import Schedule, Strand

PARTS = 1 << 20
"""Shares of ranks are whole parts of 2^20: within a millionth of the best."""


@dataclass(frozen=True)
class BandwidthBound:
    """The time a schedule takes when links alone limit it, beside the time no schedule can beat."""

    time_s: float
    bound_s: float
    reason: str


def weighted(make: Callable[[], Schedule], rates_Bps: Sequence[float]) -> Schedule:
    """Return the schedule on several rails at once, each rail with a share in proportion to its rate."""
    shares = rate_shares(rates_Bps)
    base = make()
    strands = tuple(
        replace(strand, share=strand.share * share, channel=rail * len(base.strands) + number, rail=rail)
        for rail, share in enumerate(shares)
        for number, strand in enumerate(base.strands)
    )
    return replace(base, name=f"{base.name} on {len(shares)} rails", strands=strands)


def rate_shares(rates_Bps: Sequence[float]) -> tuple[Fraction, ...]:
    """Return shares in proportion to rates."""
    if not rates_Bps or min(rates_Bps) <= 0:
        raise ScheduleError("every rail needs a rate above zero.", hint="Leave out rails that are down.")
    whole_rates = common_weights([round(rate) for rate in rates_Bps])
    if sum(whole_rates) >= 1 << 24:  # rates with no common factor: a 24-bit share is close enough
        total = sum(rates_Bps)
        whole_rates = common_weights([max(1, round(rate / total * (1 << 23))) for rate in rates_Bps])
    return tuple(Fraction(part, sum(whole_rates)) for part in whole_rates)


def rail_bound(schedule: Schedule, rates_Bps: Sequence[float], size_bytes: int) -> BandwidthBound:
    """Return the time of the slowest rail, counted from the schedule, and the time the sum of the rates allows."""
    counted = counted_cost(schedule)
    slowest = max(
        float(sum(s.share for s in schedule.strands if s.rail == rail) * counted.sent_max) * size_bytes / rate
        for rail, rate in enumerate(rates_Bps)
    )
    bound = float(counted.sent_max) * size_bytes / sum(rates_Bps)
    return BandwidthBound(slowest, bound, "what one rank sends, over the sum of its rails' rates")


def owned_shares(speeds: Sequence[float]) -> tuple[int, ...]:
    """Return the whole parts of 2^20 of the sum that each rank should own, so that all finish as early as possible."""
    n = len(speeds)
    if n < 1 or min(speeds) <= 0:
        raise ScheduleError("every rank needs a speed above zero.")
    if n <= 2:
        return common_weights([1] * n)
    time = _finish(np.asarray(speeds, dtype=float))
    parts = np.maximum(0.0, time * np.asarray(speeds) - 1) / (n - 2) * PARTS
    cuts = np.rint(np.cumsum(parts) / parts.sum() * PARTS).astype(int)
    return tuple(int(part) for part in np.diff(cuts, prepend=0))


def _finish(speeds: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Return the earliest common finish: ranks too slow to own anything (T c < 1) own nothing."""
    n, ordered = len(speeds), np.sort(speeds)[::-1]
    for owners in range(n, 0, -1):
        time = (n - 2 + owners) / ordered[:owners].sum()
        if time * ordered[owners - 1] >= 1:
            return float(max(time, 1 / ordered[-1]) if owners < n else time)
    return float(1 / ordered[-1])


def balanced(speeds: Sequence[float], *, channels: int = 1) -> Schedule:
    """Return an all-reduce for ranks of different speed: rank r sends 1 + (n-2) x_r, x_r its share of the sum."""
    n = len(speeds)
    weights = owned_shares(speeds)
    work = direct_kernel(Kind.ALL_REDUCE, n)
    strand = Strand((whole(work),), n, weights=weights)
    strands = tuple(replace(strand, share=Fraction(1, channels), channel=c) for c in range(channels))
    return Schedule("balanced", Collective(Kind.ALL_REDUCE, n), strands, family="balanced")


def speed_bound(schedule: Schedule, speeds_Bps: Sequence[float], size_bytes: int) -> BandwidthBound:
    """Return when the last rank has sent (and got) everything, and the time no all-reduce can beat."""
    n, strand = schedule.num_ranks, schedule.strands[0]
    total = sum(strand.weights)
    sends = [1 + (n - 2) * part / total if n > 1 else 0.0 for part in strand.weights]
    time = max(sent * size_bytes / speed for sent, speed in zip(sends, speeds_Bps, strict=True))
    bound = max(1 / min(speeds_Bps), 2 * (n - 1) / sum(speeds_Bps)) * size_bytes if n > 1 else 0.0
    return BandwidthBound(time, bound, "max(1/c_min, 2(n-1)/sum c)")


def bound(
    schedule: Schedule, rates_Bps: Sequence[float], speeds_Bps: Sequence[float], size_bytes: int
) -> BandwidthBound | None:
    """Return the bound that applies: rails of different rate, ranks of different speed, or none."""
    if rates_Bps:
        return rail_bound(schedule, rates_Bps, size_bytes)
    return speed_bound(schedule, speeds_Bps, size_bytes) if speeds_Bps and schedule.family == "balanced" else None
