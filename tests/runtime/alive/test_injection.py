"""Forty faults in messages of real connections: none may stand as a right result, none be heard by some only."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from tests.runtime.alive.injection import (
    KINDS,
    NUM_RANKS,
    NUM_STEPS,
    SIZES,
    InjectionOutcome,
    MessageFault,
    expected,
    gradient,
    run_world,
)

QUICK = tuple(kind for kind in KINDS if kind not in ("drop", "swap", "long stall"))
SLOW = ("drop", "swap", "long stall")


def draw(number: int) -> MessageFault:
    draws = random.Random(number)
    kinds = SLOW if number % 10 == 0 else QUICK
    return MessageFault(
        draws.choice(kinds), draws.choice((1, 2)), draws.randrange(NUM_RANKS), draws.randrange(8), number
    )


def test_without_a_fault_the_result_is_the_mean() -> None:
    got = expected("fp32")
    for step in range(NUM_STEPS):
        for index in range(len(SIZES)):
            mean = sum(gradient(rank, step, index) for rank in range(NUM_RANKS)) / NUM_RANKS
            torch.testing.assert_close(got[step * len(SIZES) + index], mean, rtol=1e-6, atol=1e-6)


def test_no_fault_is_silent() -> None:
    due = expected("int8")
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(run_world, map(draw, range(40))))
    assert not [(o.fault, o.errors) for o in outcomes if o.is_silent(due)]
    struck = [o for o in outcomes if o.struck]
    assert len(struck) >= 24
    calm = {o.fault.kind for o in struck if not o.is_raised}
    # The sum that goes to all peers alike may change places with itself; everything else must be heard.
    assert calm <= {"short stall", "swap"}


def test_a_silent_fault_would_be_found() -> None:
    due = expected("int8")
    wrong = [[part.clone() for part in due] for _ in range(NUM_RANKS)]
    assert not InjectionOutcome(MessageFault("none"), results=wrong).is_silent(due)
    wrong[1][3][17] += 1e-6
    assert InjectionOutcome(MessageFault("none"), results=wrong).is_silent(due)
    assert InjectionOutcome(MessageFault("none"), errors=["", "lost", ""]).is_silent(due)
