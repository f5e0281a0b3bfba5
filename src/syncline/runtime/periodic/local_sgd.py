"""Local SGD: every rank trains alone for some steps, then takes the average of all.

    optimizer = syncline.torch.LocalSGD(optimizer, model, every=8)

It is DiLoCo with an outer step of length one and no momentum, and is streamed in the same way.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from syncline.runtime.periodic.diloco import DiLoCo


class LocalSGD(DiLoCo):
    """Wraps any optimizer: weights are averaged every `every` steps; options as those of `DiLoCo`."""

    name = "local-sgd"

    def __init__(
        self, optimizer: Optimizer, model: nn.Module, every: int = 8, codec: str = "fp32", **options: Any
    ) -> None:
        super().__init__(optimizer, model, every, codec, outer_lr=1.0, momentum=0.0, nesterov=False, **options)
