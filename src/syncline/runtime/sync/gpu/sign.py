"""One bit an element with the mean magnitude of its block, and plain casts: encode with residual, decode-and-add."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from syncline.runtime.sync.gpu.arithmetic import (
    EXACT,
    INF_BITS,
    NAN_BITS,
    TINY_BITS,
    as_float,
    divide,
    give,
    magnitude_bits,
    owed,
    rint,
)

TILE = 1024
SIGN_TILE = 2048
"""Elements that a program encodes at once: several blocks when blocks are small."""


@triton.jit
def _encode_sign(values, residual, scales, codes, n, BLOCK: tl.constexpr, ROWS: tl.constexpr, POWER: tl.constexpr,
                 FEEDBACK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = at < n
    a = tl.load(values + at, mask=mask, other=0.0)
    r = a
    if FEEDBACK:
        r = tl.load(residual + at, mask=mask, other=0.0)
        a = a + r
    top = tl.max(magnitude_bits(a), axis=1)
    tiny, poisoned = top < TINY_BITS, top >= INF_BITS
    exponent = tl.where(tiny | poisoned, 127, top >> 23)
    shift = POWER - (exponent - 126)
    up, down = as_float((127 + shift) << 23), as_float((127 - shift) << 23)
    fixed = tl.where(poisoned[:, None], 0, rint(tl.abs(a) * up[:, None]).to(tl.int32))
    count = tl.maximum(tl.minimum(n - row * BLOCK, BLOCK), 1).to(tl.float32)
    scale = divide(tl.sum(fixed, axis=1).to(tl.float32), count) * down
    scale = tl.where(tiny, 0.0, tl.where(poisoned, as_float(tl.full(top.shape, NAN_BITS, tl.int32)), scale))
    tl.store(scales + row, scale, mask=row * BLOCK < n)
    negative = tl.where(mask & (poisoned == 0)[:, None], (a.to(tl.int32, bitcast=True) >> 31) & 1, 0)
    lane = tl.arange(0, 8)[None, None, :]
    packed = tl.sum(tl.reshape(negative, (ROWS, BLOCK // 8, 8)) << lane, axis=2)
    byte = row[:, None] * (BLOCK // 8) + tl.arange(0, BLOCK // 8)[None, :]
    tl.store(codes + byte, packed.to(tl.uint8), mask=byte < (n + 7) // 8)
    if FEEDBACK:
        decoded = tl.where(negative == 1, -scale[:, None], scale[:, None])
        tl.store(residual + at, owed(a, decoded, r), mask=mask)


@triton.jit
def _decode_sign(scales, codes, out, n, factor, BLOCK: tl.constexpr, TILE: tl.constexpr, ADD: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = at < n
    scale = tl.load(scales + at // BLOCK, mask=mask, other=0.0)
    bit = (tl.load(codes + at // 8, mask=mask, other=0).to(tl.int32) >> (at % 8).to(tl.int32)) & 1
    decoded = tl.where(bit == 1, -scale, scale)
    before = tl.load(out + at, mask=mask, other=0.0) if ADD else decoded
    tl.store(out + at, give(before, decoded, factor, ADD), mask=mask)


@triton.jit
def _widen(code, HALF: tl.constexpr):
    if HALF:
        return code.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return as_float(code.to(tl.int32) << 16)


@triton.jit
def _encode_cast(values, residual, codes, n, HALF: tl.constexpr, TILE: tl.constexpr, FEEDBACK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = at < n
    a = tl.load(values + at, mask=mask, other=0.0)
    r = a
    if FEEDBACK:
        r = tl.load(residual + at, mask=mask, other=0.0)
        a = a + r
    not_a_number = magnitude_bits(a) > INF_BITS
    if HALF:
        code = a.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        code = tl.where(not_a_number, 0x7E00, code)
    else:
        bits = a.to(tl.uint32, bitcast=True)
        code = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.int32)
        code = tl.where(not_a_number, 0x7FC0, code)
    tl.store(codes + at, code.to(tl.int16), mask=mask)
    if FEEDBACK:
        tl.store(residual + at, owed(a, _widen(code, HALF), r), mask=mask)


@triton.jit
def _decode_cast(codes, out, n, factor, HALF: tl.constexpr, TILE: tl.constexpr, ADD: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    mask = at < n
    decoded = _widen(tl.load(codes + at, mask=mask, other=0).to(tl.int32) & 0xFFFF, HALF)
    before = tl.load(out + at, mask=mask, other=0.0) if ADD else decoded
    tl.store(out + at, give(before, decoded, factor, ADD), mask=mask)


def encode_sign(values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor | None, block: int) -> None:
    """Keep one bit an element (1: negative) and the mean magnitude of each block."""
    n = values.numel()
    if n == 0:
        return
    header = 4 * triton.cdiv(n, block)
    rows = max(1, SIGN_TILE // block)
    _encode_sign[(triton.cdiv(n, rows * block),)](
        values, values if residual is None else residual, payload[:header].view(torch.float32), payload[header:], n,
        block, rows, min(22, 31 - block.bit_length()), residual is not None,
        num_warps=min(16, rows * block // 256), **EXACT,
    )  # fmt: skip


def decode_sign(payload: torch.Tensor, out: torch.Tensor, block: int, add: bool, scale: float) -> None:
    """Read what `encode_sign` wrote."""
    n = out.numel()
    if n == 0:
        return
    header = 4 * triton.cdiv(n, block)
    _decode_sign[(triton.cdiv(n, TILE),)](
        payload[:header].view(torch.float32), payload[header:], out, n, scale, block, TILE, add, num_warps=4, **EXACT
    )


def encode_cast(values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor | None, kind: str) -> None:
    """Round each element to fp16 or bf16, ties to even; or copy it (fp32)."""
    n = values.numel()
    if kind == "fp32":
        a = values if residual is None else values + residual
        payload.view(torch.float32).copy_(torch.where(a.isnan(), float("nan"), a))
        if residual is not None:
            residual.zero_()
    elif n:
        _encode_cast[(triton.cdiv(n, TILE),)](
            values, values if residual is None else residual, payload.view(torch.int16), n, kind == "fp16", TILE,
            residual is not None, num_warps=4, **EXACT,
        )  # fmt: skip


def decode_cast(payload: torch.Tensor, out: torch.Tensor, kind: str, add: bool, scale: float) -> None:
    """Read what `encode_cast` wrote."""
    n = out.numel()
    if kind == "fp32":
        scaled = payload.view(torch.float32) * scale
        out.copy_(out + scaled if add else scaled)
    elif n:
        _decode_cast[(triton.cdiv(n, TILE),)](
            payload.view(torch.int16), out, n, scale, kind == "fp16", TILE, add, num_warps=4, **EXACT
        )
