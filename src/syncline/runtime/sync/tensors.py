"""Schemes on tensors: the seam between the exchange and where the numbers are.

`tensor_codec(scheme, device)` gives the encoder of a device. On the CPU tensors share their memory with NumPy and the
scheme itself does the work, with the interpreter's lock released.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch

from syncline.codec.dense import F32, Dense
from syncline.errors import SynchronizationError

if TYPE_CHECKING:
    from syncline.runtime.sync.gpu.codec import CudaCodec

TensorCodec: TypeAlias = "CpuCodec | CudaCodec"
"""An encoder of one device: the calls of `Dense`, on flat float32 and uint8 tensors."""


class CpuCodec:
    """A scheme on tensors of the CPU, without a copy."""

    def __init__(self, scheme: Dense) -> None:
        self.scheme = scheme

    def encode(self, values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor | None) -> bool:
        """Write values plus residual to the payload, leave the error in the residual, tell whether all was finite."""
        return self.scheme.encode(values.numpy(), payload.numpy(), _array(residual))

    def decode(self, payload: torch.Tensor, out: torch.Tensor, *, add: bool = False, scale: float = 1.0) -> None:
        """Write what the payload says, times `scale`, or add it."""
        self.scheme.decode(payload.numpy(), out.numpy(), add=add, scale=scale)

    def add_up(self, payloads: Sequence[torch.Tensor], own: torch.Tensor, *, scale: float = 1.0) -> None:
        """Add what the payloads say, then multiply."""
        self.scheme.add_up([payload.numpy() for payload in payloads], own.numpy(), scale=scale)

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
        """Add the payloads, encode the sum and take what it decodes to, as `Dense.reduce` does."""
        received = [part.numpy() for part in payloads]
        self.scheme.reduce(received, own.numpy(), payload.numpy(), _array(residual), before=before, after=after)


def tensor_codec(scheme: Dense, device: torch.device) -> TensorCodec:
    """Return the encoder of `scheme` for tensors of `device`."""
    if device.type == "cpu":
        return CpuCodec(scheme)
    if device.type == "cuda":
        from syncline.runtime.sync.gpu.codec import CudaCodec  # needs Triton, which comes with torch for CUDA

        return CudaCodec(scheme)
    raise SynchronizationError(
        f'codec "{scheme.name}" has no encoder for tensors on "{device.type}"; there are encoders for cpu and cuda.',
        hint="Move the model to one of these.",
    )


def take_back(codec: TensorCodec, values: torch.Tensor, payload: torch.Tensor, residual: torch.Tensor) -> None:
    """Make the residual what it was before these values were encoded, but for rounding; for steps that are dropped."""
    sent = torch.empty_like(values)
    codec.decode(payload, sent)
    change = sent.sub_(values)
    residual.add_(torch.where(torch.isfinite(change), change, 0.0))


def _array(residual: torch.Tensor | None) -> F32 | None:
    return None if residual is None else residual.numpy()
