"""Slots of steps on a clock of our own."""

from __future__ import annotations

import pytest

from syncline.errors import UsageError
from syncline.runtime.step_slots import StepSlots


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_steps_begin_in_their_slots() -> None:
    clock = Clock(100.3)
    slots = StepSlots(1.0, 0.25, clock=clock, sleep=clock.sleep)
    begun = []
    for took in (0.9, 0.9, 1.2, 0.7, 0.9):
        slots.wait()
        begun.append(round(clock.now, 6))
        clock.now += took
    # The third takes too long: the fourth begins at once, and the fifth is in its slot again.
    assert begun == [101.25, 102.25, 103.25, 104.45, 105.25]


def test_a_step_that_is_very_late_takes_the_next_slot() -> None:
    clock = Clock(0.0)
    slots = StepSlots(1.0, 0.5, clock=clock, sleep=clock.sleep)
    slots.wait()
    clock.now += 7.8  # 8.3: slots have gone by
    slots.wait()
    assert clock.now == pytest.approx(8.5)


def test_ranks_that_began_a_slot_apart_meet_again_though_steps_overrun_their_slots() -> None:
    clocks = (Clock(0.999), Clock(1.001))  # either side of a slot's beginning
    ranks = [StepSlots(1.0, 0.0, clock=clock, sleep=clock.sleep) for clock in clocks]
    ends = []
    for _ in range(10):
        for slots in ranks:
            slots.wait()
        for clock in clocks:  # an exchange ends for both, 1.003 after the later one began
            clock.now = max(one.now for one in clocks)
        ends.append(clocks[0].now + 1.003)
        for clock in clocks:
            clock.now = ends[-1]
    assert ends[-1] - ends[0] == pytest.approx(9 * 1.003)  # 2.0 a step where each waits for the other's slot


def test_without_a_period_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SYNCLINE_SLOTS", raising=False)
    assert StepSlots.from_environment().wait() == 0.0


def test_the_environment_says_period_and_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_SLOTS", "0.81,0.27")
    slots = StepSlots.from_environment()
    assert (slots.period_s, slots.offset_s) == (0.81, 0.27)
    monkeypatch.setenv("SYNCLINE_SLOTS", "soon")
    with pytest.raises(UsageError, match="does not say period and offset"):
        StepSlots.from_environment()
    with pytest.raises(UsageError, match="are out of range"):
        StepSlots(-1.0)
