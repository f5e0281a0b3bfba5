"""What overflows do to training: optimizers leave a skipped step out, and residuals follow the scale of the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


class Scaler(Protocol):
    """What is asked of a gradient scaler."""

    def get_scale(self) -> float: ...


class ScaleFollower:
    """Calls `rescale` with the factor by which a scaler's scale changed, when asked to look."""

    def __init__(self, scaler: Scaler, rescale: Callable[[float], None]) -> None:
        self._scaler, self._rescale = scaler, rescale
        self._scale = scaler.get_scale()

    def look(self) -> None:
        """Follow the scale; between steps."""
        scale = self._scaler.get_scale()
        if scale != self._scale:
            self._rescale(scale / self._scale)
            self._scale = scale


class StepSkipper:
    """Leaves optimizers nothing to do with some parameters where a step is skipped: without gradient they stay."""

    def __init__(self, parameters: Iterable[torch.Tensor], is_skipped: Callable[[], bool]) -> None:
        self._own = {id(parameter) for parameter in parameters}
        self._is_skipped = is_skipped
        self._hook = register_optimizer_step_pre_hook(self._before)

    def remove(self) -> None:
        """Look at no more steps."""
        self._hook.remove()

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        groups = [group["params"] for group in optimizer.param_groups]
        own = [parameter for group in groups for parameter in group if id(parameter) in self._own]
        if own and self._is_skipped():
            for parameter in own:
                parameter.grad = None
