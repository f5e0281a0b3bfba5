"""A few elements as they are: the largest, by a threshold."""

from __future__ import annotations

import math

import numpy as np

from syncline._native import codecs as kernels
from syncline.codec.scheme import F32, U8, EncodeState, Scheme
from syncline.errors import CodecError

HEADER_BYTES = 8
POISONED = 1
INF_BITS = 0x7F800000
EXACT_UP_TO = 1 << 16
"""Up to so many elements the threshold is exact; above, a sample of lines of 16 elements tells it."""


class TopK(Scheme):
    """Wire: u32 count, u32 flags (1: a NaN or Inf was there), u32 index and then float32 value of each place.

    The payload has room for `capacity(n)` elements. What reaches the threshold but does not fit stays in the residual.
    """

    owes_all = True

    def __init__(self, keep: float = 0.05) -> None:
        if not 0 < keep <= 1:
            raise CodecError(f'codec "topk" keeps a share above 0 and up to 1 of the elements; got {keep:g}.')
        self.keep = keep
        self.name = f"topk:keep={keep:g}"

    def capacity(self, num_elements: int) -> int:
        """Return how many elements fit in a payload: at least one of any."""
        wanted = max(1, math.ceil(self.keep * num_elements - 1e-9))
        return min(num_elements, wanted) if num_elements else 0

    def wire_bytes(self, num_elements: int) -> int:
        return HEADER_BYTES + 8 * self.capacity(num_elements)

    def new_state(self, num_elements: int, *, seed: int = 0) -> EncodeState:
        return EncodeState(num_elements, seed=seed, scratch={"histogram": np.zeros(1 << 15, np.uint32)})

    def threshold(self, values: F32, state: EncodeState, residual: F32 | None) -> tuple[int, int]:
        """Return the bits of the magnitude from which elements are kept, and how many that equal it.

        Exact when there are few elements, else from a sample.
        """
        histogram = state.scratch["histogram"]
        if values.size <= EXACT_UP_TO:
            return kernels.threshold(values, residual, self.capacity(values.size), 1, 0, histogram)
        every = self.sample_every(values.size)
        offset = state.next_key() % every
        return kernels.threshold(values, residual, self.aim(values.size), every, offset, histogram)

    def sample_every(self, num_elements: int) -> int:
        """Return of how many lines one is sampled: 8 to 64, so that about 1,024 of the sample are kept ones."""
        return min(64, max(8, self.capacity(num_elements) // 1024))

    def aim(self, num_elements: int) -> int:
        """Return how many elements a sampled threshold aims at: two deviations of the sample below what fits."""
        room = self.capacity(num_elements)
        margin = min(0.5, 2 / math.sqrt(max(1, room / self.sample_every(num_elements))))
        return max(1, int(room * (1 - margin)))

    def select(self, values: F32, state: EncodeState, residual: F32 | None, index: U8, value: U8) -> tuple[int, int]:
        """Find the threshold and take what reaches it; return count and flags of the header."""
        if not values.size:
            return 0, 0
        bits, ties = self.threshold(values, state, residual)
        count, poisoned = kernels.select(values, residual, min(bits, INF_BITS), ties, index, value)
        return count, POISONED if poisoned else 0

    def _encode(self, values: F32, payload: U8, state: EncodeState, residual: F32 | None) -> bool:
        index, value = self._parts(payload)
        count, flags = self.select(values, state, residual, index, value)
        payload[:HEADER_BYTES].view(np.uint32)[:] = (count, flags)
        return not flags

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        scatter(self.name, payload[:HEADER_BYTES], *self._parts(payload), out, add, scale)

    def _parts(self, payload: U8) -> tuple[U8, U8]:
        middle = HEADER_BYTES + (payload.size - HEADER_BYTES) // 2
        return payload[HEADER_BYTES:middle], payload[middle:]


def scatter(name: str, header: U8, index: U8, value: U8, out: F32, add: bool, scale: float) -> None:
    """Put kept values at their places, or raise before anything is written when header or places cannot be."""
    count, flags = (int(word) for word in header.view(np.uint32))
    if 4 * count > index.size or flags not in (0, POISONED) or (flags and count):
        raise CodecError(
            f'a payload of codec "{name}" says that it holds {count} elements with flags {flags}; it has room for '
            f"{index.size // 4}.",
            hint="The payload is damaged, or its sender used another codec.",
        )
    if flags:
        out[:] = np.nan
        return
    try:
        kernels.scatter(index, value, count, out, add, scale)
    except ValueError:
        raise CodecError(
            f'a payload of codec "{name}" has an index outside the {out.size} elements of the array.',
            hint="The payload is damaged, or its sender used another length.",
        ) from None
