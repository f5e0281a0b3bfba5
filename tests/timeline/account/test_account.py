"""Accounts: parts that miss their step are refused, and the changes of two accounts add up to that of the steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import TimelineError
from syncline.timeline.account import StepCause, account_of, subtract
from syncline.timeline.account.sweep import covered, overlap, remainder, sweep

PARTS = st.dictionaries(
    st.tuples(st.sampled_from(list(StepCause)), st.sampled_from(["a", "b", "c"])), st.floats(0, 10), min_size=1
)


def test_parts_that_miss_the_step_are_refused() -> None:
    with pytest.raises(TimelineError, match=r"miss its step of 2 s by 0\.5 s"):
        account_of("measured", 2.0, {(StepCause.KERNELS, "products"): 1.5})


@given(PARTS, PARTS)
def test_changes_add_up(before: dict[tuple[StepCause, str], float], after: dict[tuple[StepCause, str], float]) -> None:
    one = account_of("predicted", sum(before.values()), before)
    other = account_of("measured", sum(after.values()), after)
    found = subtract(one, other)
    for rows in (found.causes, found.lines):
        assert sum(row.change_s for row in rows) == pytest.approx(found.change_s, abs=1e-9)


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


@given(st.lists(SPANS, min_size=3, max_size=3))
def test_every_moment_has_one_layer(layers: list[list[tuple[int, int]]]) -> None:
    made = [
        covered(np.array([a for a, _ in rows], float), np.array([a + b for a, b in rows], float)) for rows in layers
    ]
    bare = sweep(made)
    rest = remainder(made, 0.0, 100.0)
    for moment in range(100):
        at, until = np.array([float(moment)]), np.array([moment + 1.0])
        inside = [bool(overlap(part, at, until)[0] > 0.5) for part in made]
        alone = [bool(overlap(part, at, until)[0] > 0.5) for part in bare]
        first = inside.index(True) if any(inside) else None
        assert [place for place, hit in enumerate(alone) if hit] == ([] if first is None else [first])
        assert (overlap(rest, at, until)[0] > 0.5) == (first is None)


def test_what_two_sources_cut_differently_is_one_line() -> None:
    kernels, network, host = StepCause.KERNELS, StepCause.NETWORK, StepCause.HOST
    before = {(kernels, "layers"): 7.0, (kernels, "optimizer"): 1.0, (network, "gradients"): 2.0}
    after = {
        (kernels, "products"): 5.0,
        (kernels, "memory"): 3.0,
        (kernels, "optimizer"): 2.0,
        (host, "launching"): 2.0,
    }
    predicted, measured = account_of("predicted", 10.0, before), account_of("measured", 12.0, after)
    lines = {(row.cause, row.what): (row.before_s, row.after_s) for row in subtract(predicted, measured).lines}
    assert lines == {
        (StepCause.KERNELS, "all else"): (7.0, 8.0), (StepCause.KERNELS, "optimizer"): (1.0, 2.0),
        (StepCause.NETWORK, "gradients"): (2.0, 0.0), (StepCause.HOST, "launching"): (0.0, 2.0),
    }  # fmt: skip
    again = subtract(measured, account_of("measured", 4.0, {(StepCause.KERNELS, "attention"): 4.0}))
    assert "all else" not in {row.what for row in again.lines}
