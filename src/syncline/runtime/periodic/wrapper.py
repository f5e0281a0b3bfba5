"""An optimizer around an optimizer: schedulers, scalers and scripts see one, its method of synchronising sees two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from syncline.errors import SynchronizationError

Closure = Callable[[], Any] | None


class Wrapper(Optimizer, ABC):
    """An optimizer whose parameter groups, state and hooks are those of the inner optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        # Not Optimizer.__init__: the parameters are the inner optimizer's, and so is all that it keeps of them.
        if not isinstance(optimizer, Optimizer):
            raise SynchronizationError(
                f"{type(self).__name__} wraps a torch optimizer; got {type(optimizer).__name__}.",
                hint=f"For example {type(self).__name__}(torch.optim.AdamW(model.parameters(), lr=3e-4), model).",
            )
        if isinstance(optimizer, Wrapper):
            raise SynchronizationError(
                f"the optimizer is already wrapped by {type(optimizer).__name__}.", hint="Use one of the two."
            )
        self.inner = optimizer

    @property
    def param_groups(self) -> list[dict[str, object]]:  # type: ignore[override]
        """The groups of the inner optimizer."""
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """What the inner optimizer keeps of each parameter."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, object]:  # type: ignore[override]
        """The inner optimizer's defaults."""
        return self.inner.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.inner.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, object]) -> None:
        """Refuse: what is exchanged was laid out, and agreed with the other ranks, at the start."""
        raise SynchronizationError(
            f"{type(self).__name__} cannot add parameters later.",
            hint="Add the group to the inner optimizer and wrap it again, on every rank.",
        )

    def register_step_pre_hook(self, hook: Any) -> Any:
        """Call before each step of the inner optimizer."""
        return self.inner.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Any) -> Any:
        """Call after each step of the inner optimizer."""
        return self.inner.register_step_post_hook(hook)

    @abstractmethod
    def synchronize(self) -> None:
        """Finish what is under way and make all replicas equal; every rank calls it at the same step."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"
