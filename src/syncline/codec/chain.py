"""One codec after another: the largest elements, and their values in fewer bits."""

from __future__ import annotations

import threading

import numpy as np

from syncline._native import codecs as kernels
from syncline.codec.low_rank import LowRank
from syncline.codec.scheme import F32, U8, EncodeState, Scheme
from syncline.codec.sparse import HEADER_BYTES, TopK, scatter
from syncline.errors import CodecError


class Chain(Scheme):
    """Wire: u32 count, u32 flags, u32 index of each place, then the kept values as the second codec writes them.

    What the second codec loses stays in the residual as well.
    """

    owes_all = True

    def __init__(self, first: TopK, second: Scheme) -> None:
        if isinstance(second, TopK | LowRank):
            raise CodecError(f'"{second.name}" cannot follow "{first.name}": the kept values need a dense codec.')
        self.first = first
        self.second = second
        self._scratch = threading.local()
        self.name = f"{first.name}+{second.name}"

    def wire_bytes(self, num_elements: int) -> int:
        room = self.first.capacity(num_elements)
        return HEADER_BYTES + 4 * room + self.second.wire_bytes(room)

    def new_state(self, num_elements: int, *, seed: int = 0) -> EncodeState:
        room = self.first.capacity(num_elements)
        scratch = {name: np.zeros(room, np.float32) for name in ("kept", "error")}
        state = self.first.new_state(num_elements, seed=seed)
        state.scratch |= scratch
        state.inner = self.second.new_state(room, seed=seed)
        return state

    def _encode(self, values: F32, payload: U8, state: EncodeState, residual: F32 | None) -> bool:
        assert state.inner is not None
        kept, error = state.scratch["kept"], state.scratch["error"]
        header, index, value = self._parts(payload, kept.size)
        count, flags = self.first.select(values, state, residual, index, kept.view(np.uint8))
        header.view(np.uint32)[:] = (count, flags)
        if residual is None:
            self.second.encode(kept, value, state.inner)
            return not flags
        error[:] = 0
        self.second.encode(kept, value, state.inner, error)
        # The places of the kept elements are 0 now: what the second codec lost goes there.
        kernels.scatter(index, error.view(np.uint8), count, residual, True, 1.0)
        return not flags

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        room = self.first.capacity(out.size)
        header, index, value = self._parts(payload, room)
        kept = self._kept(room)
        self.second.decode(value, kept)
        scatter(self.name, header, index, kept.view(np.uint8), out, add, scale)

    def _parts(self, payload: U8, room: int) -> tuple[U8, U8, U8]:
        middle = HEADER_BYTES + 4 * room
        return payload[:HEADER_BYTES], payload[HEADER_BYTES:middle], payload[middle:]

    def _kept(self, room: int) -> F32:
        """Return scratch of this thread: decoding has no state, and must not allocate anew every step."""
        kept: F32 | None = getattr(self._scratch, "kept", None)
        if kept is None or kept.size < room:
            kept = self._scratch.kept = np.empty(room, np.float32)
        return kept[:room]
