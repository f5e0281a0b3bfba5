"""Fragments: parameters that follow one another, side by side in flat float32 memory, exchanged as one buffer."""

from __future__ import annotations

from itertools import pairwise

import torch

from syncline.runtime.periodic.target import Target
from syncline.runtime.sync.bucket import Layout


class Fragment:
    """Some parameters of a target: their places in it, and flat memory to copy them to and from."""

    def __init__(self, target: Target, low: int, high: int) -> None:
        self._target = target
        self._low, self._high = low, high
        parts = target.values()[low:high]
        self._sizes = [part.numel() for part in parts]
        self.names = target.names[low:high]
        self.layout = Layout(self.names, tuple(tuple(part.shape) for part in parts))
        self.num_elements = sum(self._sizes)

    def new(self) -> torch.Tensor:
        """Return flat zeros for all of its elements."""
        return torch.zeros(self.num_elements, dtype=torch.float32, device=self._target.device)

    def read(self, out: torch.Tensor) -> None:
        """Copy the parameters to flat memory."""
        torch._foreach_copy_(self.views(out), self._values())

    def write(self, flat: torch.Tensor) -> None:
        """Copy flat memory to the parameters."""
        torch._foreach_copy_(self._values(), self.views(flat))

    def add(self, flat: torch.Tensor) -> None:
        """Add flat memory to the parameters."""
        for value, part in zip(self._values(), self.views(flat), strict=True):
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
        parts = torch.split(flat, self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self.layout.shapes, strict=True)]

    def _values(self) -> list[torch.Tensor]:
        return self._target.values()[self._low : self._high]


def cut(target: Target, num_fragments: int) -> list[Fragment]:
    """Return at most so many fragments of about equal size, in the order of the parameters."""
    sizes = [value.numel() for value in target.values()]
    total, done = sum(sizes), 0
    cuts = [0]
    for index, size in enumerate(sizes):
        # A parameter belongs where its middle lies, so a large one does not drag its neighbours along.
        middle = done + size / 2
        if middle * num_fragments >= total * len(cuts) and index > cuts[-1]:
            cuts.append(index)
        done += size
    return [Fragment(target, low, high) for low, high in pairwise([*cuts, len(sizes)])]
