"""Every variant of every kernel gives the bytes and the residual of the NumPy reference, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.codec import reference

from syncline._native import codecs as native

VARIANTS = native.variants()
SPECIAL = {
    "nan": np.nan,
    "inf": np.inf,
    "minus_inf": -np.inf,
    "minus_zero": -0.0,
    "denormal": 1e-42,
    "huge": 3.4e38,
    "fp16_edge": 65519.9,
    "fp16_over": 65520.0,
}
SIZES = [0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 100, 255, 256, 257, 513, 1000, 2047, 2049, 4500]

cases = st.fixed_dictionaries(
    {
        "size": st.sampled_from(SIZES),
        "seed": st.integers(0, 2**32 - 1),
        "exponent": st.integers(-45, 38),
        "shape": st.sampled_from(["normal", "equal", "ties", "sparse", "wide"]),
        "special": st.lists(st.sampled_from(sorted(SPECIAL)), max_size=3),
        "residual": st.sampled_from([None, "finite", "damaged"]),
    }
)
PLAIN = {"size": 513, "seed": 1, "exponent": 0, "shape": "normal", "special": [], "residual": "finite"}
DAMAGED = PLAIN | {"special": ["nan"], "residual": "damaged"}


def arrays(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return values and residual of a case."""
    rng = np.random.default_rng(case["seed"])
    n = case["size"]
    numbers = {
        "normal": lambda: rng.standard_normal(n),
        "equal": lambda: rng.choice([-1.0, 1.0], n),
        "ties": lambda: rng.integers(-254, 255, n) / 2,
        "sparse": lambda: rng.standard_normal(n) * (rng.random(n) < 0.05),
        "wide": lambda: rng.standard_normal(n) * 10.0 ** rng.integers(-30, 4, n),
    }[case["shape"]]()
    with np.errstate(over="ignore", under="ignore"):
        values = (numbers * 10.0 ** case["exponent"]).astype(np.float32)
        residual = (rng.standard_normal(n) * 10.0 ** (case["exponent"] - 1)).astype(np.float32)
    for name in case["special"]:
        if n:
            values[rng.integers(n)] = SPECIAL[name]
    if case["residual"] is None:
        return values, None
    if case["residual"] == "damaged" and n:
        residual[rng.integers(n)] = np.nan
    return values, residual


def same(first: np.ndarray | None, second: np.ndarray | None) -> None:
    """Equal bit for bit, except that any NaN is as good as another."""
    if first is None or second is None:
        assert first is second
        return
    if first.dtype == np.float32:
        nan = np.isnan(first) & np.isnan(second)
        first, second = (np.where(nan, np.float32(0), array).view(np.uint32) for array in (first, second))
    np.testing.assert_array_equal(first, second)


def compare(case: dict[str, Any], num_bytes: int, encode: str, decode: str, options: tuple[Any, ...]) -> None:
    """Encode and decode with the reference and with each variant, and compare payloads, residuals and results."""
    values, residual = arrays(case)
    wanted = np.full(num_bytes, 0xA5, np.uint8)
    wanted_residual = None if residual is None else residual.copy()
    finite = getattr(reference, encode)(values, wanted, wanted_residual, *options)
    for variant in VARIANTS:
        # One byte in: payloads may start anywhere.
        payload = np.full(num_bytes + 1, 0x5A, np.uint8)[1:]
        left = None if residual is None else residual.copy()
        assert getattr(native, encode)(values, payload, left, *options, variant=variant) == finite
        same(payload, wanted)
        same(left, wanted_residual)
        for add, scale in ((False, 1.0), (True, 1.0), (True, 0.3), (False, -2.5)):
            out = np.linspace(-3, 3, values.size, dtype=np.float32)
            wanted_out = out.copy()
            getattr(native, decode)(payload, out, *options, add, scale, variant=variant)
            getattr(reference, decode)(wanted, wanted_out, *options, add, scale)
            same(out, wanted_out)
    compare_reduce(values, residual, wanted, encode.removesuffix("_encode"), options)


def compare_reduce(
    values: np.ndarray,
    residual: np.ndarray | None,
    payload: np.ndarray,
    family: str,
    options: tuple[Any, ...],
) -> None:
    """Add payloads and encode the sum, one call after the other with the reference and in one with each variant."""
    received = [payload, payload]
    encode, decode = getattr(reference, f"{family}_encode"), getattr(reference, f"{family}_decode")
    for before, after in ((0.25, 1.0), (1.0, -0.5)):
        own, left = values.copy(), None if residual is None else residual.copy()
        for part in received:
            decode(part, own, *options, True, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            summed = own * np.float32(before)
        own, sent = summed.copy(), np.zeros_like(payload)
        finite = encode(own, sent, left, *options)
        decode(sent, own, *options, False, after)
        for variant in VARIANTS:
            reduce = getattr(native, f"{family}_reduce")
            found, found_left = values.copy(), None if residual is None else residual.copy()
            written = np.full_like(payload, 0x5A)
            assert reduce(received, found, written, found_left, *options, before, after, variant=variant) == finite
            same(written, sent)
            same(found_left, left)
            same(found, own)
            only_summed = values.copy()
            assert reduce(received, only_summed, None, None, *options, before, after, variant=variant)
            same(only_summed, summed)


@given(
    cases,
    st.sampled_from([8, 4]),
    st.sampled_from([32, 256, 512, 1024, 65536]),
)
@example(DAMAGED, 8, 256)
@example(PLAIN | {"size": 4500}, 4, 1024)
def test_blocks(case: dict[str, Any], bits: int, block: int) -> None:
    n = case["size"]
    num_bytes = 4 * -(-n // (2 * block)) + -(-n * bits // 8)
    compare(case, num_bytes, "block_encode", "block_decode", (bits, block))


@given(cases, st.sampled_from([32, 128, 2048, 65536]))
@example(DAMAGED, 32)
@example(PLAIN | {"size": 4500, "shape": "equal", "exponent": 0}, 2048)
def test_signs(case: dict[str, Any], block: int) -> None:
    n = case["size"]
    compare(case, 4 * -(-n // block) + -(-n // 8), "sign_encode", "sign_decode", (block,))


@given(cases, st.sampled_from(["fp16", "bf16", "fp32"]))
@example(DAMAGED, "fp16")
@example(PLAIN | {"special": ["fp16_over", "fp16_edge", "denormal"]}, "fp16")
def test_casts(case: dict[str, Any], kind: str) -> None:
    compare(case, case["size"] * (4 if kind == "fp32" else 2), "cast_encode", "cast_decode", (kind,))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_half_number_survives(variant: int) -> None:
    codes = np.arange(65536, dtype=np.uint16)
    for kind, view in (("fp16", np.float16), ("bf16", None)):
        payload = codes.view(np.uint8)
        out = np.empty(codes.size, np.float32)
        native.cast_decode(payload, out, kind, False, 1.0, variant=variant)
        with np.errstate(invalid="ignore"):
            wide = codes.view(view).astype(np.float32) if view else (codes.astype(np.uint32) << 16).view(np.float32)
        same(out, wide)
        again = np.empty_like(payload)
        native.cast_encode(out, again, None, kind, variant=variant)
        number = ~np.isnan(out)
        np.testing.assert_array_equal(again.view(np.uint16)[number], codes[number])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda v, p, o: native.block_encode(v, p[:-1], None, 8, 256), "payload has the wrong length"),
        (lambda v, p, o: native.block_encode(v, p, o[:5], 8, 256), "residual and values differ in length"),
        (lambda v, p, o: native.block_encode(v, p, None, 3, 256), "bits must be 8"),
        (lambda v, p, o: native.block_decode(p, o, 8, 48, False, 1.0), "block must be a power of two, 32 to 65536"),
        (lambda v, p, o: native.block_decode(p, o, 8, 256, False, 1.0, 9), "variant is -1"),
        (lambda v, p, o: native.sign_decode(p, o, 256, False, 1.0), "payload has the wrong length"),
        (lambda v, p, o: native.block_reduce([p[1:]], o, p, None, 8, 256, 1, 1), "has the wrong length"),
        (lambda v, p, o: native.sign_reduce([], o, p, None, 256, 1, 1), "payload has the wrong length"),
        (lambda v, p, o: native.cast_reduce([p], o, None, None, "bf16", 1, 1), "payload has the wrong length"),
        (lambda v, p, o: native.cast_decode(p, o, "fp16", False, 1.0), "payload has the wrong length"),
        (lambda v, p, o: native.cast_decode(p, o, "fp17", False, 1.0), "kind is fp16, bf16 or fp32"),
    ],
)
def test_wrong_sizes_are_refused(call: Callable[..., object], text: str) -> None:
    values, payload, out = np.ones(100, np.float32), np.full(104, 255, np.uint8), np.zeros(100, np.float32)
    with pytest.raises(ValueError, match=text):
        call(values, payload, out)
    assert not out.any()


def test_arrays_are_never_converted() -> None:
    with pytest.raises(TypeError):
        native.sign_encode(np.ones(8), np.zeros(5, np.uint8), None, 32)  # type: ignore[arg-type]
    frozen = np.zeros(5, np.uint8)
    frozen.setflags(write=False)
    with pytest.raises(TypeError):
        native.sign_encode(np.ones(8, np.float32), frozen, None, 32)
