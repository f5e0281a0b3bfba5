"""Shorter floats: fp16 and bf16, and fp32 as it is."""

from __future__ import annotations

import numpy as np

from syncline.codec import kernels
from syncline.codec.scheme import F32, U8, Bound, EncodeState, Scheme, Sum


class Cast(Scheme):
    """Wire: the elements as float16 or bfloat16 (or float32), little-endian; a backend can sum them as they are.

    Rounds to nearest, ties to even. fp16 overflows to Inf above 65,504, which is seen after decoding.
    """

    summable = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.width = 4 if name == "fp32" else 2
        self.sum_dtype = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[name]  # type: ignore[misc]

    def wire_bytes(self, num_elements: int) -> int:
        return self.width * num_elements

    def error_bound(self, values: F32) -> Bound:
        """Half a unit in the last place: 2^-11 of the value for fp16, 2^-8 for bf16; nothing for fp32."""
        relative, least = {"fp32": (0.0, 0.0), "fp16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}[self.name]
        size = np.abs(values.astype(np.float64))
        overflow = size >= (65520.0 if self.name == "fp16" else np.inf)
        bound = np.where(overflow, np.inf, np.maximum(size * relative, least) * (1 + 1e-6))
        return Bound(max_abs=bound.astype(np.float32))

    def _encode(self, values: F32, payload: U8, state: EncodeState, residual: F32 | None) -> bool:
        return kernels.cast_encode(values, payload, residual, self.name)

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        kernels.cast_decode(payload, out, self.name, add, scale)

    def _reduce(self, sum_: Sum) -> bool:
        return kernels.cast_reduce(*sum_.arrays, self.name, sum_.before, sum_.after)
