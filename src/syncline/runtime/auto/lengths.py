"""How long a rank's last steps took."""

from __future__ import annotations

from statistics import median

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
