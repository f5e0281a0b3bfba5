"""Pipeline orders: every micro-batch once forward and once backward, and no more in flight than the schedule says."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.workload.parallel import Parallel
from syncline.workload.pipeline import stage_order


@given(
    pp=st.integers(2, 6),
    virtual=st.integers(1, 3),
    num_micro=st.integers(1, 14),
    schedule=st.sampled_from(["1f1b", "gpipe", "zero-bubble"]),
)
def test_every_item_once_and_backward_after_forward(pp: int, virtual: int, num_micro: int, schedule: str) -> None:
    kind = "interleaved" if virtual > 1 else schedule
    split = Parallel(pp=pp, virtual=virtual, schedule=kind)  # type: ignore[arg-type]
    for stage in range(pp):
        order = stage_order(split, stage, num_micro)
        counts = Counter(order)
        assert set(counts.values()) == {1}
        assert {item[1:] for item in order if item[0] == "F"} == {
            (c, m) for c in range(virtual) for m in range(num_micro)
        }
        place = {item: i for i, item in enumerate(order)}
        for _, chunk, micro in (item for item in order if item[0] == "F"):
            assert place["F", chunk, micro] < place["B", chunk, micro]
            if kind == "zero-bubble":
                assert place["B", chunk, micro] < place["W", chunk, micro]


@pytest.mark.parametrize(("schedule", "most"), [("1f1b", 4), ("gpipe", 12)])
def test_activations_in_flight(schedule: str, most: int) -> None:
    flying = peak = 0
    for phase, _, _ in stage_order(Parallel(pp=4, schedule=schedule), 0, 12):  # type: ignore[arg-type]
        flying += 1 if phase == "F" else -1
        peak = max(peak, flying)
    assert peak == most
