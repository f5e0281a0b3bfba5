"""The length of steps, as a choice by measurement sees it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="steps are the runtime's")
from syncline.runtime.auto.lengths import Lengths
from syncline.runtime.sync.step import Step


def noted(lengths: Lengths, *between_s: float) -> None:
    """Add steps of 0.2 s and what lay between each and the next."""
    for number, between in enumerate(between_s):
        step = Step(number, 0, "int8", 10.0)
        step.synchronised_s, step.ended_s = 10.2, 10.2 + between
        lengths.note(step, 10.2 + between)


def test_a_pause_between_two_steps_is_not_part_of_either() -> None:
    lengths = Lengths(8)
    noted(lengths, 0.01, 0.011, 0.012, 30.0, 0.01)
    assert lengths.last(5) == pytest.approx([0.21, 0.211, 0.212, 0.211, 0.21])


def test_optimizers_that_take_longer_from_now_on_are_followed() -> None:
    lengths = Lengths(8)
    noted(lengths, *[0.01] * 5, *[0.03] * 5)
    assert lengths.last(2) == pytest.approx([0.23, 0.23])


def test_before_it_knows_what_is_usual_it_takes_steps_as_they_are() -> None:
    lengths = Lengths(2)
    noted(lengths, 5.0, 0.01)
    assert lengths.last(8) == pytest.approx([5.2, 0.21])
