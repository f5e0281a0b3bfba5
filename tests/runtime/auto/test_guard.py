"""The accuracy guard on numbers made up: which steps it looks at, and what it calls drift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch

from syncline.runtime.auto.guard import GUARD_STEPS, NORM_STEPS, Guard
from syncline.runtime.sync.bucket import Layout, Order
from syncline.runtime.sync.step import Step

STEP = Step(0, 0, "int8", 0.0)


def play(
    guard: Guard, turns: int, *, dense_extra: float = 0.2, scale: float = 1.0, off: float = 0.0, losses: Sequence[float]
) -> list[dict[str, Any]]:
    """Play turns in which averages are `scale` times the dense ones and `off` from them; return the row of each."""
    found = []
    for number in range(turns * GUARD_STEPS):
        for loss in losses[number : number + 1]:
            guard.observe(loss)
        buffer = torch.ones(64)
        order = guard.watch(Order(0, buffer, Layout(("w",), ((64,),)), STEP, lambda failure: None), owing=False)
        if not guard.dense:
            buffer.mul_(scale).add_(off)
        order.done(None)
        if guard.next(dense_extra):
            found.append(guard.row(lambda dense: None))
    return found


def train(guard: Guard, turns: int, *, losses: Sequence[float] = (), **changes: float) -> list[str]:
    """Play turns, and return the judgement on each."""
    return [guard.judge([row]) for row in play(guard, turns, losses=losses, **changes)]


def test_one_step_of_each_turn_is_dense_where_that_costs_little() -> None:
    guard = Guard()
    dense = []
    for number in range(3 * GUARD_STEPS):
        dense += [number] if guard.dense else []
        guard.next(0.4)
    assert dense == [GUARD_STEPS - 1, 2 * GUARD_STEPS - 1, 3 * GUARD_STEPS - 1]


def test_dense_steps_are_rare_where_they_are_dear_and_none_where_all_are() -> None:
    for extra, wanted in ((12.0, 1), (0.0, 0)):
        guard = Guard()
        num_dense = 0
        for _ in range(1200):
            num_dense += guard.dense
            guard.next(extra)
        assert num_dense == wanted


def test_what_is_right_is_no_drift() -> None:
    assert train(Guard(), 3, losses=[2.0 + 0.1 * (k % 3) for k in range(150)]) == ["", "", ""]


def test_averages_that_are_off_are_drift() -> None:
    (text,) = train(Guard(), 1, off=0.5, dense_extra=0.0)
    assert text == "averages were 0.5 from the dense ones (at most 0.1)"


def test_gradients_that_are_too_long_or_too_short_twice_running_are_drift() -> None:
    def ratios(*scales: float) -> str:
        guard = Guard()
        for scale in scales:
            guard._dense_norms = [torch.tensor(1.0)] if scale else []
            guard._norms = [torch.tensor(scale)] * NORM_STEPS
            text = guard.judge([guard.row(lambda dense: None)])
        return text

    assert ratios(1.0, 1.0) == ratios(2.9, 2.9) == ""
    assert ratios(4.0, 4.0) == "gradients were 4 times as long as a dense one (at most 3 times or a third)"
    assert ratios(0.1, 0.2).startswith("gradients were 0.2 times as long")
    assert ratios(4.0) == ratios(4.0, 1.0) == ratios(1.0, 4.0) == ratios(4.0, 0.1) == "", "one odd batch is no drift"
    assert ratios(4.0, 0.0, 4.0).startswith("gradients were 4 times"), "a turn without a dense step says nothing"
    assert ratios(float("inf"), float("inf")) == "", "a step that overflowed says nothing"


def test_the_norms_beside_a_dense_one_are_those_of_the_steps_before() -> None:
    (row,) = play(Guard(), 1, scale=1.05, losses=())
    assert row["norm"] == pytest.approx(1.05)


def test_a_loss_that_rises_is_drift_and_noise_is_not() -> None:
    noisy = [2.0 + 0.5 * (-1) ** k for k in range(50)]
    assert train(Guard(), 2, losses=[*noisy, *(loss + 0.12 for loss in noisy)]) == ["", ""]
    falls_then_rises = [3.0 - 0.01 * k for k in range(100)] + [2.6 + 0.01 * k for k in range(50)]
    guard = Guard()
    assert train(guard, 3, losses=falls_then_rises) == ["", "", "the loss rose from 2.255 to 2.845"]
    assert train(guard, 1, losses=[2.9] * 50) == [""], "after a fall back it is compared with what comes then"


def test_a_loss_that_is_no_number_any_more_is_drift() -> None:
    assert train(Guard(), 1, losses=[float("nan")] * 50) == ["the loss is nan"]
    assert train(Guard(), 2, losses=[*[2.0] * 60, float("nan"), *[2.0] * 39]) == ["", ""]
