"""Two clocks: monotonic for every interval, wall only for labels; a step of the wall clock is noticed, not suffered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

STEP_S = 0.5
"""Wall and monotonic clocks that part by more than this between two looks: someone set the clock."""


@dataclass(frozen=True)
class ClockReading:
    """One moment: `mono_s` for arithmetic, `wall_s` (Unix) for people; `step_s`: the wall clock just jumped so far."""

    mono_s: float
    wall_s: float
    step_s: float = 0.0


class Clock:
    """Gives stamps. Between steps the wall label follows the monotonic clock, so that labels never repeat."""

    def __init__(self, mono: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._mono, self._wall = mono, wall
        self._offset_s = wall() - mono()
        self.num_steps = 0

    def now(self) -> ClockReading:
        """Return the moment; re-anchors its labels when the wall clock has stepped."""
        mono_s, wall_s = self._mono(), self._wall()
        parted_s = wall_s - mono_s - self._offset_s
        if abs(parted_s) > STEP_S:
            self._offset_s += parted_s
            self.num_steps += 1
            return ClockReading(mono_s, wall_s, parted_s)
        # Slewing (NTP) is followed slowly: a label never runs backwards within a run of frames.
        self._offset_s += 0.01 * parted_s
        return ClockReading(mono_s, mono_s + self._offset_s)

    def from_wall(self, wall_s: float) -> float:
        """Return the monotonic time of a Unix time, as far as the present offset tells."""
        return wall_s - self._offset_s
