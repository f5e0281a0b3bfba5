"""int8 and int4 by block, and fp8: encode with residual and decode-and-add, one pass each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from syncline.runtime.sync.gpu.arithmetic import (
    EXACT,
    HUGE_BITS,
    INF_BITS,
    NAN_BITS,
    TINY_BITS,
    as_float,
    divide,
    draw,
    give,
    magnitude_bits,
    owed,
    rint,
)

LEVELS = {8: 127, 4: 7}
TILE = 1024
"""Elements a program holds at once: small enough to stay in registers, several blocks when blocks are small."""
FORMATS = {"e4m3": (3, 7, 0x7E, 448.0), "e5m2": (2, 15, 0x7B, 57344.0)}


@triton.jit
def _scales(top, INVERSE_LEVELS: tl.constexpr):
    # A bfloat16, rounded up.
    exact = (as_float(top) * INVERSE_LEVELS).to(tl.int32, bitcast=True) + 0xFFFF
    scale = as_float(exact & -0x10000)
    inverse = divide(1.0, scale)
    tiny, poisoned = top < TINY_BITS, top >= HUGE_BITS
    scale = tl.where(tiny, 0.0, tl.where(poisoned, as_float(tl.full(top.shape, NAN_BITS, tl.int32)), scale))
    return scale, tl.where(tiny | poisoned, 0.0, inverse)


@triton.jit
def _upper_half(scale):
    return (scale.to(tl.int32, bitcast=True) >> 16).to(tl.int16)


@triton.jit
def _from_half(half):
    return as_float(half.to(tl.int32) << 16)


@triton.jit
def _load_input(values, residual, at, mask, FEEDBACK: tl.constexpr):
    a = tl.load(values + at, mask=mask, other=0.0)
    r = a
    if FEEDBACK:
        r = tl.load(residual + at, mask=mask, other=0.0)
        a = a + r
    return a, r


@triton.jit(do_not_specialize=["key"])
def _encode_block(values, residual, scales, codes, n, key, INVERSE_LEVELS: tl.constexpr, LEVEL: tl.constexpr,
                  BITS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, STOCHASTIC: tl.constexpr,
                  FEEDBACK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = at < n
    a, r = _load_input(values, residual, at, mask, FEEDBACK)
    top = tl.max(magnitude_bits(a), axis=1)
    scale, inverse = _scales(top, INVERSE_LEVELS)
    poisoned = top >= HUGE_BITS
    x = tl.where(poisoned[:, None], 0.0, a * inverse[:, None])
    if STOCHASTIC:
        low = tl.floor(x)
        chance = (draw(at, key) >> 8).to(tl.float32) * 5.9604644775390625e-08
        q = low + (chance < x - low).to(tl.float32)
    else:
        q = rint(x)
    q = tl.minimum(tl.maximum(q, -LEVEL), LEVEL)
    tl.store(scales + row, _upper_half(scale), mask=row * BLOCK < n)
    if BITS == 8:
        tl.store(codes + at, q.to(tl.int8).to(tl.uint8, bitcast=True), mask=mask)
    else:
        PER: tl.constexpr = 8 // BITS
        low_bits = tl.where(mask, q.to(tl.int32) & ((1 << BITS) - 1), 0)
        lane = tl.arange(0, PER)[None, None, :] * BITS
        packed = tl.sum(tl.reshape(low_bits, (ROWS, BLOCK // PER, PER)) << lane, axis=2)
        byte = row[:, None] * (BLOCK // PER) + tl.arange(0, BLOCK // PER)[None, :]
        tl.store(codes + byte, packed.to(tl.uint8), mask=byte < (n + PER - 1) // PER)
    if FEEDBACK:
        tl.store(residual + at, owed(a, q * scale[:, None], r), mask=mask)


@triton.jit
def _decode_block(scales, codes, out, n, factor, BITS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
                  ADD: tl.constexpr):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = at < n
    scale = _from_half(tl.load(scales + at // BLOCK, mask=mask, other=0))
    if BITS == 8:
        code = tl.load(codes + at, mask=mask, other=0).to(tl.int8, bitcast=True).to(tl.float32)
    else:
        PER: tl.constexpr = 8 // BITS
        byte = tl.load(codes + at // PER, mask=mask, other=0).to(tl.int32)
        place = (at % PER).to(tl.int32) * BITS
        # Up to the top of the word, then down with the sign.
        code = ((byte << (32 - BITS - place)) >> (32 - BITS)).to(tl.float32)
    decoded = code * scale
    before = tl.load(out + at, mask=mask, other=0.0) if ADD else decoded
    tl.store(out + at, give(before, decoded, factor, ADD), mask=mask)


@triton.jit
def _fp8_code(x, MANTISSA: tl.constexpr, BIAS: tl.constexpr, LARGEST: tl.constexpr):
    bits = magnitude_bits(x)
    DROP: tl.constexpr = 23 - MANTISSA
    rounded = bits + ((1 << (DROP - 1)) - 1) + ((bits >> DROP) & 1)
    normal = (rounded >> DROP) - ((127 - BIAS) << MANTISSA)
    step = rint(as_float(bits) * as_float(tl.full(bits.shape, (127 + BIAS + MANTISSA - 1) << 23, tl.int32))).to(
        tl.int32
    )
    code = tl.where(bits < ((128 - BIAS) << 23), tl.minimum(step, 1 << MANTISSA), normal)
    sign = (x.to(tl.int32, bitcast=True) >> 31) & 1
    return tl.minimum(code, LARGEST) | (sign << 7)


@triton.jit
def _fp8_value(code, MANTISSA: tl.constexpr, BIAS: tl.constexpr, LARGEST: tl.constexpr):
    low = code & 0x7F
    exponent, fraction = low >> MANTISSA, low & ((1 << MANTISSA) - 1)
    normal = as_float(((exponent + (127 - BIAS)) << 23) | (fraction << (23 - MANTISSA)))
    small = fraction.to(tl.float32) * as_float(tl.full(code.shape, (127 - BIAS - MANTISSA + 1) << 23, tl.int32))
    value = tl.where(exponent == 0, small, normal)
    beyond = tl.full(code.shape, NAN_BITS, tl.int32)
    if LARGEST == 0x7B:
        beyond = tl.where(low == LARGEST + 1, INF_BITS, beyond)
    value = tl.where(low > LARGEST, as_float(beyond), value)
    return as_float(value.to(tl.int32, bitcast=True) ^ ((code & 0x80) << 24))


@triton.jit
def _encode_fp8(values, residual, scales, codes, n, INVERSE_LEVELS: tl.constexpr, MANTISSA: tl.constexpr,
                BIAS: tl.constexpr, LARGEST: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
                FEEDBACK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = at < n
    a, r = _load_input(values, residual, at, mask, FEEDBACK)
    top = tl.max(magnitude_bits(a), axis=1)
    scale, inverse = _scales(top, INVERSE_LEVELS)
    x = tl.where((top >= HUGE_BITS)[:, None], 0.0, a * inverse[:, None])
    code = _fp8_code(x, MANTISSA, BIAS, LARGEST)
    tl.store(scales + row, _upper_half(scale), mask=row * BLOCK < n)
    tl.store(codes + at, code.to(tl.uint8), mask=mask)
    if FEEDBACK:
        decoded = _fp8_value(code, MANTISSA, BIAS, LARGEST) * scale[:, None]
        tl.store(residual + at, owed(a, decoded, r), mask=mask)


@triton.jit
def _decode_fp8(scales, codes, out, n, factor, MANTISSA: tl.constexpr, BIAS: tl.constexpr, LARGEST: tl.constexpr,
                BLOCK: tl.constexpr, TILE: tl.constexpr, ADD: tl.constexpr):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = at < n
    code = tl.load(codes + at, mask=mask, other=0).to(tl.int32)
    scale = _from_half(tl.load(scales + at // BLOCK, mask=mask, other=0))
    decoded = _fp8_value(code, MANTISSA, BIAS, LARGEST) * scale
    before = tl.load(out + at, mask=mask, other=0.0) if ADD else decoded
    tl.store(out + at, give(before, decoded, factor, ADD), mask=mask)


def _parts(payload: torch.Tensor, n: int, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    header = 4 * triton.cdiv(n, 2 * block)
    return payload[:header].view(torch.int16), payload[header:]


def _inverse(levels: float) -> float:
    """Return float32(1 / levels) as a number that Triton reads as that float32."""
    return float(torch.tensor(1.0 / levels, dtype=torch.float32))


def encode_block(values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor | None, bits: int, block: int,
                 stochastic: bool, key: int) -> None:  # fmt: skip
    """Quantise by block to signed codes of 8 or 4 bits."""
    n = values.numel()
    if n == 0:
        return
    scales, codes = _parts(payload, n, block)
    scales[triton.cdiv(n, block) :].zero_()
    rows = max(1, TILE // block)
    _encode_block[(triton.cdiv(n, rows * block),)](
        values, values if residual is None else residual, scales, codes, n, key, _inverse(LEVELS[bits]),
        float(LEVELS[bits]), bits, block, rows, stochastic, residual is not None, num_warps=4, **EXACT,
    )  # fmt: skip


def decode_block(payload: torch.Tensor, out: torch.Tensor, bits: int, block: int, add: bool, scale: float) -> None:
    """Read what `encode_block` wrote."""
    n = out.numel()
    if n == 0:
        return
    scales, codes = _parts(payload, n, block)
    _decode_block[(triton.cdiv(n, TILE),)](scales, codes, out, n, scale, bits, block, TILE, add, num_warps=4, **EXACT)


def encode_fp8(
    values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor | None, fmt: str, block: int
) -> None:
    """Scale each block to the range of an 8-bit float and round to it, ties to even."""
    n = values.numel()
    if n == 0:
        return
    scales, codes = _parts(payload, n, block)
    scales[triton.cdiv(n, block) :].zero_()
    mantissa, bias, largest_code, largest = FORMATS[fmt]
    rows = max(1, TILE // block)
    _encode_fp8[(triton.cdiv(n, rows * block),)](
        values, values if residual is None else residual, scales, codes, n, _inverse(largest), mantissa, bias,
        largest_code, block, rows, residual is not None, num_warps=4, **EXACT,
    )  # fmt: skip


def decode_fp8(payload: torch.Tensor, out: torch.Tensor, fmt: str, block: int, add: bool, scale: float) -> None:
    """Read what `encode_fp8` wrote."""
    n = out.numel()
    if n == 0:
        return
    scales, codes = _parts(payload, n, block)
    mantissa, bias, largest_code, _ = FORMATS[fmt]
    _decode_fp8[(triton.cdiv(n, TILE),)](
        scales, codes, out, n, scale, mantissa, bias, largest_code, block, TILE, add, num_warps=4, **EXACT
    )
