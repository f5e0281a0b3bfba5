"""One codec after another: the largest elements, and their values in fewer bits."""

from __future__ import annotations

import numpy as np

from syncline.codec.scheme import F32, U8, Bound, EncodeState, Scheme
from syncline.codec.sparse import HEADER_BYTES, TopK, read_header, scatter_checked
from syncline.errors import CodecError


class Chain(Scheme):
    """Wire: u32 count, u32 flags, u32 index of each place, then the kept values as the second codec writes them.

    What the second codec loses stays in the residual as well.
    """

    def __init__(self, first: TopK, second: Scheme) -> None:
        if isinstance(second, TopK) or second.header_bytes:
            raise CodecError(f'"{second.name}" cannot follow "{first.name}": the kept values need a dense codec.')
        self.first = first
        self.second = second
        self.name = f"{first.name}+{second.name}"

    def wire_bytes(self, num_elements: int) -> int:
        room = self.first.capacity(num_elements)
        return HEADER_BYTES + 4 * room + self.second.wire_bytes(room)

    def new_state(self, num_elements: int, *, seed: int = 0) -> EncodeState:
        room = self.first.capacity(num_elements)
        scratch = {name: np.zeros(room, np.float32) for name in ("kept", "error")}
        state = EncodeState(num_elements, seed=seed, scratch=scratch)
        state.inner = self.second.new_state(room, seed=seed)
        return state

    def error_bound(self, values: F32) -> Bound:
        """An element errs by itself when not kept, else by what the second codec may lose of the kept values."""
        inner = self.second.error_bound(np.array([np.abs(values).max(initial=0)], np.float32)).max_abs
        loss = inner if inner is not None else np.full(1, np.inf, np.float32)
        return Bound(max_abs=np.maximum(np.abs(values), loss[0] if loss.size else 0).astype(np.float32))

    def _encode(self, values: F32, payload: U8, state: EncodeState, residual: F32 | None) -> None:
        assert state.inner is not None
        kept, error = state.scratch["kept"], state.scratch["error"]
        room = kept.size
        indices = payload[HEADER_BYTES : HEADER_BYTES + 4 * room].view(np.uint32)
        count, flags = self.first.select(values, state, residual, indices, kept)
        payload[:HEADER_BYTES].view(np.uint32)[:] = (count, flags)
        values_part = payload[HEADER_BYTES + 4 * room :]
        if residual is None:
            self.second.encode(kept, values_part, state.inner)
            return
        error[:] = 0
        self.second.encode(kept, values_part, state.inner, error)
        residual[indices[:count]] = error[:count]

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        room = self.first.capacity(out.size)
        indices = payload[HEADER_BYTES : HEADER_BYTES + 4 * room].view(np.uint32)
        count, flags = read_header(payload, room)
        kept = np.empty(room, np.float32)
        self.second.decode(payload[HEADER_BYTES + 4 * room :], kept)
        scatter_checked(self.name, indices, kept, count, flags, out, add, scale)
