"""Error bounds by hand: a bound is kept (test_scheme.py), and no looser than the arithmetic makes it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.codec.bounds import block_tops, error_bound
from tests.codec.test_scheme import round_trip

from syncline.codec.dense import Block, Cast
from syncline.codec.names import dense
from syncline.errors import CodecError

BLOCK = 256
SCALE_ROUNDED_UP = 129 / 128  # a scale is rounded up to 8 bits


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("int8", 0.5 / 127),
        ("int4:block=256", 0.5 / 7),
    ],
)
def test_bounds_of_blocks_are_half_a_step(name: str, step: float) -> None:
    values = np.concatenate([np.full(BLOCK, 1.0), np.full(BLOCK, -8.0), np.zeros(BLOCK)]).astype(np.float32)
    bound = error_bound(dense(name), values).max_abs
    assert bound is not None
    for block, top in enumerate((1.0, 8.0)):
        assert bound[BLOCK * block : BLOCK * (block + 1)] == pytest.approx(top * step * SCALE_ROUNDED_UP, rel=2e-4)
    assert (bound[2 * BLOCK :] < 1e-29).all(), "zeros are sent as zeros"


@pytest.mark.parametrize("name", ["int8", "int4:block=256"])
def test_values_half_way_between_two_steps_come_near_the_bound(name: str) -> None:
    codec = dense(name)
    values = np.linspace(-1.0, 1.0, BLOCK * 64, dtype=np.float32)
    values[::BLOCK] = 1.0
    bound = error_bound(codec, values).max_abs
    assert bound is not None
    error = np.abs(round_trip(codec, values) - values)
    assert (error <= bound).all()
    assert (error / bound).max() > 0.95


@pytest.mark.parametrize(("name", "width"), [("fp32", 4), ("fp16", 2), ("bf16", 2)])
def test_casts_say_their_width(name: str, width: int) -> None:
    assert Cast(name).wire_bytes(1000) == 1000 * width


@pytest.mark.parametrize(
    ("name", "relative", "least"), [("fp32", 0.0, 0.0), ("fp16", 2.0**-11, 2.0**-25), ("bf16", 2.0**-8, 2.0**-134)]
)
def test_bounds_of_casts_are_half_a_unit_in_the_last_place(name: str, relative: float, least: float) -> None:
    values = np.array([1.0, -3.0, 1e-30, 0.0], np.float32)
    bound = error_bound(Cast(name), values).max_abs
    assert bound is not None
    assert bound == pytest.approx(np.maximum(np.abs(values) * np.float64(relative), least), rel=2e-6, abs=0)
    assert (bound >= np.maximum(np.abs(values) * np.float64(relative), least).astype(np.float32)).all()
    if name != "fp32":
        # Half-way between two values: nothing errs more.
        step = np.float32(1 + 2 * relative)
        worst = np.array([1 + relative], np.float32)
        assert step > worst > 1
        assert np.abs(round_trip(Cast(name), worst) - worst)[0] == pytest.approx(relative)


def test_only_fp16_overflows() -> None:
    large = np.array([65519.0, 65520.0, -1e30], np.float32)
    bounds = {name: error_bound(Cast(name), large).max_abs for name in ("fp32", "fp16", "bf16")}
    assert bounds["fp16"] is not None and np.isinf(bounds["fp16"]).tolist() == [False, True, True]
    for name in ("fp32", "bf16"):
        bound = bounds[name]
        assert bound is not None and np.isfinite(bound).all()


def test_a_cast_is_no_wider_than_float32_makes_it() -> None:
    bound = error_bound(Cast("bf16"), np.array([1.0], np.float32)).max_abs
    assert bound is not None and 2.0**-8 < float(bound[0]) < 2.0**-8 * (1 + 1.3e-6)


@pytest.mark.parametrize(
    ("block", "name"),
    [(Block(8), "int8"), (Block(4), "int4"), (Block(4, 256), "int4:block=256"),
     (Block(8, 64), "int8:block=64")],
)  # fmt: skip
def test_a_block_is_named_by_what_is_not_usual(block: Block, name: str) -> None:
    assert block.name == name
    assert dense(name).name == name


def test_what_is_no_block_is_refused() -> None:
    assert [Block(8, block).block for block in (32, 65536)] == [32, 65536]
    for block in (16, 131072, 96, 0):
        with pytest.raises(CodecError, match=f"a power of two; got {block}"):
            Block(8, block)


def test_bytes_of_scales_and_codes() -> None:
    assert [Block(8, 64).wire_bytes(n) - n for n in (1, 64, 128, 129)] == [4, 4, 4, 8]  # two scales a word
    assert [Block(bits, 64).wire_bytes(129) for bits in (8, 4)] == [8 + 129, 8 + 65]


def test_the_top_of_a_block_is_its_own_and_the_last_may_be_short() -> None:
    values = np.array([1.0, -2.0] * 32 + [0.5] * 3, np.float32)
    assert block_tops(values, 64).tolist() == [2.0] * 64 + [0.5] * 3


def test_blocks_below_the_least_magnitude_are_sent_as_zeros() -> None:
    tiny = np.full(64, 2.0**-101, np.float32)
    bound = error_bound(Block(8, 64), tiny).max_abs
    assert bound is not None and bound[0] == pytest.approx(2.0**-100, rel=0.01, abs=0)
    assert (round_trip(Block(8, 64), tiny) == 0).all()
    assert (round_trip(Block(8, 64), np.full(64, 2.0**-99, np.float32)) > 0).all()
