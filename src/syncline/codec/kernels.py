"""Typed face of the native codec kernels; `tests/codec/reference.py` and `reference_sparse.py` are their slow twins.

There is no way back to NumPy: if the extension is not built, importing this fails. `variant` is for tests: -1 takes the
fastest that this machine runs. What encodes or reduces returns whether everything was finite, residual included.

`*_reduce` adds payloads to `own`, multiplies by `before`, and in the same pass encodes that to `payload` (unless None)
and leaves `after` times what it decodes to in `own`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syncline._native import codecs as native
from syncline.codec.scheme import F32, U8

VARIANTS = {0: "portable", 1: "avx2", 2: "avx512"}


def variants() -> list[int]:
    """Return the variants that this machine runs."""
    return native.variants()


def block_encode(
    values: F32, payload: U8, residual: F32 | None, bits: int, block: int, stochastic: bool, key: int, variant: int = -1
) -> bool:
    """Quantise by block to signed codes of 8, 4 or 2 bits."""
    return native.block_encode(values, payload, residual, bits, block, stochastic, key, variant)


def block_decode(payload: U8, out: F32, bits: int, block: int, add: bool, scale: float, variant: int = -1) -> None:
    """Read what `block_encode` wrote."""
    native.block_decode(payload, out, bits, block, add, scale, variant)


def block_reduce(
    payloads: Sequence[U8],
    own: F32,
    payload: U8 | None,
    residual: F32 | None,
    bits: int,
    block: int,
    stochastic: bool,
    key: int,
    before: float,
    after: float,
    variant: int = -1,
) -> bool:
    """Add what `block_encode` wrote, and encode the sum."""
    return native.block_reduce(payloads, own, payload, residual, bits, block, stochastic, key, before, after, variant)


def sign_encode(values: F32, payload: U8, residual: F32 | None, block: int, variant: int = -1) -> bool:
    """Keep one bit an element (1: negative) and the mean magnitude of each block."""
    return native.sign_encode(values, payload, residual, block, variant)


def sign_decode(payload: U8, out: F32, block: int, add: bool, scale: float, variant: int = -1) -> None:
    """Read what `sign_encode` wrote."""
    native.sign_decode(payload, out, block, add, scale, variant)


def sign_reduce(
    payloads: Sequence[U8],
    own: F32,
    payload: U8 | None,
    residual: F32 | None,
    block: int,
    before: float,
    after: float,
    variant: int = -1,
) -> bool:
    """Add what `sign_encode` wrote, and encode the sum."""
    return native.sign_reduce(payloads, own, payload, residual, block, before, after, variant)


def cast_encode(values: F32, payload: U8, residual: F32 | None, kind: str, variant: int = -1) -> bool:
    """Round each element to fp16 or bf16, ties to even, or copy it (fp32)."""
    return native.cast_encode(values, payload, residual, kind, variant)


def cast_decode(payload: U8, out: F32, kind: str, add: bool, scale: float, variant: int = -1) -> None:
    """Read what `cast_encode` wrote."""
    native.cast_decode(payload, out, kind, add, scale, variant)


def cast_reduce(
    payloads: Sequence[U8],
    own: F32,
    payload: U8 | None,
    residual: F32 | None,
    kind: str,
    before: float,
    after: float,
    variant: int = -1,
) -> bool:
    """Add what `cast_encode` wrote, and encode the sum."""
    return native.cast_reduce(payloads, own, payload, residual, kind, before, after, variant)


def fp8_encode(values: F32, payload: U8, residual: F32 | None, fmt: str, block: int, variant: int = -1) -> bool:
    """Scale each block to the range of an 8-bit float and round to it, ties to even."""
    return native.fp8_encode(values, payload, residual, fmt, block, variant)


def fp8_decode(payload: U8, out: F32, fmt: str, block: int, add: bool, scale: float, variant: int = -1) -> None:
    """Read what `fp8_encode` wrote."""
    native.fp8_decode(payload, out, fmt, block, add, scale, variant)


def fp8_reduce(
    payloads: Sequence[U8],
    own: F32,
    payload: U8 | None,
    residual: F32 | None,
    fmt: str,
    block: int,
    before: float,
    after: float,
    variant: int = -1,
) -> bool:
    """Add what `fp8_encode` wrote, and encode the sum."""
    return native.fp8_reduce(payloads, own, payload, residual, fmt, block, before, after, variant)


def threshold(
    values: F32,
    residual: F32 | None,
    wanted: int,
    stride: int,
    offset: int,
    histogram: NDArray[np.uint32],
    variant: int = -1,
) -> tuple[int, int]:
    """Return the bits of a magnitude that about `wanted` elements reach, and how many that equal it to keep.

    `histogram` is scratch.
    """
    return native.threshold(values, residual, wanted, stride, offset, histogram, variant)


def select(
    values: F32, residual: F32 | None, threshold_bits: int, ties: int, index: U8, value: U8, variant: int = -1
) -> tuple[int, bool]:
    """Keep what reaches the threshold as 4 bytes of index and of value each; return how many, and if poisoned."""
    return native.select(values, residual, threshold_bits, ties, index, value, variant)


def scatter(index: U8, value: U8, count: int, out: F32, add: bool, scale: float) -> None:
    """Put the kept values at their places; ValueError, and nothing written, when one lies outside."""
    native.scatter(index, value, count, out, add, scale)


def random_encode(values: F32, kept: U8, residual: F32 | None, key: int, variant: int = -1) -> bool:
    """Keep the values at the places of a key."""
    return native.random_encode(values, kept, residual, key, variant)


def random_decode(kept: U8, out: F32, key: int, add: bool, scale: float, variant: int = -1) -> None:
    """Read what `random_encode` wrote."""
    native.random_decode(kept, out, key, add, scale, variant)


def low_rank_begin(values: F32, residual: F32, rows: int, cols: int, rank: int, q: F32, p: F32) -> None:
    """Add the values to the residual and leave residual Q in P."""
    native.low_rank_begin(values, residual, rows, cols, rank, q, p)


def low_rank_middle(matrix: F32, rows: int, cols: int, rank: int, p: F32, q: F32) -> None:
    """Leave matrix^T P in Q."""
    native.low_rank_middle(matrix, rows, cols, rank, p, q)


def low_rank_finish(matrix: F32, rows: int, cols: int, rank: int, p: F32, own: F32, q: F32, out: F32) -> None:
    """Take P own^T from the matrix and leave P Q^T in `out`."""
    native.low_rank_finish(matrix, rows, cols, rank, p, own, q, out)
