"""Looking for the order of units with the shortest step.

Few arrangements are all executed, and the best is then proved. Otherwise orders are built that keep the parts of a job
that talk most inside one rack, improved by swaps on the quick judgement of `traffic.py`, and the best of them executed;
so are the scheduler's own order and the packed one, which makes the answer never worse than either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import factorial

import numpy as np

from syncline.describe.progress import Meter
from syncline.placing.judge import Judge
from syncline.placing.seats import Longs, Order, Seats
from syncline.placing.traffic import SeatTraffic, seat_traffic
from syncline.sim.reach import fabric_reach

MOST_ENUMERATED = 120
"""Arrangements that are all executed."""
MOST_EXECUTED = 10
"""Orders that are executed of those the quick judgement likes best."""
SWEEPS, SWAPS, STARTS = 40, 192, 3
"""Rounds of swaps, swaps tried in each, and orders that are improved so."""
ALIKE = 1e-6
"""A shorter step than this part is no reason to move ranks."""


@dataclass(frozen=True)
class BestOrder:
    """The best order, its step, and how it is known."""

    order: Order
    step_time_s: float
    num_executed: int
    proved: bool
    """Every arrangement was executed."""


def search(
    judge: Judge, seed: int = 0, *, most_enumerated: int = MOST_ENUMERATED, meter: Meter | None = None
) -> BestOrder:
    """Return the order of units with the shortest step; ties go to the scheduler's, then to packed.

    An interrupt ends the search with the best order so far.
    """
    seats, meter = judge.seats, meter or Meter()
    given = [seats.scheduler_order(), seats.packed_order()]
    every = arrangements(seats) <= most_enumerated
    best, best_s = given[0], judge.time_s(given[0])
    try:
        others = list(enumerated(seats)) if every else proposed(judge, given, np.random.default_rng(seed))
        meter.expect(1 + len(others))
        for order in (*given[1:], *others):
            if judge.time_s(order) < best_s * (1 - ALIKE):
                best, best_s = order, judge.time_s(order)
            meter.advance()
    except KeyboardInterrupt:
        every = False
    return BestOrder(best, best_s, judge.num_executed, every)


def arrangements(seats: Seats) -> int:
    """Return how many different ways there are to seat units; an upper bound where some stay idle."""
    counts = np.unique(seats.kind, return_counts=True)[1].tolist()
    if len(seats.kind) > 170:
        return 1 if len(counts) == 1 else 1 << 62
    total = factorial(len(seats.kind))
    for count in counts:
        total //= factorial(count)
    return total


def enumerated(seats: Seats) -> Iterator[Order]:
    """Yield one order of each different arrangement."""
    left = {int(kind): np.flatnonzero(seats.kind == kind).tolist() for kind in np.unique(seats.kind)}

    def fill(taken: list[int]) -> Iterator[Order]:
        if len(taken) == seats.num_seats:
            yield (*taken, *(unit for units in left.values() for unit in units))
            return
        for units in left.values():
            if units:
                unit = units.pop(0)
                yield from fill([*taken, unit])
                units.insert(0, unit)

    yield from fill([])


def proposed(judge: Judge, given: list[Order], chance: np.random.Generator) -> list[Order]:
    """Return the orders that the quick judgement likes best, each of its own arrangement."""
    seats = judge.seats
    traffic = seat_traffic(judge, given[1])
    if not len(traffic.src) or not traffic.levels:
        return []
    built = [*given, *_aligned_orders(seats)]
    built.sort(key=traffic.of)
    pool = {seats.signature(order): order for order in reversed(built)}
    for start in list(pool.values())[-STARTS:]:
        for order in improved(traffic, seats, start, chance):
            pool.setdefault(seats.signature(order), order)
    return sorted(pool.values(), key=traffic.of)[:MOST_EXECUTED]


def improved(traffic: SeatTraffic, seats: Seats, start: Order, chance: np.random.Generator) -> list[Order]:
    """Return the orders on the way down from a start, one swap at a time, the last two of them."""
    here, cost = np.array(start, dtype=np.int64), traffic.of(start)
    way = [start]
    for _ in range(SWEEPS):
        pairs = _swaps(seats, here, chance)
        if not len(pairs):
            break
        tried = np.repeat(here[None], len(pairs), axis=0)
        rows = np.arange(len(pairs))
        tried[rows, pairs[:, 0]], tried[rows, pairs[:, 1]] = here[pairs[:, 1]], here[pairs[:, 0]]
        costs = traffic.cost(tried)
        best = int(costs.argmin())
        if costs[best] >= cost * (1 - 1e-9):
            if len(pairs) < SWAPS:  # all of them were tried
                break
            continue
        here, cost = tried[best], float(costs[best])
        way.append(tuple(here.tolist()))
    return way[-2:]


def _swaps(seats: Seats, here: Longs, chance: np.random.Generator) -> Longs:
    """Return pairs of seats whose units differ: all of them where few, else some by chance."""
    num = len(here)
    kind = seats.kind[here]
    if num * num <= 4 * SWAPS:
        a, b = np.triu_indices(num, 1)
    else:
        a, b = chance.integers(num, size=(2, 2 * SWAPS))
    apart = (kind[a] != kind[b]) & ((a < seats.num_seats) | (b < seats.num_seats))
    return np.stack((a[apart], b[apart]), axis=1)[: 2 * SWAPS]


def _aligned_orders(seats: Seats) -> Iterator[Order]:
    """Yield orders in which whole blocks of seats sit in one cell, for the blocks a job is made of."""
    reach = fabric_reach(seats.fabric)
    cells = [level.of_host[seats.host] for level in reach.outer] or [seats.kind]
    rates = reach.hosts.even_Bps[reach.hosts.of_host[seats.host]]
    for block in block_sizes(seats):
        for level in cells:
            for large_first in (True, False):
                yield aligned(level, rates, block, large_first)


def block_sizes(seats: Seats) -> list[int]:
    """Return the sizes, in seats, of stages and of what lies inside them."""
    grid, sizes = seats.grid, set()
    for axis in grid.order[1:]:
        for ranks in (grid.stride(axis), grid.stride(axis) * grid.sizes[axis]):
            if ranks % seats.size == 0 and ranks < seats.num_ranks:
                sizes.add(ranks // seats.size)
    return sorted({1, *sizes})


def aligned(cell: Longs, rate_Bps: np.ndarray, block: int, large_first: bool = True) -> Order:
    """Return units with as many whole blocks as possible inside one cell, the rest after them cell by cell.

    >>> aligned(np.array([0, 0, 0, 1, 1, 1, 1]), np.ones(7), 2)
    (3, 4, 5, 6, 0, 1, 2)
    """
    count = np.bincount(cell)
    cells = sorted(np.unique(cell).tolist(), key=lambda c: (-count[c] if large_first else count[c], c))
    whole: list[int] = []
    rest: list[int] = []
    for number in cells:
        units = np.flatnonzero(cell == number)
        units = units[np.argsort(-rate_Bps[units], kind="stable")].tolist()  # the slowest of a cell are its odd ones
        full = len(units) // block * block
        whole += units[:full]
        rest += units[full:]
    return (*whole, *rest)
