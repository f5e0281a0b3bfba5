"""What a codec does to numbers: the contract that every scheme keeps.

    int8 = scheme("int8")
    payload = np.empty(int8.wire_bytes(values.size), np.uint8)
    int8.encode(values, payload, residual)   # residual += values - what was sent, in the same pass
    int8.decode(payload, total, add=True)    # total += what was sent

A scheme is immutable and keeps nothing from one encode to the next: what was lost is in the residual. The bytes of each
are written down in docs/method/codec-bytes.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syncline.codec.codec import Codec
from syncline.errors import CodecError

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


class Scheme(ABC):
    """A way to turn float32 numbers into fewer bytes and back; immutable."""

    name: str

    @abstractmethod
    def wire_bytes(self, num_elements: int) -> int:
        """Return the size of a payload of `num_elements`: every encode fills exactly this much."""

    def encode(self, values: F32, payload: U8, residual: F32 | None = None) -> bool:
        """Write `values` (plus `residual`) to `payload` and leave the new error in `residual`.

        Return whether every value plus residual was finite; codecs by block count 2^127 and above as not.
        """
        self._check_encode(values, payload, residual)
        return self._encode(values, payload, residual)

    def decode(self, payload: U8, out: F32, *, add: bool = False, scale: float = 1.0) -> None:
        """Write `scale` times what the payload says to `out`, or add it there."""
        check_array("out", out, np.float32)
        self._check_payload(payload, out.size)
        if not out.flags.writeable:
            raise CodecError("decode needs an array it can write to, and `out` is read-only.")
        self._decode(payload, out, add, scale)

    def add_up(self, payloads: Sequence[U8], own: F32, *, scale: float = 1.0) -> None:
        """Add what each payload says to `own`, in order, then multiply by `scale`."""
        self._check_reduce(payloads, own)
        self._reduce(payloads, own, None, None, scale, 1.0)

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

        The same as `add_up`, `encode` and `decode`, in one pass where the scheme allows it. Return what `encode` does.
        """
        self._check_reduce(payloads, own)
        self._check_encode(own, payload, residual)
        return self._reduce(payloads, own, payload, residual, before, after)

    def price(
        self, *, encode_Bps: float = math.inf, decode_Bps: float = math.inf, num_elements: int = 1 << 22
    ) -> Codec:
        """Return what the planner and a Program need: wire ratio at `num_elements`, and speeds."""
        ratio = self.wire_bytes(num_elements) / (4 * num_elements)
        return Codec(self.name, ratio, encode_Bps, decode_Bps)

    @abstractmethod
    def _encode(self, values: F32, payload: U8, residual: F32 | None) -> bool: ...

    @abstractmethod
    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None: ...

    def _reduce(
        self,
        payloads: Sequence[U8],
        own: F32,
        payload: U8 | None,
        residual: F32 | None,
        before: float,
        after: float,
    ) -> bool:
        for received in payloads:
            self._decode(received, own, True, 1.0)
        if before != 1.0:
            own *= np.float32(before)
        if payload is None:
            return True
        finite = self._encode(own, payload, residual)
        self._decode(payload, own, False, after)
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scheme) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"scheme({self.name!r})"


def check_array(what: str, array: object, dtype: type) -> None:
    """Raise unless `array` is what kernels take: one axis, contiguous and aligned, of this type."""
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == 1:
        if array.flags.c_contiguous and array.flags.aligned:
            return
        seen = "one with gaps or at an odd address"
    else:
        seen = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    raise CodecError(f"{what} must be a contiguous one-dimensional {np.dtype(dtype).name} array; got {seen}.")
