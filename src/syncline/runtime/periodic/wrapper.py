"""An optimizer around an optimizer: schedulers, scalers and scripts see one; a method of synchronising sees two."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from syncline.errors import SynchronizationError
from syncline.runtime.periodic.averaging import Averaging

STATE_VERSION = 1
Closure = Callable[[], Any] | None


class Wrapper(Optimizer, ABC):
    """What every method shares: the groups and state of the inner optimizer, hooks, saving, closing.

    A method says its `name`, how it saves what is its own (`_save`, `_load`), and what `step` does.
    """

    name = ""

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
        self.num_steps = 0
        self.waited_s = 0.0
        """How long the training thread has waited for others, in all."""
        self._averaging: Averaging | None = None

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

    @property
    def wire_bytes(self) -> int:
        """What this rank has sent across, in all."""
        return 0 if self._averaging is None else self._averaging.wire_bytes

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

    def state_dict(self) -> dict[str, object]:
        """Return what this rank needs to go on: the inner optimizer's state and the method's own.

        What ranks share (weights agreed on, outer momentum) is the same on all; residuals and what is under way are
        this rank's. It waits for what is under way to arrive, and calls nobody.
        """
        shared = {"version": STATE_VERSION, "method": self.name, "step": self.num_steps}
        return {**shared, "inner": self.inner.state_dict(), **self._save()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; of another rank's state, only what is shared."""
        found = (state_dict.get("version"), state_dict.get("method"))
        if found != (STATE_VERSION, self.name):
            raise SynchronizationError(
                f"the saved state has version {found[0]!r} and method {found[1]!r}; this is version "
                f"{STATE_VERSION} of {self.name!r}.",
                hint="Load what this method's state_dict() returned.",
            )
        self.inner.load_state_dict(dict(state_dict["inner"]))
        self.num_steps = int(state_dict["step"])
        self._load(state_dict)

    def close(self) -> None:
        """Finish what is under way and end the threads; the inner optimizer goes on alone."""
        if self._averaging is not None:
            self._averaging.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @abstractmethod
    def _save(self) -> dict[str, object]:
        """Return what is the method's own, by name."""

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None:
        """Take over what `_save` returned."""

    def _load_exchange(self, state: Mapping[str, Any]) -> bool:
        """Take residuals over where they are this rank's own or those of all together; tell whether they were."""
        assert self._averaging is not None
        owner = (state["local_to"], state["num_ranks"])
        mine = (self._averaging.rank, self._averaging.num_ranks)
        if owner == mine or owner[0] < 0:
            self._averaging.load_state_dict(state)
            return True
        warnings.warn(
            f"the state is of rank {owner[0]} of {owner[1]} and this is rank {mine[0]} of {mine[1]}: what codecs owe "
            "and what was under way is left out.",
            stacklevel=4,
        )
        return False


def evaluate(closure: Closure) -> Any:
    """Return what a closure returns, with gradients."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
