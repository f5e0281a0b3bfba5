"""Pieces that several kernels share: float32 arithmetic exactly as docs/method/codec-bytes.md writes it.

Kernels are launched with `enable_fp_fusion=False`, so that a product and a sum round twice, as NumPy's do.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

INF_BITS = tl.constexpr(0x7F800000)
NAN_BITS = tl.constexpr(0x7FC00000)
HUGE_BITS = tl.constexpr(254 << 23)  # 2^127: a rounded scale might overflow from here on
TINY_BITS = tl.constexpr(27 << 23)  # 2^-100

EXACT = {"enable_fp_fusion": False}
"""Launch options of every kernel."""


@triton.jit
def magnitude_bits(a):
    """Return the bits of the magnitude: they order as the magnitudes do."""
    return a.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def as_float(bits):
    """Return the float32 with these bits."""
    return bits.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def rint(x):
    """Round to the nearest whole number, ties to even."""
    return libdevice.rint(x)


@triton.jit
def divide(a, b):
    """Return the correctly rounded quotient; the library's own would take denormals for 0."""
    return tl.div_rn(a, b)


@triton.jit
def owed(a, decoded, residual):
    """Return the new residual: the error, or what was owed before where nothing finite was sent."""
    bad = magnitude_bits(decoded) >= INF_BITS
    healed = tl.where(magnitude_bits(residual) >= INF_BITS, 0.0, residual)
    return tl.where(bad, healed, a - decoded)


@triton.jit
def give(out, decoded, scale, ADD: tl.constexpr):
    """Return what decode leaves in `out`."""
    scaled = decoded * scale
    return out + scaled if ADD else scaled
