"""Around optimizer steps: they are counted, a skipped step is left out, residuals follow the scale of the loss."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class Scaler(Protocol):
    """What syncline calls of a gradient scaler."""

    def get_scale(self) -> float: ...


class ScaleFollower:
    """Calls `rescale` with the factor by which a scaler's scale changed."""

    def __init__(self, scaler: Scaler, rescale: Callable[[float], None]) -> None:
        self._scaler, self._rescale = scaler, rescale
        self._scale = scaler.get_scale()

    def look(self) -> None:
        """Follow the scale; between steps."""
        scale = self._scaler.get_scale()
        if scale != self._scale:
            self._rescale(scale / self._scale)
            self._scale = scale


class OptimizerSteps:
    """The steps of all optimizers that hold any of these parameters: how many there were, and which are left out.

    Where `is_skipped` says so before a step, its gradients are taken away, so that the parameters stay. With the number
    of backwards the count shows whether ranks do the same.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], is_skipped: Callable[[], bool] | None = None) -> None:
        self.count = 0
        self._own = {id(parameter) for parameter in parameters}
        self._is_skipped = is_skipped
        self._known: weakref.WeakKeyDictionary[torch.optim.Optimizer, bool] = weakref.WeakKeyDictionary()
        known = weakref.ref(self)

        # The optimizers of torch keep these hooks: a strong way back would keep the handle for ever.
        def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            if (steps := known()) is not None:
                steps._before(optimizer)

        def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            if (steps := known()) is not None:
                steps._stepped(optimizer)

        self._hooks = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(stepped)]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that have made a step."""
        return [optimizer for optimizer, is_own in self._known.items() if is_own]

    def remove(self) -> None:
        """Look at no more steps."""
        for hook in self._hooks:
            hook.remove()

    def _before(self, optimizer: torch.optim.Optimizer) -> None:
        if self._is_skipped is None or not self._is_own(optimizer) or not self._is_skipped():
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._own:
                    parameter.grad = None

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if self._is_own(optimizer):
            self.count += 1

    def _is_own(self, optimizer: torch.optim.Optimizer) -> bool:
        is_own = self._known.get(optimizer)
        if is_own is None:
            held = (id(parameter) for group in optimizer.param_groups for parameter in group["params"])
            is_own = self._known[optimizer] = any(parameter in self._own for parameter in held)
        return is_own
