"""Updates under the exchange: an optimizer updates a bucket's parameters when that bucket is averaged, not all at last.

A step is over when the last parameter is updated. An optimizer that waits for the last bucket adds all of its work to
the end, where the network has nothing left to do; most of it can be done while later buckets are still on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from syncline.errors import SynchronizationError

LEAVE_OUT = "Leave optimizer= out: updates then come after the last bucket, as torch does them."


class EarlyUpdates:
    """Updates parameters in parts; the user's own `optimizer.step()` then finds nothing of them left to do.

    Each parameter must be updated from its own gradient alone, as all optimizers of torch but L-BFGS do.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise SynchronizationError(
                f"optimizer= is a {type(optimizer).__name__}, not an optimizer of torch.", hint=LEAVE_OUT
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise SynchronizationError("L-BFGS needs all gradients at once.", hint=LEAVE_OUT)
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if not held & {id(parameter) for parameter in parameters}:
            raise SynchronizationError("optimizer= holds no parameter of this model.", hint="Give the model's own.")
        self._optimizer = optimizer
        self._apply = _without_hooks(optimizer)
        self._updated: dict[int, torch.Tensor] = {}
        self._hidden: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self._hooks = [
            optimizer.register_step_pre_hook(lambda *ignored: self._hide()),
            optimizer.register_step_post_hook(lambda *ignored: self._show()),
        ]

    def update(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Update these parameters by these gradients, as the optimizer's next step would."""
        if any(id(parameter) in self._updated for parameter in parameters):
            raise SynchronizationError(
                "backward ran again before optimizer.step(), and its first run had updated the parameters already.",
                hint=f"Call optimizer.step() after each backward outside no_sync(). {LEAVE_OUT}",
            )
        chosen = {id(parameter) for parameter in parameters}
        groups = self._optimizer.param_groups
        whole = [group["params"] for group in groups]
        before = [parameter.grad for parameter in parameters]
        try:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            for group, params in zip(groups, whole, strict=True):
                group["params"] = [parameter for parameter in params if id(parameter) in chosen]
            self._apply()
        finally:
            for group, params in zip(groups, whole, strict=True):
                group["params"] = params
            for parameter, kept in zip(parameters, before, strict=True):
                parameter.grad = kept
        self._updated.update((id(parameter), parameter) for parameter in parameters)

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        for hook in self._hooks:
            hook.remove()

    def _hide(self) -> None:
        """Before the user's step: without gradient a parameter stays as it is."""
        self._hidden = [(parameter, parameter.grad) for parameter in self._updated.values()]
        for parameter, _ in self._hidden:
            parameter.grad = None

    def _show(self) -> None:
        """After it: gradients are there again for whoever looks at them."""
        for parameter, gradient in self._hidden:
            parameter.grad = gradient
        self._hidden = []
        self._updated.clear()


def _without_hooks(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """Return the optimizer's step as its class has it: hooks and schedulers count whole steps, the user's own."""
    step: Any = type(optimizer).step
    plain = step.__wrapped__ if getattr(step, "hooked", False) else step
    return lambda: plain(optimizer)
