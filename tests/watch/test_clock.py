"""The wall clock is a label: it may step, the intervals do not."""

from __future__ import annotations

import itertools

import pytest

from syncline.watch.clock import Clock


class Hands:
    def __init__(self) -> None:
        self.mono, self.wall = 100.0, 1_000_000.0

    def forward(self, seconds: float) -> None:
        self.mono += seconds
        self.wall += seconds


def test_labels_follow_the_wall_and_intervals_the_monotonic_clock() -> None:
    hands = Hands()
    clock = Clock(lambda: hands.mono, lambda: hands.wall)
    first = clock.now()
    hands.forward(2.0)
    second = clock.now()
    assert second.mono_s - first.mono_s == 2.0
    assert second.wall_s == pytest.approx(1_000_002.0)
    assert second.step_s == 0.0


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 5.0])
def test_a_step_is_noticed_and_labels_are_right_after_it(jump: float) -> None:
    hands = Hands()
    clock = Clock(lambda: hands.mono, lambda: hands.wall)
    clock.now()
    hands.forward(1.0)
    hands.wall += jump
    stamp = clock.now()
    assert stamp.step_s == pytest.approx(jump)
    assert stamp.wall_s == hands.wall
    hands.forward(1.0)
    assert clock.now().step_s == 0.0
    moment = clock.now()
    assert clock.from_wall(moment.wall_s) == pytest.approx(moment.mono_s)


def test_a_slewed_clock_is_followed_without_a_step() -> None:
    hands = Hands()
    clock = Clock(lambda: hands.mono, lambda: hands.wall)
    labels = []
    for _ in range(2000):
        hands.forward(0.5)
        hands.wall += 0.0005
        labels.append(clock.now())
    assert all(stamp.step_s == 0.0 for stamp in labels)
    assert all(b.wall_s > a.wall_s for a, b in itertools.pairwise(labels))
    assert abs(labels[-1].wall_s - hands.wall) < 0.1
