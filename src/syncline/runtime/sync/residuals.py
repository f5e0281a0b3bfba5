"""Residuals of error feedback, kept by parameter: they outlive buckets, runs and numbers of ranks.

A bucket wants its residuals as one flat tensor, in its own order of parameters. The store lays that tensor out and
remembers where each parameter's part is; when buckets are rebuilt, parts move to their new places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from syncline.errors import SynchronizationError


class Residuals:
    """What each parameter's gradient still owes the average, on this rank."""

    def __init__(self) -> None:
        self._parts: dict[str, torch.Tensor] = {}
        self._loaded: dict[str, torch.Tensor] = {}

    def flat(self, names: Sequence[str], sizes: Sequence[int], device: torch.device) -> torch.Tensor:
        """Return one tensor with the parameters' residuals side by side; known ones are moved in, new ones are zero."""
        whole = torch.zeros(sum(sizes), dtype=torch.float32, device=device)
        for name, part in zip(names, torch.split(whole, list(sizes)), strict=True):
            known = self._loaded.pop(name, self._parts.get(name))
            if known is not None:
                _check_size(name, known, part.numel())
                part.copy_(known.reshape(-1))
            self._parts[name] = part
        return whole

    def scale(self, factor: float) -> None:
        """Multiply all, as when the scale of the loss changes."""
        for part in (*self._parts.values(), *self._loaded.values()):
            part.mul_(factor)

    def parts(self) -> dict[str, torch.Tensor]:
        """Return every parameter's residual: views of what the buckets use."""
        return {**self._parts, **self._loaded}

    def load(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Take saved residuals over: into buckets that are there, and for those that come later."""
        for name, tensor in saved.items():
            part = self._parts.get(name)
            if part is None:
                self._loaded[name] = tensor.detach().clone().to(torch.float32)
                continue
            _check_size(name, tensor, part.numel())
            part.copy_(tensor.reshape(-1))


def _check_size(name: str, tensor: torch.Tensor, num_elements: int) -> None:
    if tensor.numel() != num_elements:
        raise SynchronizationError(
            f'the residual of parameter "{name}" has {tensor.numel()} elements and the parameter {num_elements}.',
            hint="Load the state of the same model.",
        )
