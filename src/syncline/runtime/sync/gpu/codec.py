"""Schemes on CUDA tensors: the same calls as on the CPU, the same bytes.

`runtime.tensors.tensor_codec` gives this encoder for tensors on a CUDA device. Low rank is not here: its products are
torch's own, wherever the tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from syncline.codec.dense import Block, Dense, Sign
from syncline.errors import CodecError
from syncline.runtime.sync.finite import finite_flag
from syncline.runtime.sync.gpu import block, sign

KERNELS: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "block": (block.encode_block, block.decode_block),
    "sign": (sign.encode_sign, sign.decode_sign),
    "cast": (sign.encode_cast, sign.decode_cast),
}
"""Encode and decode of each family of `codec/dense.py`, with the family's options."""


class CudaCodec:
    """A scheme on tensors of a CUDA device."""

    def __init__(self, scheme: Dense) -> None:
        self.scheme = scheme
        self._kernels = KERNELS[scheme.family]

    def encode(self, values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor | None) -> bool | torch.Tensor:
        """Write values plus residual to the payload, leave the error in the residual, tell whether all was finite.

        What it tells is still on the device: to ask is to wait for the kernels.
        """
        return self._is_whole(values, self._write(values, payload, residual))

    def _write(self, values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
        """Encode, and return the payload where its words are whole, as kernels write them."""
        self._check(payload, values.numel())
        aligned = torch.empty_like(payload) if payload.data_ptr() % 4 else payload
        if values.numel():
            self._kernels[0](values, aligned, residual, *self.scheme.options)
        else:
            aligned.zero_()
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
        residual: torch.Tensor | None,
        *,
        before: float = 1.0,
        after: float = 1.0,
    ) -> None:
        """Add the payloads, encode the sum and take what it decodes to, as `Scheme.reduce` does."""
        self.add_up(payloads, own, scale=before)
        self._write(own, payload, residual)
        self.decode(payload, own, scale=after)

    def _is_whole(self, values: torch.Tensor, payload: torch.Tensor) -> bool | torch.Tensor:
        """Tell whether all that was encoded was finite, from as few bytes of the payload as say so."""
        scheme, n = self.scheme, values.numel()
        if n == 0:
            return True
        if isinstance(scheme, Block):
            return finite_flag(payload[: 2 * -(-n // scheme.block)].view(torch.bfloat16))
        if isinstance(scheme, Sign):
            return finite_flag(payload[: 4 * -(-n // scheme.block)].view(torch.float32))
        return finite_flag(values)  # what fp16 cannot hold is finite all the same

    def decode(self, payload: torch.Tensor, out: torch.Tensor, *, add: bool = False, scale: float = 1.0) -> None:
        """Write what the payload says, times `scale`, or add it."""
        self._check(payload, out.numel())
        payload = payload.clone() if payload.data_ptr() % 4 else payload
        if out.numel():
            self._kernels[1](payload, out, *self.scheme.options, add, scale)

    def _check(self, payload: torch.Tensor, num_elements: int) -> None:
        expected = self.scheme.wire_bytes(num_elements)
        if payload.numel() != expected:
            raise CodecError(
                f'a payload of codec "{self.scheme.name}" for {num_elements} elements has {expected} bytes; '
                f"got {payload.numel()}."
            )
