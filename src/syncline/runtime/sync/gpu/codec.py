"""Schemes on CUDA tensors: the same calls as on the CPU, the same bytes.

`runtime.tensors.tensor_codec` gives this encoder for tensors on a CUDA device. Low rank is not here: its products are
torch's own, wherever the tensors are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from syncline.codec.chain import Chain
from syncline.codec.dense import Block, Dense, Fp8, Sign
from syncline.codec.scheme import EncodeState, Scheme
from syncline.codec.sparse import HEADER_BYTES, TopK
from syncline.errors import CodecError, SynchronizationError
from syncline.runtime.sync.finite import finite_flag
from syncline.runtime.sync.gpu import block, sign, sparse

KERNELS: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "block": (block.encode_block, block.decode_block),
    "fp8": (block.encode_fp8, block.decode_fp8),
    "sign": (sign.encode_sign, sign.decode_sign),
    "cast": (sign.encode_cast, sign.decode_cast),
}
"""Encode and decode of each family of `codec/dense.py`, with the family's options."""


class CudaCodec:
    """A scheme on tensors of a CUDA device."""

    def __init__(self, scheme: Scheme) -> None:
        if not isinstance(scheme, (Dense, Chain, TopK)):
            raise SynchronizationError(
                f'codec "{scheme.name}" has no kernels for CUDA tensors.',
                detail="There are: fp32, fp16, bf16, fp8, int8, int4, sign, topk and chains of topk.",
            )
        self.scheme: Scheme = scheme
        self._second = CudaCodec(scheme.second) if isinstance(scheme, Chain) else None

    def new_state(self, num_elements: int, *, seed: int = 0) -> EncodeState:
        """Return what one stream of encodes carries from step to step; its scratch comes with the first encode."""
        return CudaState(self.scheme.new_state(num_elements, seed=seed))

    def encode(
        self, values: torch.Tensor, payload: torch.Tensor, state: EncodeState, residual: torch.Tensor | None
    ) -> bool | torch.Tensor:
        """Write values plus residual to the payload, leave the error in the residual, tell whether all was finite.

        What it tells is still on the device: to ask is to wait for the kernels.
        """
        return self._is_whole(values, self._write(values, payload, state, residual))

    def _write(
        self, values: torch.Tensor, payload: torch.Tensor, state: EncodeState, residual: torch.Tensor | None
    ) -> torch.Tensor:
        """Encode, and return the payload where its words are whole, as kernels write them."""
        self._check(payload, values.numel())
        aligned = torch.empty_like(payload) if payload.data_ptr() % 4 else payload
        self._encode(values, aligned, state, residual)
        if aligned is not payload:
            payload.copy_(aligned)
        return aligned

    def add_up(self, payloads: Sequence[torch.Tensor], own: torch.Tensor, *, scale: float = 1.0) -> None:
        """Add what the payloads say, then multiply."""
        for payload in payloads:
            self.decode(payload, own, add=True)
        if scale != 1.0:
            own.mul_(scale)

    def reduce(
        self,
        payloads: Sequence[torch.Tensor],
        own: torch.Tensor,
        payload: torch.Tensor,
        state: EncodeState,
        residual: torch.Tensor | None,
        *,
        before: float = 1.0,
        after: float = 1.0,
    ) -> None:
        """Add the payloads, encode the sum and take what it decodes to, as `Scheme.reduce` does."""
        self.add_up(payloads, own, scale=before)
        self._write(own, payload, state, residual)
        self.decode(payload, own, scale=after)

    def _is_whole(self, values: torch.Tensor, payload: torch.Tensor) -> bool | torch.Tensor:
        """Tell whether all that was encoded was finite, from as few bytes of the payload as say so."""
        scheme, n = self.scheme, values.numel()
        if n == 0:
            return True
        if isinstance(scheme, (Block, Fp8)):
            return finite_flag(payload[: 2 * -(-n // scheme.block)].view(torch.bfloat16))
        if isinstance(scheme, Sign):
            return finite_flag(payload[: 4 * -(-n // scheme.block)].view(torch.float32))
        if isinstance(scheme, (TopK, Chain)):
            return payload[4:HEADER_BYTES].view(torch.int32)[0] == 0
        return finite_flag(values)  # what fp16 cannot hold is finite all the same

    def _encode(
        self, values: torch.Tensor, payload: torch.Tensor, state: EncodeState, residual: torch.Tensor | None
    ) -> None:
        if values.numel() == 0:
            payload.zero_()
        elif isinstance(self.scheme, Dense):
            encode, _ = KERNELS[self.scheme.family]
            encode(values, payload, residual, *self.scheme.options, *self.scheme.draw(state))
        else:
            self._encode_sparse(values, payload, state, residual)

    def decode(self, payload: torch.Tensor, out: torch.Tensor, *, add: bool = False, scale: float = 1.0) -> None:
        """Write what the payload says, times `scale`, or add it."""
        self._check(payload, out.numel())
        payload = payload.clone() if payload.data_ptr() % 4 else payload
        if out.numel() == 0:
            return
        if isinstance(self.scheme, Dense):
            _, decode = KERNELS[self.scheme.family]
            decode(payload, out, *self.scheme.options, add, scale)
        else:
            self._decode_sparse(payload, out, add, scale)

    def _encode_sparse(
        self, values: torch.Tensor, payload: torch.Tensor, state: EncodeState, residual: torch.Tensor | None
    ) -> None:
        assert isinstance(state, CudaState)
        top = self._top()
        n, room = values.numel(), top.capacity(values.numel())
        scratch = state.scratch_on(values.device, room)
        every = min(sparse.SAMPLE_EVERY, n // sparse.RUN // 2048) if n > sparse.EXACT_UP_TO else 1
        if every > 1:
            # Three deviations of the sample below what fits, so that it rarely overflows.
            wanted = max(1, int(room * (1 - min(0.5, 3 / math.sqrt(max(1.0, room / every))))))
            sparse.find_threshold(values, residual, scratch, wanted, every, state.next_key() % every)
        else:
            sparse.find_threshold(values, residual, scratch, room, 1, 0)
        words = payload[: HEADER_BYTES + 4 * room].view(torch.int32)
        rest = payload[HEADER_BYTES + 4 * room :]
        if self._second is None:
            sparse.select(values, residual, scratch, words[:2], words[2:], rest.view(torch.float32))
            return
        kept, error = state.between(room, values.device)
        sparse.select(values, residual, scratch, words[:2], words[2:], kept)
        assert state.inner is not None
        if residual is None:
            self._second._encode(kept, rest, state.inner, None)
            return
        error.zero_()
        self._second._encode(kept, rest, state.inner, error)
        sparse.owe(residual, words[:2], words[2:], error)

    def _decode_sparse(self, payload: torch.Tensor, out: torch.Tensor, add: bool, scale: float) -> None:
        room = self._top().capacity(out.numel())
        words = payload[: HEADER_BYTES + 4 * room].view(torch.int32)
        count, flags = words[:2].tolist()
        if not 0 <= count <= room or flags not in (0, sparse.POISONED):
            raise CodecError(
                f"a sparse payload says that it holds {count} elements with flags {flags}; it has room for {room}.",
                hint="The payload is damaged, or its sender used another codec.",
            )
        if flags:
            out.fill_(float("nan"))
            return
        if sparse.outside(words[2:], count, out.numel()):
            raise CodecError(
                f'a payload of codec "{self.scheme.name}" has an index outside the '
                f"{out.numel()} elements of the array.",
                hint="The payload is damaged, or its sender used another length.",
            )
        rest = payload[HEADER_BYTES + 4 * room :]
        kept = rest.view(torch.float32) if self._second is None else torch.empty(room, device=out.device)
        if self._second is not None:
            self._second.decode(rest, kept)
        if not add:
            out.zero_()
        sparse.scatter(words[2:], kept, count, out, scale)

    def _top(self) -> TopK:
        return self.scheme.first if isinstance(self.scheme, Chain) else self.scheme  # type: ignore[return-value]

    def _check(self, payload: torch.Tensor, num_elements: int) -> None:
        expected = self.scheme.wire_bytes(num_elements)
        if payload.numel() != expected:
            raise CodecError(
                f'a payload of codec "{self.scheme.name}" for {num_elements} elements has {expected} bytes; '
                f"got {payload.numel()}."
            )


class CudaState(EncodeState):
    """The state of a stream of encodes with its scratch on a device."""

    def __init__(self, host: EncodeState) -> None:
        super().__init__(host.num_elements, seed=host.seed)
        self.inner = None if host.inner is None else CudaState(host.inner)
        self._scratch: sparse.Scratch | None = None
        self._between: tuple[torch.Tensor, torch.Tensor] | None = None

    def scratch_on(self, device: torch.device, capacity: int) -> sparse.Scratch:
        """Return the scratch, made when first asked for."""
        if self._scratch is None:
            self._scratch = sparse.Scratch.on(device, self.num_elements, capacity)
        return self._scratch

    def between(self, room: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the kept values of a chain, and what its second codec loses of them."""
        if self._between is None:
            self._between = (torch.empty(room, device=device), torch.empty(room, device=device))
        return self._between
