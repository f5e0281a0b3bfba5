"""One bit an element: its sign, and the mean magnitude of its block."""

from __future__ import annotations

import numpy as np

from syncline.codec import kernels
from syncline.codec.block import TINY, check_block
from syncline.codec.scheme import F32, U8, Bound, EncodeState, Scheme, Sum


class Sign(Scheme):
    """Wire: one float32 scale a block (mean magnitude), then one bit an element, low bit first; 1 is negative.

    By itself it is biased: use it with a residual. A -0.0 counts as negative.
    """

    def __init__(self, block: int = 512) -> None:
        self.block = check_block(block, "sign")
        self.name = "sign" if block == 512 else f"sign:block={block}"

    def wire_bytes(self, num_elements: int) -> int:
        return 4 * -(-num_elements // self.block) + -(-num_elements // 8)

    def error_bound(self, values: F32) -> Bound:
        """With the mean m of a block's magnitudes the error is sum(a^2) - n m^2: below 1 times sum(a^2).

        An element errs by | |a| - m |, at most its block's largest magnitude.
        """
        num_blocks = -(-values.size // self.block)
        rows = np.zeros((num_blocks, self.block))
        rows.reshape(-1)[: values.size] = np.abs(values)
        count = np.minimum(self.block, values.size - self.block * np.arange(num_blocks))
        square = float((rows**2).sum())
        kept = float((rows.sum(axis=1) ** 2 / count).sum())
        top = np.maximum(np.repeat(rows.max(axis=1, initial=0), self.block)[: values.size], TINY)
        contraction = min(1.0, 1 - kept / square + 1e-5) if square else 1.0
        return Bound(max_abs=(top * (1 + 1e-4)).astype(np.float32), contraction=contraction)

    def _encode(self, values: F32, payload: U8, state: EncodeState, residual: F32 | None) -> bool:
        return kernels.sign_encode(values, payload, residual, self.block)

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        kernels.sign_decode(payload, out, self.block, add, scale)

    def _reduce(self, sum_: Sum) -> bool:
        return kernels.sign_reduce(*sum_.arrays, self.block, sum_.before, sum_.after)
