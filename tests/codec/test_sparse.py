"""Which elements the sparse schemes keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.codec import scheme
from syncline.codec.sparse import EXACT_UP_TO, TopK


def kept_by(codec: TopK, values: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    payload = np.empty(codec.wire_bytes(values.size), np.uint8)
    codec.encode(values, payload, codec.new_state(values.size, seed=seed))
    words = payload.view(np.uint32)
    room, count = codec.capacity(values.size), int(words[0])
    assert not words[2 + count : 2 + room].any()
    return words[2 : 2 + count].astype(np.int64), words[2 + room : 2 + room + count].view(np.float32)


@given(st.integers(1, 3000), st.sampled_from([0.001, 0.05, 0.5, 1.0]), st.integers(0, 99), st.booleans())
def test_a_small_array_keeps_exactly_the_largest(n: int, keep: float, seed: int, tie: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-5, 6, n).astype(np.float32) if tie else rng.standard_normal(n).astype(np.float32)
    codec = TopK(keep)
    index, value = kept_by(codec, values)
    order = np.argsort(-np.abs(values), kind="stable")[: codec.capacity(n)]
    wanted = np.sort(order[values[order] != 0])
    np.testing.assert_array_equal(index, wanted)
    np.testing.assert_array_equal(value, values[wanted])


@pytest.mark.parametrize("shape", ["normal", "heavy", "sorted"])
@pytest.mark.parametrize("keep", [0.01, 0.1])
def test_a_large_array_keeps_nearly_the_largest_and_never_too_many(shape: str, keep: float) -> None:
    rng = np.random.default_rng(1)
    n = 1_000_003
    values = {
        "normal": lambda: rng.standard_normal(n),
        "heavy": lambda: rng.standard_t(2, n),
        "sorted": lambda: np.sort(rng.standard_normal(n)),
    }[shape]().astype(np.float32)
    assert n > EXACT_UP_TO
    codec = TopK(keep)
    index, value = kept_by(codec, values)
    room = codec.capacity(n)
    assert codec.aim(n) * 0.8 < index.size <= room
    assert (np.diff(index) > 0).all()
    np.testing.assert_array_equal(value, values[index])
    if index.size < room:
        assert np.abs(values).min(initial=np.inf, where=np.isin(np.arange(n), index)) >= np.sort(np.abs(values))[-room]


def test_the_count_stays_near_its_aim_under_error_feedback() -> None:
    codec, n = TopK(0.01), 400_000
    state, residual = codec.new_state(n), np.zeros(n, np.float32)
    payload, counts = np.empty(codec.wire_bytes(n), np.uint8), []
    rng = np.random.default_rng(0)
    for _ in range(30):
        codec.encode(rng.standard_normal(n).astype(np.float32), payload, state, residual)
        counts.append(int(payload[:4].view(np.uint32)[0]))
    assert np.mean(counts) > 0.85 * codec.capacity(n)
    assert sum(count == codec.capacity(n) for count in counts) < 6


def test_equal_numbers_all_have_their_turn() -> None:
    codec, n = scheme("topk:keep=0.1"), 1000
    state, residual, total = codec.new_state(n), np.zeros(n, np.float32), np.zeros(n, np.float32)
    payload = np.empty(codec.wire_bytes(n), np.uint8)
    for _ in range(30):
        codec.encode(np.ones(n, np.float32), payload, state, residual)
        codec.decode(payload, total, add=True)
    assert total.min() > 0
