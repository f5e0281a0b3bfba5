"""Liveness: threads that wait for each other must all come to their end.

A schedule in rounds cannot deadlock when a rank posts all its sends and receives of a round together. Programs that
others wrote have an order of their own: threads of steps that send (buffered), receive (in the order sent) and wait for
steps of other threads. `run` finds an order in which everything happens, or the steps that wait for ever; `Clocks`
tells which steps are ordered whatever happens, so that two that touch the same data in no order are found.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.errors import NotProvedError, ScheduleError

Where = tuple[int, int]
"""(thread, step)."""

MAX_CLOCKS = 1 << 28


@dataclass(frozen=True)
class ThreadStep:
    """One step of a thread: what it waits for, receives from and sends to."""

    label: str
    waits: tuple[Where, ...] = ()
    receives: Hashable = None
    sends: Hashable = None


@dataclass(frozen=True)
class StepOrder:
    """Every step once, each after all it needs; and for each receive the send it takes."""

    steps: tuple[Where, ...]
    sender: dict[Where, Where]


def run(threads: Sequence[Sequence[ThreadStep]]) -> StepOrder:
    """Return an order in which all steps can happen, or raise `NotProvedError` naming steps that wait for ever."""
    done = [0] * len(threads)
    mail: dict[Hashable, deque[Where]] = defaultdict(deque)
    steps: list[Where] = []
    sender: dict[Where, Where] = {}
    moving = True
    while moving:
        moving = False
        for thread, tasks in enumerate(threads):
            while done[thread] < len(tasks) and _ready(tasks[done[thread]], done, mail):
                at = (thread, done[thread])
                task = tasks[done[thread]]
                if task.receives is not None:
                    sender[at] = mail[task.receives].popleft()
                if task.sends is not None:
                    mail[task.sends].append(at)
                done[thread] += 1
                steps.append(at)
                moving = True
    stuck = [thread for thread, tasks in enumerate(threads) if done[thread] < len(tasks)]
    if stuck:
        raise _deadlock(threads, done, stuck)
    lost = [box for box in mail.values() if box]
    if lost:
        thread, step = lost[0][0]
        raise NotProvedError(f"{threads[thread][step].label} sends data that no rank receives.")
    return StepOrder(tuple(steps), sender)


def _ready(task: ThreadStep, done: list[int], mail: dict[Hashable, deque[Where]]) -> bool:
    waited = all(done[thread] > step for thread, step in task.waits)
    return waited and (task.receives is None or bool(mail[task.receives]))


def _deadlock(threads: Sequence[Sequence[ThreadStep]], done: list[int], stuck: list[int]) -> NotProvedError:
    lines = []
    for thread in stuck[:6]:
        task = threads[thread][done[thread]]
        missing = [threads[t][s].label for t, s in task.waits if done[t] <= s]
        needs = f"waits for {missing[0]}" if missing else f"waits for data from {task.receives}"
        lines.append(f"{task.label} {needs}")
    more = f"; and {len(stuck) - 6} more" if len(stuck) > 6 else ""
    return NotProvedError(
        f"{threads[stuck[0]][done[stuck[0]]].label} waits forever: deadlock.",
        detail=f"{'; '.join(lines)}{more}.",
        hint="Break the circle: send before receiving, or drop a dependency.",
    )


class Clocks:
    """Which steps are ordered in every run: by their thread, by a wait, or by a message.

    Threads that nothing joins (channels of their own) have no order between them, and clocks of their own.
    """

    def __init__(self, threads: Sequence[Sequence[ThreadStep]], order: StepOrder) -> None:
        self._place, width = _joined(threads, order)
        size = sum(width[self._place[thread][0]] for thread, _ in order.steps)
        if size > MAX_CLOCKS:
            raise ScheduleError(f"{len(order.steps):,} steps in {len(threads):,} threads are too many to order.")
        self._at: dict[Where, np.ndarray[tuple[int, ...], np.dtype[np.int32]]] = {}
        for thread, step in order.steps:
            group, place = self._place[thread]
            clock = self._at[thread, step - 1].copy() if step else np.zeros(width[group], dtype=np.int32)
            for earlier in _needs(threads, order, (thread, step)):
                np.maximum(clock, self._at[earlier], out=clock)
            clock[place] = step + 1
            self._at[thread, step] = clock

    def before(self, first: Where, second: Where) -> bool:
        """Whether `first` is done before `second` in every run."""
        (group, place), (other, _) = self._place[first[0]], self._place[second[0]]
        return group == other and bool(self._at[second][place] > first[1])


def _needs(threads: Sequence[Sequence[ThreadStep]], order: StepOrder, at: Where) -> list[Where]:
    """Return the steps of other threads that a step comes after."""
    return [*threads[at[0]][at[1]].waits, *([order.sender[at]] if at in order.sender else [])]


def _joined(threads: Sequence[Sequence[ThreadStep]], order: StepOrder) -> tuple[list[tuple[int, int]], list[int]]:
    """Return (group, place in it) of every thread and the groups' sizes: who waits for or sends to whom is together."""
    above = list(range(len(threads)))

    def root(thread: int) -> int:
        while above[thread] != thread:
            above[thread] = thread = above[above[thread]]
        return thread

    for at in order.steps:
        for other, _ in _needs(threads, order, at):
            above[root(at[0])] = root(other)
    number: dict[int, int] = {}
    width: list[int] = []
    places = []
    for thread in range(len(threads)):
        group = number.setdefault(root(thread), len(number))
        if group == len(width):
            width.append(0)
        places.append((group, width[group]))
        width[group] += 1
    return places, width
