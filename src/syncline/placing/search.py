"""Looking for the order of units with the shortest step.

Arrangements that are no more than the budget are all executed, and the best is then proved; racks and pods that are
alike change places freely. Otherwise the blocks of a job (stages, and what lies inside them) are packed into racks and
pods by subset sums, such orders are improved by swaps on the quick judgement of `traffic.py`, and the best of them by
swaps that are executed, until a bound that no order can beat, until no swap helps, or until the budget is used. The
order in which hosts were listed decides nothing but ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from syncline.describe.progress import Meter
from syncline.placing.judge import Judge
from syncline.placing.seats import Longs, Order, Seats
from syncline.placing.traffic import SeatTraffic, seat_traffic
from syncline.sim.reach import fabric_reach

TASKS, LEAST_EXECUTED, MOST_EXECUTED = 1_000_000, 24, 240
"""Tasks of the flow engine that a search may run, and the fewest and most orders that it executes for them."""
STARTS = 4
"""Orders that executed swaps begin from."""
SWEEPS, SWAPS = 40, 192
"""Rounds of swaps by the quick judgement, and swaps tried in each."""
LITTLE = 1e-3
"""A search ends where so little of the step is left to gain."""
ALIKE = 1e-6
"""A shorter step than this part is no reason to move ranks."""


@dataclass(frozen=True)
class BestOrder:
    """The best order, its step, and how it is known."""

    order: Order
    step_time_s: float
    num_executed: int
    proved: bool
    """Every arrangement was executed, or the step is as short as its bound."""
    bound_s: float = 0.0
    """No order of these hosts has a shorter step."""


def search(judge: Judge, seed: int = 0, *, meter: Meter | None = None) -> BestOrder:
    """Return the order of units with the shortest step; ties go to the scheduler's, then to packed.

    An interrupt ends the search with the best order so far.
    """
    seats, meter = judge.seats, meter or Meter()
    given = [seats.scheduler_order(), seats.packed_order()]
    best = _Best(given[0], judge.time_s(given[0]))
    budget = max(LEAST_EXECUTED, min(MOST_EXECUTED, TASKS // max(judge.executed(best.order).tasks, 1)))
    every = list(islice(enumerated(judge), budget + 1))
    proved = len(every) <= budget
    try:
        best.take(judge, given[1])
        if proved:
            for order in _counted(every, meter):
                best.take(judge, order)
        else:
            _climbed(judge, best, given, budget, np.random.default_rng(seed), meter)
    except KeyboardInterrupt:
        proved = False
    bound_s = best.step_s if proved else min(judge.bound_s(), best.step_s)
    return BestOrder(best.order, best.step_s, judge.num_executed, best.step_s <= bound_s * (1 + ALIKE), bound_s)


@dataclass
class _Best:
    order: Order
    step_s: float

    def take(self, judge: Judge, order: Order) -> bool:
        """Keep an order if its step is shorter."""
        step_s = judge.time_s(order)
        better = step_s < self.step_s * (1 - ALIKE)
        if better:
            self.order, self.step_s = order, step_s
        return better


def _counted(orders: Sequence[Order], meter: Meter) -> Iterator[Order]:
    meter.expect(len(orders))
    for order in orders:
        yield order
        meter.advance()


def _climbed(
    judge: Judge, best: _Best, given: list[Order], budget: int, chance: np.random.Generator, meter: Meter
) -> None:
    """Execute the best proposals, then swaps around the best of them, until nothing helps or the budget is used."""
    traffic = seat_traffic(judge, given[1])
    if not len(traffic.src) or not traffic.levels:
        return
    meter.expect(budget)
    bound_s = judge.bound_s()

    def spent() -> bool:
        return judge.num_executed >= budget or best.step_s <= bound_s * (1 + LITTLE)

    pool = proposed(judge, traffic, given, chance)
    for order in pool[: budget // 2]:
        before = judge.num_executed
        best.take(judge, order)
        meter.advance(judge.num_executed - before)
        if spent():
            return
    starts = sorted({judge.key(o): o for o in (*pool[: budget // 2], *given)}.values(), key=judge.time_s)
    for start in starts[:STARTS]:
        here, here_s = start, judge.time_s(start)
        while True:
            best.take(judge, here)
            found = next((o for o in _neighbours(judge, traffic, here, spent, meter)
                          if judge.time_s(o) < here_s * (1 - ALIKE)), None)  # fmt: skip
            if spent():
                if found is not None:
                    best.take(judge, found)
                return
            if found is None:
                break
            here, here_s = found, judge.time_s(found)


def _neighbours(
    judge: Judge, traffic: SeatTraffic, here: Order, spent: Callable[[], bool], meter: Meter
) -> Iterator[Order]:
    """Yield the arrangements one swap away, those that the quick judgement likes best first, while there is budget."""
    for order in swapped(judge, traffic, here):
        if spent():
            return
        before = judge.num_executed
        judge.time_s(order)
        meter.advance(judge.num_executed - before)
        yield order


def swapped(judge: Judge, traffic: SeatTraffic, here: Order) -> list[Order]:
    """Return the arrangements one swap of two units away, those that the quick judgement likes best first."""
    seats = judge.seats
    at = np.array(here, dtype=np.int64)
    a, b = np.triu_indices(len(at), 1)
    apart = (seats.kind[at[a]] != seats.kind[at[b]]) & (a < seats.num_seats)
    a, b = a[apart], b[apart]
    if not len(a):
        return []
    tried = np.repeat(at[None], len(a), axis=0)
    rows = np.arange(len(a))
    tried[rows, a], tried[rows, b] = at[b], at[a]
    ranked = (tuple(tried[i].tolist()) for i in np.argsort(traffic.cost(tried), kind="stable"))
    return list({judge.key(order): order for order in ranked}.values())


def enumerated(judge: Judge) -> Iterator[Order]:
    """Yield one order of each different arrangement."""
    seats, seen = judge.seats, set[tuple[bytes, object]]()

    def fill(taken: list[int], left: list[int]) -> Iterator[Order]:
        if len(taken) == seats.num_seats:
            yield (*taken, *left)
            return
        for unit in left:
            mine, rest = [*taken, unit], [other for other in left if other != unit]
            last = len(mine) == seats.num_seats
            way = judge.key(mine), () if last else _shape(seats, mine, rest, len(seats.cells) - 1)
            if way not in seen:
                seen.add(way)
                yield from fill(mine, rest)

    yield from fill([], list(seats.packed_order()))


def _shape(seats: Seats, taken: list[int], left: list[int], level: int) -> object:
    """Return what units that are left still allow: how many of each kind in cells that are begun, and in others."""
    if level < 0:
        return len(left)
    begun = seats.cells[level, taken].tolist()
    inside: dict[int, list[int]] = {}
    for unit in left:
        inside.setdefault(int(seats.cells[level, unit]), []).append(unit)
    return tuple(sorted(
        (begun.index(cell) if cell in begun else -1, int(seats.alike[level, units[0]]),
         _shape(seats, taken, units, level - 1))
        for cell, units in inside.items()
    ))  # fmt: skip


def proposed(judge: Judge, traffic: SeatTraffic, given: list[Order], chance: np.random.Generator) -> list[Order]:
    """Return orders of different arrangements, those that the quick judgement likes best first."""
    seats = judge.seats
    built = sorted((given[1], *packings(seats)), key=traffic.of)
    pool = {judge.key(order): order for order in reversed(built)}
    for start in list(pool.values())[-STARTS:]:
        for order in improved(traffic, seats, start, chance):
            pool.setdefault(judge.key(order), order)
    return sorted(pool.values(), key=traffic.of)


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


def packings(seats: Seats) -> Iterator[Order]:
    """Yield orders in which blocks of a job fill whole cells: blocks inside blocks, and blocks of each size alone."""
    reach = fabric_reach(seats.fabric)
    levels = [level.of_host[seats.host] for level in reach.outer] or [seats.kind]
    rates = reach.hosts.even_Bps[reach.hosts.of_host[seats.host]]
    # The slowest hosts of a cell come last, so that they are its odd ones.
    units = np.lexsort((seats.gpus[:, 0], -rates)).tolist()
    sizes = sorted(block_sizes(seats), reverse=True)
    for cell in levels:
        for blocks in (sizes, *([size] for size in sizes)):
            for large_first in (True, False):
                yield tuple(packed(units, cell, blocks, large_first))


def block_sizes(seats: Seats) -> list[int]:
    """Return the sizes, in seats, of stages and of what lies inside them."""
    grid, sizes = seats.grid, set()
    for axis in grid.order[1:]:
        for ranks in (grid.stride(axis), grid.stride(axis) * grid.sizes[axis]):
            if ranks % seats.size == 0 and ranks < seats.num_ranks:
                sizes.add(ranks // seats.size)
    return sorted({1, *sizes})


def packed(units: Sequence[int], cell: Longs, blocks: Sequence[int], large_first: bool = True) -> list[int]:
    """Return units with whole cells in each block of seats where their sizes add up to it, and inside it likewise.

    Racks of 2, 3, 3 and 4 hosts are two stages of 6: 3 with 3, and 4 with 2.

    >>> packed(range(12), np.repeat([0, 1, 2, 3], [2, 3, 3, 4]), [6])
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1]
    """
    left: dict[int, list[int]] = {}
    for unit in units:
        left.setdefault(int(cell[unit]), []).append(unit)
    sign = -1 if large_first else 1
    left = dict(sorted(left.items(), key=lambda item: (sign * len(item[1]), item[0])))
    if not blocks or len(left) < 2:
        return list(chain.from_iterable(left.values()))
    block, *inner = blocks
    found: list[int] = []
    while sum(map(len, left.values())) >= block:
        part: list[int] = []
        for name in subset({name: len(members) for name, members in left.items()}, block):
            part += left.pop(name)
        missing = block - len(part)
        if missing:  # cut the smallest cell that has enough of them, or the largest
            enough = [name for name, members in left.items() if len(members) >= missing]
            name = min(enough or left, key=lambda n: len(left[n]) if enough else -len(left[n]))
            part += left[name][:missing]
            left[name] = left[name][missing:]
            left = {n: members for n, members in left.items() if members}
        found += packed(part, cell, inner, large_first)
        if len(part) < block:
            break
    return found + packed(list(chain.from_iterable(left.values())), cell, inner, large_first)


def subset(sizes: dict[int, int], total: int) -> list[int]:
    """Return the cells whose sizes come nearest to a total without going over it, the fewest of them.

    >>> subset({0: 2, 1: 3, 2: 3, 3: 4}, 6), subset({0: 4, 1: 4, 2: 3}, 6)
    ([1, 2], [0])
    """
    ways: dict[int, list[int]] = {0: []}
    for name, size in sizes.items():
        for reached, names in sorted(ways.items(), reverse=True):
            new = reached + size
            if new <= total and (new not in ways or len(names) + 1 < len(ways[new])):
                ways[new] = [*names, name]
    return ways[max(ways)]
