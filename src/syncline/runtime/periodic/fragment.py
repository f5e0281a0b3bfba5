"""Fragments: parameters that follow one another, side by side in flat float32 memory, averaged as one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from syncline.runtime.sync.axes import local
from syncline.runtime.sync.bucket import Layout


class Fragment:
    """Some parameters by name: how they lie in flat memory, to which they, or their gradients, are copied and back."""

    def __init__(self, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> None:
        self.names, self.parameters = tuple(names), tuple(parameters)
        values = self.values()
        self.layout = Layout(self.names, tuple(tuple(value.shape) for value in values))
        self.num_elements = sum(self.layout.sizes)
        self._device = values[0].device

    def values(self) -> list[torch.Tensor]:
        """Return this rank's part of each parameter, as reals; memory is shared."""
        return [reals(parameter) for parameter in self.parameters]

    def new(self) -> torch.Tensor:
        """Return flat zeros for all of its elements."""
        return torch.zeros(self.num_elements, dtype=torch.float32, device=self._device)

    def read(self, out: torch.Tensor) -> None:
        """Copy the parameters to flat memory."""
        torch._foreach_copy_(self.views(out), self.values())

    def write(self, flat: torch.Tensor) -> None:
        """Copy flat memory to the parameters."""
        torch._foreach_copy_(self.values(), self.views(flat))

    def add(self, flat: torch.Tensor) -> None:
        """Add flat memory to the parameters."""
        for value, part in zip(self.values(), self.views(flat), strict=True):
            value.add_(part)

    def named(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return flat memory by parameter, copied."""
        return {name: part.clone() for name, part in zip(self.names, self.views(flat), strict=True)}

    def take(self, saved: dict[str, torch.Tensor], out: torch.Tensor) -> None:
        """Fill flat memory from tensors by parameter."""
        for name, part in zip(self.names, self.views(out), strict=True):
            part.copy_(saved[name])

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return flat memory in the parameters' shapes."""
        parts = torch.split(flat, list(self.layout.sizes))
        return [part.view(shape) for part, shape in zip(parts, self.layout.shapes, strict=True)]


def cut(names: Sequence[str], parameters: Sequence[torch.Tensor], num_fragments: int) -> list[Fragment]:
    """Return at most so many fragments of about equal size, in the order of the parameters."""
    sizes = [local(parameter).numel() for parameter in parameters]
    total, done = sum(sizes), 0
    cuts = [0]
    for index, size in enumerate(sizes):
        # A parameter belongs where its middle lies, so a large one does not drag its neighbours along.
        middle = done + size / 2
        if middle * num_fragments >= total * len(cuts) and index > cuts[-1]:
            cuts.append(index)
        done += size
    return [Fragment(names[low:high], parameters[low:high]) for low, high in pairwise([*cuts, len(sizes)])]


def reals(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of a tensor, a complex one as pairs of reals; memory is shared."""
    held = local(tensor)
    return torch.view_as_real(held) if held.is_complex() else held
