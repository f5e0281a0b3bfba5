"""Who holds the others up: how late each rank came to the collectives of the last steps.

Counted by steps, since a step has many collectives: one slow moment of a host must not look like many.
"""

from __future__ import annotations

from collections.abc import Mapping

LEAST_STEPS = 3
MAX_STEPS = 256


class _Step:
    """One step: until when it was reported, and the seconds and number of collectives each rank was late to."""

    def __init__(self) -> None:
        self.end_s = 0.0
        self.means: dict[int, float] = {}
        self._sums: dict[int, tuple[float, int]] = {}

    def add(self, end_s: float, late_s: Mapping[int, float]) -> None:
        self.end_s = max(self.end_s, end_s)
        for rank, value in late_s.items():
            total, count = self._sums.get(rank, (0.0, 0))
            self._sums[rank] = (total + value, count + 1)
            self.means[rank] = (total + value) / (count + 1)


class Lateness:
    """Takes collectives as they are reported; returns which ranks are late now."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self._num_alone = 0

    def add(self, step: int, end_s: float, late_s: Mapping[int, float]) -> None:
        """Take how late each rank came to one collective; one of no known step (-1) counts as a step of its own."""
        if step < 0:
            self._num_alone += 1
            step = -self._num_alone
        self._steps.setdefault(step, _Step()).add(end_s, late_s)
        while len(self._steps) > MAX_STEPS:
            del self._steps[next(iter(self._steps))]

    def over(self, seconds: float, least: int = LEAST_STEPS) -> dict[int, float]:
        """Return what each rank was late by, or more, in four of five steps of the last seconds, three at least."""
        steps = list(self._steps.values())
        if len(steps) < least:
            return {}
        since_s = min(steps[-1].end_s - seconds, *(step.end_s for step in steps[-least:]))
        by_rank: dict[int, list[float]] = {}
        for step in steps:
            if step.end_s >= since_s:
                for rank, late_s in step.means.items():
                    by_rank.setdefault(rank, []).append(late_s)
        return {rank: sorted(values)[len(values) // 5] for rank, values in by_rank.items()}
