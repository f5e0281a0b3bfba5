"""The gradients of a model as flat buckets: packed when they are there, averaged, and put back when all are whole.

Gradients stay as this rank computed them until every bucket of a step has its average. Each counts by its samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syncline.errors import SynchronizationError
from syncline.runtime.periodic.target import local_part
from syncline.runtime.sync.bucket import Layout

BUCKET_BYTES = 25 << 20


class GradientBucket:
    """Some parameters and the buffer in which their gradients are averaged."""

    def __init__(self, index: int, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> None:
        self.index = index
        self.parameters = tuple(parameters)
        shapes = [_reals(local_part(parameter.detach())).shape for parameter in parameters]
        self.layout = Layout(tuple(names), tuple(map(tuple, shapes)))
        self.buffer = torch.empty(sum(self.layout.sizes), device=local_part(parameters[0].detach()).device)
        self._parts = torch.split(self.buffer, list(self.layout.sizes))

    @torch.no_grad()
    def pack(self, scale: float) -> None:
        """Copy this rank's gradients into the buffer; where there is none, or it does not count, it is 0."""
        for name, parameter, part in zip(self.layout.names, self.parameters, self._parts, strict=True):
            if parameter.grad is None or scale == 0.0:
                part.zero_()
                continue
            if parameter.grad.is_sparse:
                raise SynchronizationError(
                    f'the gradient of "{name}" is sparse, and a crew averages dense ones.',
                    hint="Leave sparse=True of the embedding out.",
                )
            part.copy_(_reals(local_part(parameter.grad)).flatten())
            if scale != 1.0:
                part.mul_(scale)

    @torch.no_grad()
    def unpack(self, scale: float) -> None:
        """Make the averages, times `scale`, the gradients."""
        self.buffer.mul_(scale)
        for parameter, part in zip(self.parameters, self._parts, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            own = _reals(local_part(parameter.grad))
            own.copy_(part.view(own.shape))


def buckets(names: Sequence[str], parameters: Sequence[torch.Tensor], size_bytes: int) -> list[GradientBucket]:
    """Return buckets of at most so many bytes, of the last parameters first: their gradients are there first."""
    groups: list[list[int]] = [[]]
    filled = 0
    for index in reversed(range(len(parameters))):
        size = 4 * _reals(local_part(parameters[index].detach())).numel()
        if groups[-1] and filled + size > size_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(index)
        filled += size
    return [
        GradientBucket(number, [names[i] for i in group], [parameters[i] for i in group])
        for number, group in enumerate(groups)
    ]


def _reals(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
