"""Whole numbers by block: each block of elements shares one scale, its largest magnitude over the largest code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from syncline.codec import kernels
from syncline.codec.scheme import F32, U8, Bound, EncodeState, Scheme, Sum
from syncline.errors import CodecError

ROUNDINGS = ("nearest", "stochastic")
LEVELS = {8: 127, 4: 7, 2: 1}
TINY = 2.0**-100
"""A block whose largest magnitude is below this is sent as zeros."""
ROUNDED_UP = 1 + 2.0**-7
"""How much larger a scale can be for being a bfloat16."""


class Block(Scheme):
    """Signed codes of `bits` bits. Wire: one bfloat16 scale a block, then the codes, low bits first.

    Nearest rounding errs by at most half a scale an element, stochastic by less than one scale and not on average.
    """

    family: str
    default_block: ClassVar[Mapping[int, int]] = {8: 256, 4: 512, 2: 256}
    default_rounding = "nearest"

    def __init__(self, bits: int = 8, block: int = 256, rounding: str = "nearest") -> None:
        self.family = {8: "int8", 4: "int4", 2: "ternary"}[bits]
        self.bits = bits
        self.block = check_block(block, self.family)
        self.rounding = rounding
        if rounding not in ROUNDINGS:
            raise CodecError(f'there is no rounding "{rounding}".', detail=f"There are: {', '.join(ROUNDINGS)}.")
        options = [f"block={block}"] * (block != self.default_block[bits])
        options += [f"round={rounding}"] * (rounding != self.default_rounding)
        self.name = self.family + (":" + ",".join(options) if options else "")

    def wire_bytes(self, num_elements: int) -> int:
        return scale_bytes(num_elements, self.block) + -(-num_elements * self.bits // 8)

    def error_bound(self, values: F32) -> Bound:
        """Half a scale an element (a whole one when stochastic), and 2^-100 for blocks that are sent as zeros.

        A scale is rounded up to 8 bits, which makes it at most 1/128 larger.
        """
        top = block_tops(values, self.block)
        step = np.maximum(top / LEVELS[self.bits] * (0.5 if self.rounding == "nearest" else 1.0), TINY)
        # The last part pays for float32: the scale, its inverse, two products.
        return Bound(max_abs=(step * ROUNDED_UP * (1 + 1e-4)).astype(np.float32))

    def _encode(self, values: F32, payload: U8, state: EncodeState, residual: F32 | None) -> bool:
        stochastic = self.rounding == "stochastic"
        key = state.next_key() if stochastic else 0
        return kernels.block_encode(values, payload, residual, self.bits, self.block, stochastic, key)

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        kernels.block_decode(payload, out, self.bits, self.block, add, scale)

    def _reduce(self, sum_: Sum) -> bool:
        stochastic = self.rounding == "stochastic"
        key = sum_.state.next_key() if stochastic and sum_.state is not None else 0
        return kernels.block_reduce(*sum_.arrays, self.bits, self.block, stochastic, key, sum_.before, sum_.after)


def scale_bytes(num_elements: int, block: int) -> int:
    """Return the bytes of the scales: two a block, up to a multiple of four."""
    return 4 * -(-num_elements // (2 * block))


def block_tops(values: F32, block: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return for each element the largest magnitude of its block."""
    rows = np.zeros((-(-values.size // block), block))
    rows.reshape(-1)[: values.size] = np.abs(values)
    return np.repeat(rows.max(axis=1), block)[: values.size]


def check_block(block: int, family: str) -> int:
    """Return a block size that kernels can take: a power of two from 32 to 65,536."""
    if not 32 <= block <= 65536 or block & (block - 1):
        raise CodecError(f'codec "{family}" takes blocks of 32 to 65536 elements, a power of two; got {block}.')
    return block
