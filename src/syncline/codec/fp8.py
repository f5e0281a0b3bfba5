"""Eight-bit floats by block: each block is scaled to the range of the format."""

from __future__ import annotations

import numpy as np

from syncline.codec import kernels
from syncline.codec.block import ROUNDED_UP, TINY, block_tops, check_block, scale_bytes
from syncline.codec.scheme import F32, U8, Bound, EncodeState, Scheme, Sum
from syncline.errors import CodecError

#: Mantissa bits, exponent bias, largest finite code, largest finite value.
FORMATS = {"e4m3": (3, 7, 0x7E, 448.0), "e5m2": (2, 15, 0x7B, 57344.0)}


class Fp8(Scheme):
    """Wire: one bfloat16 scale a block, then one byte an element in e4m3 (as torch.float8_e4m3fn) or e5m2.

    Gradients are far below the smallest fp8 number, so without a scale most of them would be lost.
    """

    def __init__(self, fmt: str = "e4m3", block: int = 256) -> None:
        if fmt not in FORMATS:
            raise CodecError(f'there is no fp8 format "{fmt}".', detail=f"There are: {', '.join(FORMATS)}.")
        self.format = fmt
        self.block = check_block(block, "fp8")
        options = [f"format={fmt}"] * (fmt != "e4m3") + [f"block={block}"] * (block != 256)
        self.name = "fp8" + (":" + ",".join(options) if options else "")

    def wire_bytes(self, num_elements: int) -> int:
        return scale_bytes(num_elements, self.block) + num_elements

    def error_bound(self, values: F32) -> Bound:
        """Half a unit in the last place of the format, at least half its smallest step at the block's scale."""
        mantissa, bias, _, largest = FORMATS[self.format]
        scale = block_tops(values, self.block) / largest * ROUNDED_UP
        relative = np.abs(values.astype(np.float64)) * 2.0 ** -(mantissa + 1)
        bound = np.maximum(np.maximum(relative, scale * 2.0 ** (-bias - mantissa)), TINY)
        return Bound(max_abs=(bound * (1 + 1e-4)).astype(np.float32))

    def _encode(self, values: F32, payload: U8, state: EncodeState, residual: F32 | None) -> bool:
        return kernels.fp8_encode(values, payload, residual, self.format, self.block)

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        kernels.fp8_decode(payload, out, self.format, self.block, add, scale)

    def _reduce(self, sum_: Sum) -> bool:
        return kernels.fp8_reduce(*sum_.arrays, self.format, self.block, sum_.before, sum_.after)
