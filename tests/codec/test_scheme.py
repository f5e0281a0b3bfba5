"""What every scheme promises: sizes, bounds, error feedback, the edges, errors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.codec.bounds import error_bound

from syncline.codec.dense import Dense
from syncline.codec.names import FAMILIES, dense, scheme
from syncline.errors import CodecError

DENSE = [
    "fp32",
    "fp16",
    "bf16",
    "int8",
    "int8:block=32",
    "int4",
    "int4:block=64",
    "sign",
    "sign:block=32",
]
LISTED = {name.partition(":")[0] for name in (*DENSE, "powersgd")}
NAMES = [*DENSE, *sorted(FAMILIES.keys() - LISTED)]  # a family that is new is tried as it comes

vectors = hnp.arrays(
    np.float32,
    st.one_of(st.integers(0, 40), st.integers(0, 700)),
    elements=st.floats(-1e6, 1e6, width=32),
    fill=st.sampled_from([0.0, 1.0]),
)


def round_trip(codec: Dense, values: np.ndarray) -> np.ndarray:
    payload = np.full(codec.wire_bytes(values.size), 0xEE, np.uint8)
    assert codec.encode(values, payload) == np.isfinite(values).all()
    out = np.full(values.size, 99, np.float32)
    codec.decode(payload, out)
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("feedback", [False, True])
def test_reduce_is_add_encode_and_decode_in_one(name: str, feedback: bool) -> None:
    codec, own = dense(name), gradient(5000)
    received = []
    for seed in (1, 2, 3):
        payload = np.zeros(codec.wire_bytes(own.size), np.uint8)
        codec.encode(gradient(5000, seed), payload)
        received.append(payload)
    results = []
    for together in (True, False):
        total, left = own.copy(), gradient(5000, 4) if feedback else None
        sent = np.zeros_like(received[0])
        if together:
            assert codec.reduce(received, total, sent, left, before=0.25, after=2.0)
        else:
            for payload in received:
                codec.decode(payload, total, add=True)
            total *= np.float32(0.25)
            codec.encode(total, sent, left)
            codec.decode(sent, total, scale=2.0)
        results.append((total, sent, left))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def gradient(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(values=vectors)
@example(values=np.zeros(0, np.float32))
@example(values=np.array([-3.5], np.float32))
@example(values=np.array([0.0, -0.0, 1e-45, -1e-45], np.float32))
@example(values=np.full(300, -7.0, np.float32))
def test_error_stays_within_its_bound(name: str, values: np.ndarray) -> None:
    codec = dense(name)
    error = values.astype(np.float64) - round_trip(codec, values)
    bound = error_bound(codec, values)
    assert bound.max_abs is not None or bound.contraction is not None
    if bound.max_abs is not None:
        over = np.abs(error) > bound.max_abs
        assert not over.any(), (values[over], error[over], bound.max_abs[over])
    if bound.contraction is not None:
        square = float((values.astype(np.float64) ** 2).sum())
        assert float((error**2).sum()) <= bound.contraction * square * (1 + 1e-5) + 1e-30


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), n=st.sampled_from([0, 1, 2, 33, 257, 5000]), steps=st.integers(1, 12))
def test_what_was_sent_and_what_is_owed_is_what_went_in(name: str, seed: int, n: int, steps: int) -> None:
    codec, rng = dense(name), np.random.default_rng(seed)
    residual = np.zeros(n, np.float32)
    payload, total = np.empty(codec.wire_bytes(n), np.uint8), np.zeros(n, np.float32)
    went_in = np.zeros(n)
    for _ in range(steps):
        values = rng.standard_normal(n).astype(np.float32)
        went_in += values
        codec.encode(values, payload, residual)
        codec.decode(payload, total, add=True)
    np.testing.assert_allclose(total + residual.astype(np.float64), went_in, atol=2e-5 * steps)


@pytest.mark.parametrize("name", ["int8", "int4", "sign"])
def test_error_feedback_stays_small_over_many_steps(name: str) -> None:
    codec, n = dense(name), 2000
    residual = np.zeros(n, np.float32)
    payload = np.empty(codec.wire_bytes(n), np.uint8)
    sizes = []
    for step in range(200):
        codec.encode(gradient(n, step), payload, residual)
        sizes.append(float(np.linalg.norm(residual)))
    assert max(sizes[100:]) < 1.5 * max(sizes[:100])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [1, 700])
def test_what_is_not_finite_is_seen_and_leaves_no_trace(name: str, bad: float, n: int) -> None:
    codec = dense(name)
    values, residual = gradient(n), gradient(n, 1)
    values[n // 2] = bad
    before = residual.copy()
    payload = np.empty(codec.wire_bytes(n), np.uint8)
    codec.encode(values, payload, residual)
    out = np.zeros(n, np.float32)
    codec.decode(payload, out)
    seen = ~np.isfinite(out)
    assert seen.any()
    assert seen[n // 2]
    assert np.isfinite(residual).all()
    if name != "fp32":
        np.testing.assert_array_equal(residual[seen], before[seen])
    # The next step is clean again.
    codec.encode(gradient(n, 2), payload, residual)
    codec.decode(payload, out)
    assert np.isfinite(out).all()
    assert np.isfinite(residual).all()


@pytest.mark.parametrize("name", NAMES)
def test_zero_and_denormal_numbers(name: str) -> None:
    codec = dense(name)
    assert not round_trip(codec, np.zeros(600, np.float32)).any()
    tiny = np.full(600, 1e-42, np.float32)
    assert np.all(np.abs(round_trip(codec, tiny)) <= 1e-30)
    residual = np.zeros(600, np.float32)
    payload, out = np.empty(codec.wire_bytes(600), np.uint8), np.empty(600, np.float32)
    codec.encode(tiny, payload, residual)
    codec.decode(payload, out)
    np.testing.assert_allclose(out + residual, tiny, atol=1e-44)


@pytest.mark.parametrize("name", NAMES)
def test_decode_adds_and_scales(name: str) -> None:
    codec, values = dense(name), gradient(900)
    payload = np.empty(codec.wire_bytes(900), np.uint8)
    codec.encode(values, payload)
    once, out = np.empty(900, np.float32), np.ones(900, np.float32)
    codec.decode(payload, once)
    codec.decode(payload, out, add=True, scale=-0.5)
    np.testing.assert_allclose(out, 1 - 0.5 * once, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_lengths_raise_and_write_nothing(name: str) -> None:
    codec, values = dense(name), gradient(300)
    size = codec.wire_bytes(300)
    for wrong in (size - 1, size + 1, 0, size - 4, size + 4):
        payload, out = np.zeros(wrong, np.uint8), np.ones(300, np.float32)
        with pytest.raises(CodecError, match=rf"for 300 elements has {size} bytes; this one has {wrong}"):
            codec.decode(payload, out)
        assert (out == 1).all()
        with pytest.raises(CodecError, match=f"this one has {wrong}"):
            codec.encode(values, payload)
    with pytest.raises(CodecError, match="the residual has 299 elements and the values 300"):
        codec.encode(values, np.zeros(size, np.uint8), np.zeros(299, np.float32))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_garbage_raises_or_decodes_inside_the_array(name: str, data: st.DataObject) -> None:
    codec, n = dense(name), 300
    garbage = data.draw(hnp.arrays(np.uint8, codec.wire_bytes(n), fill=st.sampled_from([0, 255, 7])))
    # Walls on both sides: a write outside is seen.
    walls = np.full(n + 64, 5, np.float32)
    out = walls[32 : 32 + n]
    try:
        codec.decode(garbage, out, add=data.draw(st.booleans()))
    except CodecError as error:
        assert "damaged" in str(error)
        assert (out == 5).all()
    assert (walls[:32] == 5).all()
    assert (walls[-32:] == 5).all()


def test_encode_refuses_what_kernels_cannot_take() -> None:
    codec, values = dense("int8"), gradient(64)
    payload = np.empty(codec.wire_bytes(64), np.uint8)
    with pytest.raises(CodecError, match="values must be a contiguous one-dimensional float32 array; got float64"):
        codec.encode(values.astype(np.float64), payload)  # type: ignore[arg-type]
    with pytest.raises(CodecError, match="with gaps or at an odd address"):
        codec.encode(gradient(128)[::2], payload)
    with pytest.raises(CodecError, match="got list"):
        codec.encode([1.0], payload)  # type: ignore[arg-type]
    payload.setflags(write=False)
    with pytest.raises(CodecError, match="read-only"):
        codec.encode(values, payload)
    values.setflags(write=False)
    with pytest.raises(CodecError, match="read-only"):
        codec.decode(payload, values)


@pytest.mark.parametrize("name", DENSE)
def test_nothing_is_allocated_after_the_first_step(name: str) -> None:
    codec, n = dense(name), 200_000
    values, residual, out = gradient(n), *np.zeros((2, n), np.float32)
    payload = np.empty(codec.wire_bytes(n), np.uint8)
    for step in range(2):
        if step:
            tracemalloc.start()
        codec.encode(values, payload, residual)
        codec.decode(payload, out, add=True)
        codec.decode(payload, out)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 20_000


@pytest.mark.parametrize("name", NAMES)
def test_the_price_is_the_wire(name: str) -> None:
    codec = dense(name)
    price = codec.price(encode_Bps=2e9, num_elements=10_000)
    assert price.name == codec.name
    assert price.wire_ratio == codec.wire_bytes(10_000) / 40_000
    assert price.encode_Bps == 2e9


def test_wire_sizes_are_what_the_page_says() -> None:
    n = 25_460_000
    sizes = {name: scheme(name).wire_bytes(n) / n * 8 for name in ("int8", "int4", "sign", "bf16")}
    wanted = {"int8": 8.0625, "int4": 4.03125, "sign": 1.0625, "bf16": 16.0}
    assert sizes == pytest.approx(wanted, rel=1e-5)
