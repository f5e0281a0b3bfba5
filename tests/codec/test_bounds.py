"""Error bounds by hand: a bound is kept (test_scheme.py), and no looser than the arithmetic makes it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.codec.test_scheme import round_trip

from syncline.codec.names import scheme

BLOCK = 256
SCALE_ROUNDED_UP = 129 / 128  # a scale is rounded up to 8 bits


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("int8", 0.5 / 127),
        ("int8:round=stochastic", 1 / 127),
        ("int4:block=256", 0.5 / 7),
        ("int4:block=256,round=stochastic", 1 / 7),
    ],
)
def test_bounds_of_blocks_are_half_a_step_or_one(name: str, step: float) -> None:
    values = np.concatenate([np.full(BLOCK, 1.0), np.full(BLOCK, -8.0), np.zeros(BLOCK)]).astype(np.float32)
    bound = scheme(name).error_bound(values).max_abs
    assert bound is not None
    for block, top in enumerate((1.0, 8.0)):
        assert bound[BLOCK * block : BLOCK * (block + 1)] == pytest.approx(top * step * SCALE_ROUNDED_UP, rel=2e-4)
    assert (bound[2 * BLOCK :] < 1e-29).all(), "zeros are sent as zeros"


@pytest.mark.parametrize("name", ["int8", "int4:block=256"])
def test_values_half_way_between_two_steps_come_near_the_bound(name: str) -> None:
    codec = scheme(name)
    values = np.linspace(-1.0, 1.0, BLOCK * 64, dtype=np.float32)
    values[::BLOCK] = 1.0
    bound = codec.error_bound(values).max_abs
    assert bound is not None
    error = np.abs(round_trip(codec, values) - values)
    assert (error <= bound).all()
    assert (error / bound).max() > 0.95
