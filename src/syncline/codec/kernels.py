"""The kernels that the schemes call."""

from __future__ import annotations

from syncline.codec.reference import (
    block_decode,
    block_encode,
    cast_decode,
    cast_encode,
    fp8_decode,
    fp8_encode,
    sign_decode,
    sign_encode,
)
from syncline.codec.reference_sparse import random_decode, random_encode, scatter, select, threshold_bits

__all__ = [
    "block_decode",
    "block_encode",
    "cast_decode",
    "cast_encode",
    "fp8_decode",
    "fp8_encode",
    "random_decode",
    "random_encode",
    "scatter",
    "select",
    "sign_decode",
    "sign_encode",
    "threshold_bits",
]
