"""Schemes that send every element in fewer bits: shorter floats, whole numbers by block, signs.

Each is a native kernel family: `<family>_encode`, `<family>_decode` and `<family>_reduce` with the same options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncline._native import codecs as kernels
from syncline.codec.scheme import F32, U8, Scheme
from syncline.errors import CodecError

CASTS = ("fp16", "bf16", "fp32")
DEFAULT_BLOCK = {8: 256, 4: 512}


class Dense(Scheme):
    """A scheme of one kernel family; `lane` holds the same options as the native wire's lanes take them."""

    def __init__(self, family: str, options: tuple[Any, ...], lane: list[int]) -> None:
        self.family, self.lane = family, lane
        self.options = options
        self._kernels: tuple[Any, Any, Any] = (
            getattr(kernels, f"{family}_encode"),
            getattr(kernels, f"{family}_decode"),
            getattr(kernels, f"{family}_reduce"),
        )

    def _encode(self, values: F32, payload: U8, residual: F32 | None) -> bool:
        finite: bool = self._kernels[0](values, payload, residual, *self.options)
        return finite

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        self._kernels[1](payload, out, *self.options, add, scale)

    def _reduce(
        self,
        payloads: Sequence[U8],
        own: F32,
        payload: U8 | None,
        residual: F32 | None,
        before: float,
        after: float,
    ) -> bool:
        finite: bool = self._kernels[2](payloads, own, payload, residual, *self.options, before, after)
        return finite


class Block(Dense):
    """Signed codes of `bits` bits. Wire: one bfloat16 scale a block, then the codes, low bits first.

    The scale is the block's largest magnitude over the largest code. Rounding to nearest errs by at most half a scale
    an element.
    """

    def __init__(self, bits: int = 8, block: int | None = None) -> None:
        name, usual = f"int{bits}", DEFAULT_BLOCK[bits]
        self.bits, self.block = bits, _check_block(usual if block is None else block, name)
        self.name = _named(name, self.block, usual)
        super().__init__("block", (bits, self.block), [bits, self.block])

    def wire_bytes(self, num_elements: int) -> int:
        scale_bytes = 4 * -(-num_elements // (2 * self.block))  # two a block, up to a multiple of four
        return scale_bytes + -(-num_elements * self.bits // 8)


class Cast(Dense):
    """Wire: the elements as float16 or bfloat16 (or float32), little-endian.

    Rounds to nearest, ties to even. fp16 overflows to Inf above 65,504; the receiver detects it after decoding.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__("cast", (name,), [CASTS.index(name)])

    def wire_bytes(self, num_elements: int) -> int:
        return (4 if self.name == "fp32" else 2) * num_elements


class Sign(Dense):
    """Wire: one float32 scale a block (mean magnitude), then one bit an element, low bit first; 1 is negative.

    By itself it is biased: use it with a residual. A -0.0 counts as negative.
    """

    def __init__(self, block: int = 512) -> None:
        self.block = _check_block(block, "sign")
        self.name = _named("sign", block, 512)
        super().__init__("sign", (block,), [block])

    def wire_bytes(self, num_elements: int) -> int:
        return 4 * -(-num_elements // self.block) + -(-num_elements // 8)


def _named(family: str, block: int, usual: int) -> str:
    """Return the canonical name: the family, and the block where it is not the usual one."""
    return family if block == usual else f"{family}:block={block}"


def _check_block(block: int, family: str) -> int:
    """Return a block size that kernels can take: a power of two from 32 to 65,536."""
    if not 32 <= block <= 65536 or block & (block - 1):
        raise CodecError(f'codec "{family}" takes blocks of 32 to 65536 elements, a power of two; got {block}.')
    return block
