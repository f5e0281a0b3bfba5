"""Every variant of every kernel gives the bytes and the residual of the NumPy reference, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.codec import reference, reference_sparse

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


def compare(
    case: dict[str, Any], num_bytes: int, encode: str, decode: str, options: tuple[Any, ...], skip: int = 0
) -> None:
    """Encode and decode with the reference and with each variant, and compare payloads, residuals and results.

    `options` go to encode, all but the last `skip` to decode.
    """
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
            getattr(native, decode)(payload, out, *options[: len(options) - skip], add, scale, variant=variant)
            getattr(reference, decode)(wanted, wanted_out, *options[: len(options) - skip], add, scale)
            same(out, wanted_out)
    compare_reduce(values, residual, wanted, encode.removesuffix("_encode"), options, skip)


def compare_reduce(
    values: np.ndarray,
    residual: np.ndarray | None,
    payload: np.ndarray,
    family: str,
    options: tuple[Any, ...],
    skip: int,
) -> None:
    """Add payloads and encode the sum, one call after the other with the reference and in one with each variant."""
    received = [payload, payload]
    encode, decode = getattr(reference, f"{family}_encode"), getattr(reference, f"{family}_decode")
    for before, after in ((0.25, 1.0), (1.0, -0.5)):
        own, left = values.copy(), None if residual is None else residual.copy()
        for part in received:
            decode(part, own, *options[: len(options) - skip], True, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            summed = own * np.float32(before)
        own, sent = summed.copy(), np.zeros_like(payload)
        finite = encode(own, sent, left, *options)
        decode(sent, own, *options[: len(options) - skip], False, after)
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
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@example(DAMAGED, 8, 256, False, 0)
@example(PLAIN | {"size": 4500}, 4, 1024, True, 7)
def test_blocks(case: dict[str, Any], bits: int, block: int, stochastic: bool, key: int) -> None:
    n = case["size"]
    num_bytes = 4 * -(-n // (2 * block)) + -(-n * bits // 8)
    compare(case, num_bytes, "block_encode", "block_decode", (bits, block, stochastic, key), skip=2)


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


@given(cases, st.sampled_from(["e4m3", "e5m2"]), st.sampled_from([32, 256]))
@example(DAMAGED, "e4m3", 256)
def test_fp8(case: dict[str, Any], fmt: str, block: int) -> None:
    n = case["size"]
    compare(case, 4 * -(-n // (2 * block)) + n, "fp8_encode", "fp8_decode", (fmt, block))


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


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fmt", ["e4m3", "e5m2"])
def test_every_fp8_code_means_what_torch_says(fmt: str, variant: int) -> None:
    torch = pytest.importorskip("torch", reason="compares with torch's own float8")
    codes = np.arange(256, dtype=np.uint8)
    dtype = torch.float8_e4m3fn if fmt == "e4m3" else torch.float8_e5m2
    wanted = torch.from_numpy(codes).view(dtype).to(torch.float32).numpy()
    payload = np.concatenate([np.array([0x3F80, 0], np.uint16).view(np.uint8), codes])
    out = np.empty(256, np.float32)
    native.fp8_decode(payload, out, fmt, 256, False, 1.0, variant=variant)
    same(out, wanted)
    same(reference.fp8_table(fmt), wanted)


@given(cases, st.integers(1, 5000), st.sampled_from([1, 1, 2, 7]), st.integers(0, 6))
@example(PLAIN | {"size": 4500, "shape": "ties"}, 100, 1, 0)
def test_thresholds(case: dict[str, Any], wanted: int, stride: int, offset: int) -> None:
    values, residual = arrays(case)
    if not values.size:
        return
    wanted, offset = min(wanted, values.size), offset % stride
    histogram = np.full(1 << 15, 99, np.uint32)
    expected = reference_sparse.threshold(values, residual, wanted, stride, offset)
    for variant in VARIANTS:
        assert native.threshold(values, residual, wanted, stride, offset, histogram, variant) == expected
    if stride == 1:
        with np.errstate(over="ignore", invalid="ignore"):
            size = (values if residual is None else values + residual).view(np.uint32) & 0x7FFFFFFF
        assert expected[0] == max(1, int(np.sort(size)[-wanted]))
        if expected[0] > 1:
            assert expected[1] == wanted - int((size > expected[0]).sum())


@given(cases, st.one_of(st.integers(1, 0x7F800000), st.just(0x3F800000)), st.integers(0, 300), st.integers(1, 600))
@example(PLAIN, 1, 9, 40)
@example(DAMAGED, 1, 9, 40)
@example(PLAIN | {"size": 4500, "special": ["huge", "inf"]}, 0x3F000000, 4500, 600)
@example(PLAIN | {"size": 4500, "shape": "equal", "residual": None}, 0x3F800000, 50, 60)
@example(PLAIN | {"size": 4500, "shape": "ties", "residual": None}, 0x3F800000, 3, 5000)
@example({"size": 513, "seed": 0, "exponent": -31, "shape": "wide", "special": [], "residual": None}, 1, 1, 6)
def test_selection(case: dict[str, Any], threshold: int, ties: int, room: int) -> None:
    values, residual = arrays(case)
    wanted_left = None if residual is None else residual.copy()
    wanted = np.full((2, 4 * room), 0xA5, np.uint8)
    count = reference_sparse.select(values, wanted_left, threshold, ties, wanted[0], wanted[1])
    for variant in VARIANTS:
        left = None if residual is None else residual.copy()
        kept = np.full((2, 4 * room), 0x5A, np.uint8)
        assert native.select(values, left, threshold, ties, kept[0], kept[1], variant) == count
        same(kept, wanted)
        same(left, wanted_left)
        for add in (False, True):
            out = np.ones(values.size, np.float32)
            wanted_out = out.copy()
            native.scatter(kept[0], kept[1], count[0], out, add, 0.5)
            reference_sparse.scatter(kept[0], kept[1], count[0], wanted_out, add, 0.5)
            # Half of the smallest number is rounded to zero; a fused product and sum keeps its sign.
            same(out + np.float32(0), wanted_out + np.float32(0))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda v, p, o: native.block_encode(v, p[:-1], None, 8, 256, False, 0), "payload has the wrong length"),
        (lambda v, p, o: native.block_encode(v, p, o[:5], 8, 256, False, 0), "residual and values differ in length"),
        (lambda v, p, o: native.block_encode(v, p, None, 3, 256, False, 0), "bits must be 8"),
        (lambda v, p, o: native.block_decode(p, o, 8, 48, False, 1.0), "block must be a power of two, 32 to 65536"),
        (lambda v, p, o: native.block_decode(p, o, 8, 256, False, 1.0, 9), "variant is -1"),
        (lambda v, p, o: native.sign_decode(p, o, 256, False, 1.0), "payload has the wrong length"),
        (lambda v, p, o: native.block_reduce([p[1:]], o, p, None, 8, 256, False, 0, 1, 1), "has the wrong length"),
        (lambda v, p, o: native.sign_reduce([], o, p, None, 256, 1, 1), "payload has the wrong length"),
        (lambda v, p, o: native.cast_reduce([p], o, None, None, "bf16", 1, 1), "payload has the wrong length"),
        (lambda v, p, o: native.fp8_reduce([p], o, p, o[1:], "e4m3", 256, 1, 1), "residual and values differ"),
        (lambda v, p, o: native.cast_decode(p, o, "fp16", False, 1.0), "payload has the wrong length"),
        (lambda v, p, o: native.cast_decode(p, o, "fp17", False, 1.0), "kind is fp16, bf16 or fp32"),
        (lambda v, p, o: native.fp8_encode(v, p[:-2], None, "e4m3", 256), "payload has the wrong length"),
        (lambda v, p, o: native.select(v, None, 0, 1, p[:8], p[8:16]), "threshold must be the bits of a magnitude"),
        (lambda v, p, o: native.select(v, None, 5, 1, p[:8], p[8:20]), "index and value need 4 bytes for each place"),
        (lambda v, p, o: native.scatter(p[:8], p[8:16], 3, o, True, 1.0), "count is beyond the places"),
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
