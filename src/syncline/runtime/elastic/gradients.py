"""The gradients of a model as flat buckets: packed when they are there, averaged, and put back when all are whole.

Gradients stay as this rank computed them until every bucket of a step has its average. Each counts by its samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syncline.errors import SynchronizationError
from syncline.runtime.periodic.fragment import Fragment, cut, reals

BUCKET_BYTES = 25 << 20


class GradientBucket:
    """A fragment of the model and the buffer in which its gradients are averaged."""

    def __init__(self, index: int, fragment: Fragment) -> None:
        self.index = index
        self.parameters, self.layout = fragment.parameters, fragment.layout
        self.buffer = fragment.new()
        self._parts = fragment.views(self.buffer)

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
            part.copy_(reals(parameter.grad))
            if scale != 1.0:
                part.mul_(scale)

    @torch.no_grad()
    def unpack(self, scale: float) -> None:
        """Make the averages, times `scale`, the gradients."""
        self.buffer.mul_(scale)
        for parameter, part in zip(self.parameters, self._parts, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            reals(parameter.grad).copy_(part)


def buckets(names: Sequence[str], parameters: Sequence[torch.Tensor]) -> list[GradientBucket]:
    """Return buckets of about `BUCKET_BYTES`, of the last parameters first: their gradients are there first."""
    size = 4 * sum(reals(parameter).numel() for parameter in parameters)
    fragments = cut(names[::-1], parameters[::-1], -(-size // BUCKET_BYTES))
    return [GradientBucket(index, fragment) for index, fragment in enumerate(fragments)]
