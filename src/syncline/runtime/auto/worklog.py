"""A rank's last steps: their length, and their work by the processor time of its training thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from syncline.program.overlap import Work
from syncline.runtime.sync.step import Step

KEPT = 3
PAUSE = 4.0
"""Beyond so many times the usual, what lies between a backward and the next forward is a pause."""


class Lengths:
    """How long the last steps took, less the pauses between them (to evaluate, to save), which no network explains."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._lengths: list[float] = []
        self._between: list[float] = []

    def note(self, step: Step, came_back_s: float) -> None:
        """Add the step that has ended; `came_back_s`: when the training thread came for the next."""
        between = came_back_s - step.synchronised_s if step.synchronised_s else 0.0
        usual = median(self._between) if len(self._between) >= KEPT else between
        pause = between - usual if between > PAUSE * usual else 0.0
        self._lengths = [*self._lengths[1 - self._kept :], step.ended_s - step.began_s - pause]
        self._between = [*self._between[1 - self._kept :], between - pause]

    def last(self, num: int) -> list[float]:
        """Return the last so many."""
        return self._lengths[-num:]


class WorkLog:
    """Marks of the step under way, and the work of the steps before."""

    def __init__(self) -> None:
        self._begun = (0, 0.0)
        self._marks: list[tuple[int, int, float]] = []
        self._works: list[Work] = []

    def begin(self) -> None:
        """Note that a step begins on this thread."""
        self._begun = (threading.get_ident(), time.thread_time())

    def first(self) -> None:
        """Forget the marks of a backward that was not followed by a step."""
        self._marks.clear()

    def mark(self, num_elements: int) -> None:
        """Note that a bucket's gradients are there."""
        self._marks.append((threading.get_ident(), num_elements, time.thread_time()))

    def note(self, step: Step) -> None:
        """Add the work of the step that has ended; by the clock where backward runs on another thread."""
        marks, self._marks = self._marks, []
        ident, began = self._begun
        if not marks or any(mark[0] != ident for mark in marks) or ident != threading.get_ident():
            times = [when for _, when, _ in step.ready]
            sizes = [size // 4 for _, _, size in step.ready]
            begin, end = step.began_s, max(times[-1], step.ended_s - (step.synchronised_s - step.computed_s))
        else:
            times, sizes = [when for _, _, when in marks], [size for _, size, _ in marks]
            begin, end = began, time.thread_time()
        backward = [0.0, *(after - before for before, after in pairwise(times))]
        self._works.append(Work(times[0] - begin, tuple(backward), tuple(sizes), max(0.0, end - times[-1])))
        del self._works[:-KEPT]

    def usual(self) -> Work:
        """Return the work of steps with today's buckets, their mean."""
        last = self._works[-1]
        return mean_work([work for work in self._works[-2:] if work.elements == last.elements])


def mean_work(works: Sequence[Work]) -> Work:
    """Return the mean of works with the same buckets."""
    backward = tuple(fmean(part) for part in zip(*(work.backward_s for work in works), strict=True))
    forward, last = fmean(work.forward_s for work in works), fmean(work.optimizer_s for work in works)
    return Work(forward, backward, works[0].elements, last)
