"""Schemes that send every element in fewer bits: shorter floats, whole numbers by block, signs.

    int8 = Block(8)
    payload = np.empty(int8.wire_bytes(values.size), np.uint8)
    int8.encode(values, payload, residual)   # residual += values - what was sent, in the same pass
    int8.decode(payload, total, add=True)    # total += what was sent

A scheme is immutable and keeps nothing from one encode to the next: what was lost is in the residual. The bytes of each
are written down in docs/method/codec-bytes.md. Each is a native kernel family: `<family>_encode`, `<family>_decode` and
`<family>_reduce` with the same options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline._native import codecs as kernels
from syncline.codec.scheme import Scheme
from syncline.errors import CodecError

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
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

    def encode(self, values: F32, payload: U8, residual: F32 | None = None) -> bool:
        """Write `values` (plus `residual`) to `payload` and leave the new error in `residual`.

        Return whether every value plus residual was finite; codecs by block count 2^127 and above as not.
        """
        self._check_encode(values, payload, residual)
        finite: bool = self._kernels[0](values, payload, residual, *self.options)
        return finite

    def decode(self, payload: U8, out: F32, *, add: bool = False, scale: float = 1.0) -> None:
        """Write `scale` times what the payload says to `out`, or add it there."""
        check_array("out", out, np.float32)
        self._check_payload(payload, out.size)
        if not out.flags.writeable:
            raise CodecError("decode needs an array it can write to, and `out` is read-only.")
        self._kernels[1](payload, out, *self.options, add, scale)

    def add_up(self, payloads: Sequence[U8], own: F32, *, scale: float = 1.0) -> None:
        """Add what each payload says to `own`, in order, then multiply by `scale`."""
        self._check_reduce(payloads, own)
        self._kernels[2](payloads, own, None, None, *self.options, scale, 1.0)

    def reduce(
        self,
        payloads: Sequence[U8],
        own: F32,
        payload: U8,
        residual: F32 | None = None,
        *,
        before: float = 1.0,
        after: float = 1.0,
    ) -> bool:
        """Add payloads to `own`, times `before`; encode that; leave `after` times what it decodes to in `own`.

        The same as `add_up`, `encode` and `decode`, in one pass. Return what `encode` does.
        """
        self._check_reduce(payloads, own)
        self._check_encode(own, payload, residual)
        finite: bool = self._kernels[2](payloads, own, payload, residual, *self.options, before, after)
        return finite

    def _check_reduce(self, payloads: Sequence[U8], own: F32) -> None:
        check_array("own", own, np.float32)
        for payload in payloads:
            self._check_payload(payload, own.size)
        if not own.flags.writeable:
            raise CodecError("reduce needs an array it can write to, and `own` is read-only.")

    def _check_encode(self, values: F32, payload: U8, residual: F32 | None) -> None:
        check_array("values", values, np.float32)
        self._check_payload(payload, values.size)
        if not payload.flags.writeable:
            raise CodecError("encode needs a payload it can write to, and this one is read-only.")
        if residual is None:
            return
        check_array("residual", residual, np.float32)
        if residual.size != values.size or not residual.flags.writeable:
            raise CodecError(
                f"the residual has {residual.size} elements and the values {values.size}; it must have as many and be "
                "writable."
            )

    def _check_payload(self, payload: U8, num_elements: int) -> None:
        check_array("payload", payload, np.uint8)
        wanted = self.wire_bytes(num_elements)
        if payload.size != wanted:
            raise CodecError(
                f'a payload of codec "{self.name}" for {num_elements} elements has {wanted} bytes; '
                f"this one has {payload.size}.",
                hint="Sender and receiver must agree on codec and length.",
            )


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


def check_array(what: str, array: object, dtype: type) -> None:
    """Raise unless `array` is what kernels take: one axis, contiguous and aligned, of this type."""
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == 1:
        if array.flags.c_contiguous and array.flags.aligned:
            return
        seen = "one with gaps or at an odd address"
    else:
        seen = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    raise CodecError(f"{what} must be a contiguous one-dimensional {np.dtype(dtype).name} array; got {seen}.")
