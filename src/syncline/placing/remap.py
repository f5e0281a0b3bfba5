"""A host is replaced: the order that runs, changed as little as the step allows.

Every host whose ranks change must read the shards of another from a checkpoint, so the new host takes the seat of the
old one and others move only where that is worth more than `slack` of the step. Swaps are tried one after the other,
the best first, until what is left to gain is within the slack of the best order known.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.describe.progress import Meter
from syncline.placing.judge import Judge
from syncline.placing.search import BestOrder, search, swapped
from syncline.placing.seats import Order
from syncline.placing.traffic import seat_traffic

SLACK = 0.02
"""What of a step may be lost before ranks of hosts that stay are moved."""
TRIED, MOST_SWAPS = 8, 4


@dataclass(frozen=True)
class Remap:
    """An order near the one that ran."""

    order: Order
    step_time_s: float
    in_place_s: float
    """With the new host on the seat of the old, and nothing else moved."""
    best_s: float
    """With every host free to move."""
    num_moved: int
    """Hosts that stay in the job and get other ranks."""
    num_executed: int


def remap(judge: Judge, kept: Order, slack: float = SLACK, meter: Meter | None = None) -> Remap:
    """Return the order closest to `kept` (new host on its seat already) whose step is within the slack of the best."""
    best: BestOrder = search(judge, meter=meter)
    in_place = judge.time_s(kept)
    here, at = kept, in_place
    target = best.step_time_s * (1 + slack)
    for _ in range(MOST_SWAPS):
        if at <= target:
            break
        near = swapped(judge, seat_traffic(judge, here), here)[:TRIED]
        order = min(near, key=judge.time_s, default=here)
        if judge.time_s(order) >= at * (1 - 1e-6):
            break
        here, at = order, judge.time_s(order)
    if at > target:
        here, at = best.order, best.step_time_s
    return Remap(here, at, in_place, best.step_time_s, moved(judge, kept, here), judge.num_executed)


def moved(judge: Judge, before: Order, after: Order) -> int:
    """Return how many units get other ranks."""
    num = judge.seats.num_seats
    return sum(a != b for a, b in zip(before[:num], after[:num], strict=True))
