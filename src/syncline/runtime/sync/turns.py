"""How many optimizer steps a model has had: with the number of backwards it says whether ranks do the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class Turns:
    """Counts the steps of optimizers that hold any of these parameters; `after` is called after each."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self.count = 0
        self.after: Callable[[], None] | None = None
        self._own = {id(parameter) for parameter in parameters}
        self._known: weakref.WeakKeyDictionary[torch.optim.Optimizer, bool] = weakref.WeakKeyDictionary()
        known = weakref.ref(self)

        def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            turns = known()
            if turns is not None:
                turns._stepped(optimizer)

        self._hook = register_optimizer_step_post_hook(stepped)

    def remove(self) -> None:
        """Count no more."""
        self._hook.remove()

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        is_own = self._known.get(optimizer)
        if is_own is None:
            held = (id(parameter) for group in optimizer.param_groups for parameter in group["params"])
            is_own = self._known[optimizer] = any(parameter in self._own for parameter in held)
        if is_own:
            self.count += 1
            if self.after is not None:
                self.after()
