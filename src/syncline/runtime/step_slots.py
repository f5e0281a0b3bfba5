"""Slots for the steps of a job that shares its network: a step begins when its turn comes.

    slots = syncline.torch.StepSlots.from_environment()       # SYNCLINE_SLOTS="PERIOD,OFFSET" in seconds
    for batch in data:
        slots.wait()
        ...

`syncline share` says which period and offset let the bursts of one job fall into the computation of another. Slots are
counted on the wall clock, so that jobs need not know each other: hosts must agree on it to a small part of a step, as
NTP makes them. A step that is late does not wait for another whole period: it begins at once, and as the period is a
little longer than a step, the next ones make up for it. Without the variable nothing waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from syncline.errors import UsageError

VARIABLE = "SYNCLINE_SLOTS"


class StepSlots:
    """Holds the steps of this rank to slots `period_s` apart, `offset_s` after the whole periods of the wall clock."""

    def __init__(
        self, period_s: float = 0.0, offset_s: float = 0.0, *, clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        if not (0 <= period_s < 3600 and 0 <= offset_s < 3600):
            raise UsageError(f"slots every {period_s} s with an offset of {offset_s} s are out of range.",
                             hint="Both are seconds from 0 to 3600; a period of 0 means no slots.")  # fmt: skip
        self.period_s, self.offset_s = period_s, offset_s
        self._clock, self._sleep = clock, sleep
        self._slot: int | None = None
        self.waited_s = 0.0
        """What this rank has waited for its slots in all."""

    @classmethod
    def from_environment(cls) -> StepSlots:
        """Return the slots that `SYNCLINE_SLOTS=PERIOD,OFFSET` asks for, or none."""
        text = os.environ.get(VARIABLE, "")
        if not text:
            return cls()
        try:
            period, offset = (float(part) for part in text.split(","))
        except ValueError:
            raise UsageError(f'{VARIABLE}="{text}" does not say period and offset.',
                             hint=f"Write {VARIABLE}=0.81,0.27 (seconds).") from None  # fmt: skip
        return cls(period, offset)

    def wait(self) -> float:
        """Wait for the next slot of this job and return how long that took; call it on every rank as a step begins."""
        if self.period_s <= 0:
            return 0.0
        now = self._clock()
        if self._slot is None:
            self._slot = int((now - self.offset_s) // self.period_s) + 1
        elif now - self._begin(self._slot + 1) > self.period_s / 2:
            # So late that a later slot is nearer. The nearest, be it past: ranks that began a slot apart meet again
            # there, while the next one would have them wait for each other in turn, a period each.
            self._slot = round((now - self.offset_s) / self.period_s)
        else:
            self._slot += 1
        left = max(0.0, self._begin(self._slot) - now)
        if left > 0:
            self._sleep(left)
        self.waited_s += left
        return left

    def _begin(self, slot: int) -> float:
        return self.offset_s + slot * self.period_s
