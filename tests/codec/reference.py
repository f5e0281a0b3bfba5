"""The dense schemes in plain NumPy: slow, and what the native and GPU kernels are compared with bit for bit.

Every float operation is a single float32 operation, correctly rounded, never fused; reductions are over integers
(bit patterns or fixed point), so that no order of summation changes a bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncline.codec.dense import F32, U8

INF_BITS = 0x7F800000
NAN_BITS = 0x7FC00000
HUGE_BITS = 254 << 23  # 2^127: a block that reaches it counts as not finite, since its rounded scale might overflow
TINY_BITS = 27 << 23  # 2^-100: a block whose largest magnitude is below this is sent as zeros
LEVELS = {8: 127, 4: 7}

U32 = NDArray[np.uint32]


def _input(values: F32, residual: F32 | None) -> F32:
    with np.errstate(over="ignore", invalid="ignore"):
        return values if residual is None else values + residual


def _finite(a: F32) -> bool:
    """Tell whether no element is NaN or Inf: what every encode returns of values plus residual."""
    return bool(np.isfinite(a).all())


def _rows(a: F32, block: int) -> F32:
    rows = np.zeros((-(-a.size // block), block), np.float32)
    rows.reshape(-1)[: a.size] = a
    return rows


def _top_bits(rows: F32) -> U32:
    """Return the bits of each block's largest magnitude; a NaN or Inf anywhere is at least INF_BITS."""
    top: U32 = (rows.view(np.uint32) & np.uint32(0x7FFFFFFF)).max(axis=1)
    return top


def _scales(top: U32, levels: float) -> tuple[F32, F32]:
    """Return scale (a bfloat16, rounded up) and its inverse of each block: 0 and 0 when tiny, NaN and 0 if poisoned."""
    with np.errstate(all="ignore"):
        exact = (top.view(np.float32) * np.float32(1.0 / levels)).view(np.uint32)
        scale = ((exact + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
        inverse = np.float32(1) / scale
    tiny, poisoned = top < TINY_BITS, top >= HUGE_BITS
    scale[tiny] = 0
    scale[poisoned] = np.uint32(NAN_BITS).view(np.float32)
    inverse[tiny | poisoned] = 0
    return scale, inverse


def _put_scales(scale: F32, payload: U8) -> U8:
    """Write the upper halves of the scales, and zeros up to a multiple of 4 bytes; return the rest of the payload."""
    header = 4 * -(-scale.size // 2)
    payload[:header] = 0
    payload[: 2 * scale.size] = (scale.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint8)
    return payload[header:]


def _get_scales(payload: U8, num_elements: int, block: int) -> tuple[F32, U8]:
    """Return the scale of each element, and what is left of the payload."""
    num_blocks = -(-num_elements // block)
    halves = payload[: 2 * num_blocks].view(np.uint16).astype(np.uint32) << np.uint32(16)
    return np.repeat(halves.view(np.float32), block)[:num_elements], payload[4 * -(-num_blocks // 2) :]


def _keep_error(a: F32, decoded: F32, residual: F32 | None) -> None:
    """Leave a - decoded; where the decoded value is not finite the residual stays, and heals if it was not finite."""
    if residual is None:
        return
    bad = ~np.isfinite(decoded)
    with np.errstate(invalid="ignore", over="ignore"):
        residual[:] = np.where(bad, np.where(np.isfinite(residual), residual, np.float32(0)), a - decoded)


def _give(decoded: F32, out: F32, add: bool, scale: float) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = decoded * np.float32(scale)
        out[:] = out + scaled if add else scaled


def block_encode(values: F32, payload: U8, residual: F32 | None, bits: int, block: int) -> bool:
    """Quantise by block to signed codes of 8 or 4 bits."""
    a = _input(values, residual)
    rows = _rows(a, block)
    scale, inverse = _scales(_top_bits(rows), LEVELS[bits])
    with np.errstate(invalid="ignore", over="ignore"):
        x = np.where(np.isnan(scale)[:, None], np.float32(0), rows * inverse[:, None])
    q = np.rint(x) + np.float32(0)  # no -0: codes have none
    q = np.clip(q, -LEVELS[bits], LEVELS[bits]).astype(np.float32)
    _put_scales(scale, payload)[:] = _pack(q.reshape(-1)[: a.size].astype(np.int8), bits)
    _keep_error(a, (q * scale[:, None]).reshape(-1)[: a.size], residual)
    return not np.isnan(scale).any()


def block_decode(payload: U8, out: F32, bits: int, block: int, add: bool, scale: float) -> None:
    """Read what `block_encode` wrote."""
    scales, packed = _get_scales(payload, out.size, block)
    codes = _unpack(packed, bits, out.size)
    with np.errstate(invalid="ignore", over="ignore"):
        _give(codes.astype(np.float32) * scales, out, add, scale)


def _pack(q: NDArray[np.int8], bits: int) -> U8:
    """Return the codes as bytes: element i in the low bits of its byte first, two's complement."""
    per = 8 // bits
    padded = np.zeros(-(-q.size // per) * per, np.uint8)
    padded[: q.size] = q.view(np.uint8) & (2**bits - 1)
    packed = np.zeros(padded.size // per, np.uint8)
    for place in range(per):
        packed |= padded[place::per] << np.uint8(bits * place)
    return packed


def _unpack(packed: U8, bits: int, num_elements: int) -> NDArray[np.int8]:
    per = 8 // bits
    codes = np.empty(packed.size * per, np.int8)
    for place in range(per):
        # Up to the top of the byte, then down with the sign.
        codes[place::per] = (packed << np.uint8(8 - bits * (place + 1))).view(np.int8) >> np.int8(8 - bits)
    return codes[:num_elements]


def sign_encode(values: F32, payload: U8, residual: F32 | None, block: int) -> bool:
    """Keep one bit an element (1: negative) and the mean magnitude of each block."""
    a = _input(values, residual)
    rows = _rows(a, block)
    scale = _mean_magnitude(rows, a.size, block)
    header = 4 * scale.size
    payload[:header] = scale.view(np.uint8)
    seen = np.repeat(~np.isnan(scale), block)[: a.size]  # the sign of a NaN is nobody's choice
    payload[header:] = np.packbits(np.signbit(a) & seen, bitorder="little")
    _keep_error(a, np.copysign(np.repeat(scale, block)[: a.size], a), residual)
    return _finite(a)


def _mean_magnitude(rows: F32, num_elements: int, block: int) -> F32:
    """Return each block's mean magnitude, summed in fixed point so that every order gives the same bits.

    The largest magnitude lies below 2^(e - 126), e its biased exponent; 2^shift takes it below 2^22, or below
    2^(30 - log2 block) if that is less: the sum stays below 2^30.
    """
    top = _top_bits(rows)
    tiny, poisoned = top < TINY_BITS, top >= INF_BITS
    exponent = np.where(tiny | poisoned, 127, top >> np.uint32(23)).astype(np.int64)
    shift = min(22, 31 - block.bit_length()) - (exponent - 126)
    up = ((127 + shift).astype(np.uint32) << np.uint32(23)).view(np.float32)
    down = ((127 - shift).astype(np.uint32) << np.uint32(23)).view(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        fixed = np.where(poisoned[:, None], np.float32(0), np.rint(np.abs(rows) * up[:, None])).astype(np.int64)
    count = np.full(top.size, block, np.float32)
    if top.size:
        count[-1] = num_elements - (top.size - 1) * block
    scale: F32 = (fixed.sum(axis=1).astype(np.float32) / count) * down
    scale[tiny] = 0
    scale[poisoned] = np.uint32(NAN_BITS).view(np.float32)
    return scale


def sign_decode(payload: U8, out: F32, block: int, add: bool, scale: float) -> None:
    """Read what `sign_encode` wrote."""
    header = 4 * -(-out.size // block)
    scales = np.repeat(payload[:header].view(np.float32), block)[: out.size]
    negative = np.unpackbits(payload[header:], bitorder="little")[: out.size].astype(bool)
    _give(np.where(negative, -scales, scales), out, add, scale)


def cast_encode(values: F32, payload: U8, residual: F32 | None, kind: str) -> bool:
    """Round each element to fp16 or bf16, ties to even, one NaN pattern each; or copy it (fp32)."""
    a = _input(values, residual)
    if kind == "fp32":
        payload[:] = a.view(np.uint8)
        if residual is not None:
            residual[:] = 0
        return _finite(a)
    if kind == "fp16":
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            codes = a.astype(np.float16).view(np.uint16)
        codes[np.isnan(a)] = 0x7E00
    else:
        bits = a.view(np.uint32)
        codes = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
            np.uint16
        )
        codes[np.isnan(a)] = 0x7FC0
    payload[:] = codes.view(np.uint8)
    _keep_error(a, _widen(codes, kind), residual)
    return _finite(a)


def cast_decode(payload: U8, out: F32, kind: str, add: bool, scale: float) -> None:
    """Read what `cast_encode` wrote."""
    if kind == "fp32":
        _give(payload.view(np.float32), out, add, scale)
    else:
        _give(_widen(payload.view(np.uint16), kind), out, add, scale)


def _widen(codes: NDArray[np.uint16], kind: str) -> F32:
    if kind == "fp16":
        return codes.view(np.float16).astype(np.float32)
    return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
