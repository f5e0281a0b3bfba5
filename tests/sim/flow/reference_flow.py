"""The flow engine once more, slow and in plain Python, written to be believed: tests compare the two on random cases.

At every moment all rates are computed afresh from the definition; time goes from one moment to the next. Nothing is
kept from one moment to the next but the bytes that are left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

INFINITY = math.inf
SAME_MOMENT = 1e-12


@dataclass(frozen=True)
class FlowTask:
    """One task, as in `engine.Tasks`; `path` maps links to the share of the rate each carries."""

    size_bytes: float = 0.0
    path: tuple[tuple[int, float], ...] = ()
    delay_s: float = 0.0
    start_s: float = 0.0
    weight: float = 1.0
    cap_Bps: float = INFINITY
    priority: int = 0
    wait_for: tuple[int, ...] = ()
    tenant: int = -1


@dataclass
class _State:
    tasks: Sequence[FlowTask]
    left: list[float]
    path: list[tuple[tuple[int, float], ...]]
    end: list[float] = field(default_factory=list)
    credit: list[float] = field(default_factory=list)
    paid: set[int] = field(default_factory=set)


def shares(
    capacity_Bps: Sequence[float],
    tasks: Sequence[FlowTask],
    paths: Sequence[tuple[tuple[int, float], ...]],
    active: list[int],
    guarantee: Sequence[float] = (),
) -> dict[int, float]:
    """Return the rate of every active task: classes one after the other, progressive filling within each.

    A tenant's floor is what its tasks would have with the guaranteed part of every link to themselves; no task has
    less, and the floors of all classes are set aside before any class is served.
    """
    floors = dict.fromkeys(active, 0.0)
    for tenant, part in enumerate(guarantee):
        own = [i for i in active if tasks[i].tenant == tenant]
        floors |= _fill([part * capacity for capacity in capacity_Bps], tasks, paths, own, dict.fromkeys(own, 0.0))
    return _fill(capacity_Bps, tasks, paths, active, floors)


def _fill(
    capacity_Bps: Sequence[float],
    tasks: Sequence[FlowTask],
    paths: Sequence[tuple[tuple[int, float], ...]],
    active: list[int],
    floors: dict[int, float],
) -> dict[int, float]:
    """Raise one level for a whole class: each task has its weight times the level, but never less than its floor."""
    rates = dict(floors)
    for priority in sorted({tasks[i].priority for i in active}):
        rising = [i for i in active if tasks[i].priority == priority]
        while rising:
            stop = {
                i: min(
                    [_level(link, capacity_Bps[link], tasks, paths, rates, rising, floors) for link, _ in paths[i]]
                    + [tasks[i].cap_Bps / tasks[i].weight]
                )
                for i in rising
            }
            level = min(stop.values())
            for i in [i for i in rising if stop[i] <= level * (1 + 1e-14)]:
                rates[i] = min(max(tasks[i].weight * level, floors[i]), tasks[i].cap_Bps)
                rising.remove(i)
    return rates


def _level(
    link: int,
    capacity_Bps: float,
    tasks: Sequence[FlowTask],
    paths: Sequence[tuple[tuple[int, float], ...]],
    rates: dict[int, float],
    rising: list[int],
    floors: dict[int, float],
) -> float:
    """Return the level at which a link is full if all that rise over it go on: a walk over the floors passed."""
    crossing = [(i, s) for i in rates for at, s in paths[i] if at == link]
    fixed = math.fsum(rates[i] * s for i, s in crossing if i not in rising)
    still = sorted((floors[i] / tasks[i].weight, i, s) for i, s in crossing if i in rising)
    for k in range(len(still), 0, -1):
        held = math.fsum(floors[i] * s for _, i, s in still[k:])
        level = max(0.0, capacity_Bps - fixed - held) / math.fsum(tasks[i].weight * s for _, i, s in still[:k])
        if level >= still[k - 1][0]:
            return level
    return still[0][0]


def run(
    capacity_Bps: Sequence[float],
    tasks: Sequence[FlowTask],
    changes: Sequence[tuple[float, int, float]] = (),
    reroutes: Sequence[tuple[float, int, tuple[tuple[int, float], ...]]] = (),
    guarantee: Sequence[float] = (),
    burst_bytes: Sequence[float] = (),
) -> list[float]:
    """Return when each task ends; infinity for one that never does."""
    capacity = list(capacity_Bps)
    state = _State(tasks, [t.size_bytes for t in tasks], [t.path for t in tasks])
    state.end = [INFINITY] * len(tasks)
    state.credit = list(burst_bytes)
    now = 0.0
    moments = sorted({0.0, *(time for time, *_ in changes), *(time for time, *_ in reroutes)})
    while True:
        for time, link, rate in changes:
            if time <= now:
                capacity[link] = rate
        for time, task, path in reroutes:
            if time <= now:
                state.path[task] = path
        active = _started(state, now)
        rates = shares(capacity, tasks, state.path, active, guarantee)
        ends = [now + state.left[i] / rates[i] for i in active if rates[i] > 0]
        later = [_flows_from(state, i) for i in range(len(tasks)) if state.end[i] == INFINITY and i not in rates]
        ahead = [t for t in (*ends, *later, *moments) if t > now * (1 + SAME_MOMENT) and t < INFINITY]
        if not ahead:
            return state.end
        step = min(ahead) - now
        now = min(ahead)
        for link in range(len(state.credit)):
            used = math.fsum(rates[i] * s for i in active for at, s in state.path[i] if at == link)
            state.credit[link] = min(burst_bytes[link], state.credit[link] + max(0.0, capacity[link] - used) * step)
        for i in active:
            state.left[i] = max(0.0, state.left[i] - rates[i] * step)
            if state.left[i] <= 1e-12 * tasks[i].size_bytes:
                state.end[i] = now


def _started(state: _State, now: float) -> list[int]:
    """Return the tasks that move bytes now, after those that start have taken what idle links let through at once."""
    while True:
        _end_those_without_bytes(state, now)
        active = [
            i
            for i in range(len(state.tasks))
            if state.end[i] == INFINITY and _flows_from(state, i) <= now * (1 + SAME_MOMENT)
        ]
        fresh = [i for i in active if i not in state.paid and state.path[i]] if state.credit else []
        if not fresh:
            return active
        for i in fresh:
            taken = min([state.left[i], *(state.credit[link] / s for link, s in state.path[i])])
            state.left[i] -= taken
            for link, s in state.path[i]:
                state.credit[link] -= taken * s
            state.paid.add(i)
            if state.left[i] <= 0:
                state.end[i] = now


def _flows_from(state: _State, i: int) -> float:
    """Return when task i begins to move bytes (or ends, if it has none); infinity while it still waits."""
    waits = max((state.end[j] for j in state.tasks[i].wait_for), default=0.0)
    return max(waits, state.tasks[i].start_s) + state.tasks[i].delay_s


def _end_those_without_bytes(state: _State, now: float) -> None:
    changed = True
    while changed:
        changed = False
        for i, task in enumerate(state.tasks):
            moves = task.size_bytes > 0 and (state.path[i] or task.cap_Bps < INFINITY)
            if state.end[i] == INFINITY and not moves and _flows_from(state, i) <= now * (1 + SAME_MOMENT):
                state.end[i] = _flows_from(state, i)
                changed = True
