"""Bounded staleness: the gradients of a step are averaged in the background and applied K steps later.

    optimizer = syncline.torch.BoundedStaleness(optimizer, model, staleness=2)

A rank that is at step t needs the gradients that all ranks had at step t - K, so nobody is more than K steps ahead of
the slowest. Every rank applies the same averages in the same order, so replicas are equal to the bit after every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from syncline.runtime.periodic.averaging import Averaging, Flight, at_least
from syncline.runtime.periodic.fragment import Fragment, cut
from syncline.runtime.periodic.target import target
from syncline.runtime.periodic.wrapper import Closure, Wrapper, evaluate
from syncline.runtime.sync.settings import Settings

FRAGMENT_BYTES = 32 << 20


class StepGradients:
    """The gradients of one step: buffers of its own, so that K + 1 steps can be under way at once."""

    def __init__(self, fragments: list[Fragment]) -> None:
        self.fragments = fragments
        self.buffers = [fragment.new() for fragment in fragments]
        self.flights: list[Flight] = []


class BoundedStaleness(Wrapper):
    """Wraps any optimizer: it steps with the average gradient of `staleness` steps ago; the first steps only fill up.

    staleness  K; 0 waits for the gradients of the step itself
    codec      what gradients are sent in, with error feedback where the codec needs it
    group      the ranks to average over, by default the world; levels: see `synchronize`
    Other options are those of `Settings`.
    """

    name = "bounded-staleness"

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        staleness: int = 1,
        codec: str = "int8",
        *,
        group: Any = None,
        levels: object = None,
        **options: Any,
    ) -> None:
        super().__init__(optimizer)
        self.staleness = at_least("staleness", staleness, 0)
        chosen = target(model, group, levels)
        settings = Settings.given({"warmup": 0, **options}, codec=codec, levels=chosen.levels)
        self._averaging = Averaging(chosen, settings, {"method": self.name, "staleness": staleness})
        self._averaging.compare(chosen)
        self._target = chosen
        size = 4 * sum(value.numel() for value in chosen.values())
        count = max(1, round(size / FRAGMENT_BYTES))
        tags = [f" ({k} of {staleness + 1})" if staleness else "" for k in range(staleness + 1)]
        self._slots = [StepGradients(cut(chosen, count, tag)) for tag in tags]
        self._under_way: deque[StepGradients] = deque()
        if chosen.replaces is not None:
            chosen.replaces.require_backward_grad_sync = False

    @torch.no_grad()
    def step(self, closure: Closure = None) -> Any:
        """Launch this step's gradients and make the step of K steps ago."""
        loss = evaluate(closure)
        self._launch()
        self.num_steps += 1
        if len(self._under_way) > self.staleness:
            self._apply()
        return loss

    @torch.no_grad()
    def synchronize(self) -> None:
        """Make the steps that are still under way."""
        while self._under_way:
            self._apply()

    def close(self) -> None:
        """Make the steps that are under way, end the threads, and give DDP its averaging back."""
        if self._target.replaces is not None:
            self._target.replaces.require_backward_grad_sync = True
        try:
            self.synchronize()
        finally:
            super().close()

    def _launch(self) -> None:
        assert self._averaging is not None
        number = self.num_steps % len(self._slots)
        slot = self._slots[number]
        slot.flights = []
        for k, (fragment, buffer) in enumerate(zip(slot.fragments, slot.buffers, strict=True)):
            fragment.read_gradients(buffer)
            index = number * len(slot.fragments) + k
            slot.flights.append(self._averaging.launch(index, buffer, fragment.layout, self.num_steps))
        self._under_way.append(slot)

    def _apply(self) -> None:
        slot = self._under_way.popleft()
        for fragment, buffer, flight in zip(slot.fragments, slot.buffers, slot.flights, strict=True):
            self.waited_s += flight.wait()
            fragment.write_gradients(buffer)
        self.inner.step()

    def _save(self) -> dict[str, object]:
        assert self._averaging is not None
        for slot in self._under_way:
            for flight in slot.flights:
                flight.wait()
        saved = [[buffer.clone() for buffer in slot.buffers] for slot in self._under_way]
        return {"staleness": self.staleness, "under_way": saved, "exchange": self._averaging.state_dict()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._under_way.clear()
        self._load_exchange(state["exchange"])
        saved = state["under_way"]
        for back, buffers in enumerate(saved):
            # The averages are the same on every rank, so any rank's state will do.
            slot = self._slots[(self.num_steps - len(saved) + back) % len(self._slots)]
            for buffer, value in zip(slot.buffers, buffers, strict=True):
                buffer.copy_(value)
            slot.flights = [Flight(self.num_steps, landed=True) for _ in buffers]
            self._under_way.append(slot)
