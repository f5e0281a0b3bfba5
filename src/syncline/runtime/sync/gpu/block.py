"""int8 and int4 by block: encode with residual and decode-and-add, one pass each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from syncline.runtime.sync.gpu.arithmetic import (
    EXACT,
    HUGE_BITS,
    NAN_BITS,
    TINY_BITS,
    as_float,
    divide,
    give,
    magnitude_bits,
    owed,
    rint,
)

LEVELS = {8: 127, 4: 7}
TILE = 1024
"""Elements a program holds at once: small enough to stay in registers, several blocks when blocks are small."""


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


@triton.jit
def _encode_block(values, residual, scales, codes, n, INVERSE_LEVELS: tl.constexpr, LEVEL: tl.constexpr,
                  BITS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, FEEDBACK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = at < n
    a, r = _load_input(values, residual, at, mask, FEEDBACK)
    top = tl.max(magnitude_bits(a), axis=1)
    scale, inverse = _scales(top, INVERSE_LEVELS)
    poisoned = top >= HUGE_BITS
    x = tl.where(poisoned[:, None], 0.0, a * inverse[:, None])
    q = tl.minimum(tl.maximum(rint(x), -LEVEL), LEVEL)
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


def _parts(payload: torch.Tensor, n: int, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    header = 4 * triton.cdiv(n, 2 * block)
    return payload[:header].view(torch.int16), payload[header:]


def _inverse(levels: float) -> float:
    """Return float32(1 / levels) as a number that Triton reads as that float32."""
    return float(torch.tensor(1.0 / levels, dtype=torch.float32))


def encode_block(
    values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor | None, bits: int, block: int
) -> None:
    """Quantise by block to signed codes of 8 or 4 bits."""
    n = values.numel()
    if n == 0:
        return
    scales, codes = _parts(payload, n, block)
    scales[triton.cdiv(n, block) :].zero_()
    rows = max(1, TILE // block)
    _encode_block[(triton.cdiv(n, rows * block),)](
        values, values if residual is None else residual, scales, codes, n, _inverse(LEVELS[bits]),
        float(LEVELS[bits]), bits, block, rows, residual is not None, num_warps=4, **EXACT,
    )  # fmt: skip


def decode_block(payload: torch.Tensor, out: torch.Tensor, bits: int, block: int, add: bool, scale: float) -> None:
    """Read what `encode_block` wrote."""
    n = out.numel()
    if n == 0:
        return
    scales, codes = _parts(payload, n, block)
    _decode_block[(triton.cdiv(n, TILE),)](scales, codes, out, n, scale, bits, block, TILE, add, num_warps=4, **EXACT)
