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
class Task:
    """One task, as in `engine.Tasks`; `path` maps links to the share of the rate each carries."""

    size_bytes: float = 0.0
    path: tuple[tuple[int, float], ...] = ()
    delay_s: float = 0.0
    start_s: float = 0.0
    weight: float = 1.0
    cap_Bps: float = INFINITY
    priority: int = 0
    wait_for: tuple[int, ...] = ()


@dataclass
class _State:
    tasks: Sequence[Task]
    left: list[float]
    path: list[tuple[tuple[int, float], ...]]
    end: list[float] = field(default_factory=list)
    moving_from: list[float] = field(default_factory=list)


def shares(
    capacity_Bps: Sequence[float],
    tasks: Sequence[Task],
    paths: Sequence[tuple[tuple[int, float], ...]],
    active: list[int],
) -> dict[int, float]:
    """Return the rate of every active task: classes one after the other, progressive filling within each."""
    rates: dict[int, float] = {}
    for priority in sorted({tasks[i].priority for i in active}):
        rising = [i for i in active if tasks[i].priority == priority]
        while rising:
            full_at = {}
            for link, capacity in enumerate(capacity_Bps):
                used = math.fsum(rate * s for i, rate in rates.items() for at, s in paths[i] if at == link)
                want = math.fsum(tasks[i].weight * s for i in rising for at, s in paths[i] if at == link)
                full_at[link] = max(0.0, capacity - used) / want if want else INFINITY
            stop = {
                i: min([full_at[link] for link, _ in paths[i]] + [tasks[i].cap_Bps / tasks[i].weight]) for i in rising
            }
            level = min(stop.values())
            for i in [i for i in rising if stop[i] <= level * (1 + 1e-14)]:
                rates[i] = min(tasks[i].weight * level, tasks[i].cap_Bps)
                rising.remove(i)
    return rates


def run(
    capacity_Bps: Sequence[float],
    tasks: Sequence[Task],
    changes: Sequence[tuple[float, int, float]] = (),
    reroutes: Sequence[tuple[float, int, tuple[tuple[int, float], ...]]] = (),
) -> list[float]:
    """Return when each task ends; infinity for one that never does."""
    capacity = list(capacity_Bps)
    state = _State(tasks, [t.size_bytes for t in tasks], [t.path for t in tasks])
    state.end = [INFINITY] * len(tasks)
    now = 0.0
    moments = sorted({0.0, *(time for time, *_ in changes), *(time for time, *_ in reroutes)})
    while True:
        for time, link, rate in changes:
            if time <= now:
                capacity[link] = rate
        for time, task, path in reroutes:
            if time <= now:
                state.path[task] = path
        _end_those_without_bytes(state, now)
        active = [
            i
            for i in range(len(tasks))
            if state.end[i] == INFINITY and _flows_from(state, i) <= now * (1 + SAME_MOMENT)
        ]
        rates = shares(capacity, tasks, state.path, active)
        ends = [now + state.left[i] / rates[i] for i in active if rates[i] > 0]
        later = [_flows_from(state, i) for i in range(len(tasks)) if state.end[i] == INFINITY and i not in rates]
        ahead = [t for t in (*ends, *later, *moments) if t > now * (1 + SAME_MOMENT) and t < INFINITY]
        if not ahead:
            return state.end
        step = min(ahead) - now
        now = min(ahead)
        for i in active:
            state.left[i] = max(0.0, state.left[i] - rates[i] * step)
            if state.left[i] <= 1e-12 * tasks[i].size_bytes:
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
