"""DiLoCo: many local steps, then an outer step with Nesterov momentum along what all ranks moved on average.

    optimizer = syncline.torch.DiLoCo(optimizer, model, every=50, codec="int4")

Streamed, the model is cut into fragments. Fragment k is launched at its own step of the period: how far it has moved
from the weights agreed on last is averaged in the background while steps go on. When the average arrives, every rank
makes the same outer step, and adds to the new agreed weights what it has itself moved meanwhile: no local step is lost
and none counts twice. The staleness of a fragment is the number of steps between its launch and its arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from syncline.errors import SynchronizationError
from syncline.runtime.periodic.averaging import Averaging, Flight, at_least
from syncline.runtime.periodic.fragment import Fragment, cut
from syncline.runtime.periodic.target import target
from syncline.runtime.periodic.wrapper import Closure, Wrapper
from syncline.runtime.settings import Settings

DEFAULT_FRAGMENTS = 8


class Shared:
    """A fragment with what ranks share of it: agreed weights, outer momentum; and what is under way."""

    def __init__(self, fragment: Fragment, offset: int, *, momentum: bool, streamed: bool) -> None:
        self.fragment = fragment
        self.offset = offset
        self.agreed, self.moved = fragment.new(), fragment.new()
        fragment.read(self.agreed)
        self.momentum = fragment.new() if momentum else None
        self.sent = fragment.new() if streamed else None
        self.flight: Flight | None = None
        self.staleness = 0
        self.num_rounds = 0

    def pack(self) -> None:
        """Note where this rank is and how far that is from the agreed weights."""
        self.fragment.read(self.moved)
        if self.sent is not None:
            self.sent.copy_(self.moved)
        self.moved.sub_(self.agreed)

    def outer_step(self, lr: float, momentum: float, nesterov: bool) -> None:
        """Move the agreed weights along the average that has arrived."""
        if self.momentum is not None:
            # As torch.optim.SGD: the first round starts the momentum, it is not damped.
            self.momentum.mul_(momentum).add_(self.moved)
            if nesterov:
                self.moved.add_(self.momentum, alpha=momentum)
            else:
                self.moved.copy_(self.momentum)
        self.agreed.add_(self.moved, alpha=lr)
        self.num_rounds += 1

    def take(self, step: int) -> None:
        """Go on from the agreed weights, with what was done since the launch."""
        assert self.flight is not None
        self.staleness = step - self.flight.step
        if self.staleness == 0:
            self.fragment.write(self.agreed)
        else:
            assert self.sent is not None
            self.fragment.add(torch.sub(self.agreed, self.sent, out=self.moved))
        self.flight = None


class DiLoCo(Wrapper):
    """Wraps any optimizer: `every` local steps of it, then one outer step that all ranks make alike.

    every      local steps between outer steps
    codec      what the outer gradients are sent in, with error feedback where the codec needs it
    outer_lr, momentum, nesterov   of the outer step; the defaults are those of the DiLoCo paper
    stream     in fragments, in the background; False: all at once, and training waits
    fragments  how many; by default 8, or `every` where that is less
    delay      apply exactly so many steps after the launch, for runs that repeat bit for bit; None: on arrival
    group      the ranks to average over, by default the world; levels: see `synchronize`
    Other options are those of `Settings`.
    """

    name = "diloco"

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        every: int = 50,
        codec: str = "int8",
        *,
        outer_lr: float = 0.7,
        momentum: float = 0.9,
        nesterov: bool = True,
        stream: bool = True,
        fragments: int | None = None,
        delay: int | None = None,
        group: Any = None,
        levels: object = None,
        **options: Any,
    ) -> None:
        super().__init__(optimizer)
        self.every = at_least("every", every, 1)
        self.outer_lr, self.outer_momentum, self.nesterov = outer_lr, momentum, nesterov
        self.delay = _delay(delay, stream, every)
        chosen = target(model, group, levels)
        settings = Settings(codec=codec, levels=chosen.levels, **options)
        count = at_least("fragments", fragments, 1) if fragments is not None else min(DEFAULT_FRAGMENTS, every)
        meaning = {
            "method": self.name, "every": every, "outer_lr": outer_lr, "momentum": momentum, "nesterov": nesterov,
            "stream": stream, "fragments": count, "delay": delay,
        }  # fmt: skip
        self._averaging = Averaging(chosen, settings, meaning)
        self._target = chosen
        parts = cut(chosen, count if stream else 1)
        self._shared = [
            Shared(part, (k + 1) * every // len(parts) % every, momentum=momentum != 0, streamed=stream)
            for k, part in enumerate(parts)
        ]
        self._averaging.compare(chosen)
        if chosen.replaces is not None:
            chosen.replaces.require_backward_grad_sync = False

    @torch.no_grad()
    def step(self, closure: Closure = None) -> Any:
        """Make a local step; apply what has arrived, and launch what is due."""
        loss = self.inner.step(closure)
        self.num_steps += 1
        for index, shared in enumerate(self._shared):
            flight = shared.flight
            due = self.num_steps % self.every == shared.offset
            if flight is not None and (due or self._arrives(flight)):
                self._land(shared)
            if due:
                self._launch(index, shared)
                if self.delay == 0:
                    self._land(shared)
        return loss

    @property
    def staleness(self) -> list[int]:
        """Steps between launch and arrival of each fragment, the last time."""
        return [shared.staleness for shared in self._shared]

    @torch.no_grad()
    def synchronize(self) -> None:
        """Finish what is under way and make an outer step with all fragments at once: all replicas are then equal."""
        self._land_all()
        for index, shared in enumerate(self._shared):
            self._launch(index, shared)
        self._land_all()

    def close(self) -> None:
        """Finish what is under way, end the threads, and give DDP its averaging back."""
        if self._target.replaces is not None:
            self._target.replaces.require_backward_grad_sync = True
        try:
            with torch.no_grad():
                self._land_all()
        finally:
            super().close()

    def _arrives(self, flight: Flight) -> bool:
        return flight.landed if self.delay is None else self.num_steps - flight.step >= self.delay

    def _launch(self, index: int, shared: Shared) -> None:
        assert self._averaging is not None
        shared.pack()
        shared.flight = self._averaging.launch(index, shared.moved, shared.fragment.layout, self.num_steps)

    def _land(self, shared: Shared) -> None:
        assert shared.flight is not None
        self.waited_s += shared.flight.wait()
        shared.outer_step(self.outer_lr, self.outer_momentum, self.nesterov)
        shared.take(self.num_steps)

    def _land_all(self) -> None:
        for shared in self._shared:
            if shared.flight is not None:
                self._land(shared)

    def _save(self) -> dict[str, Any]:
        agreed: dict[str, torch.Tensor] = {}
        momentum: dict[str, torch.Tensor] = {}
        under_way = {}
        for index, shared in enumerate(self._shared):
            agreed |= shared.fragment.named(shared.agreed)
            if shared.momentum is not None:
                momentum |= shared.fragment.named(shared.momentum)
            if shared.flight is not None:
                shared.flight.wait()
                assert shared.sent is not None
                under_way[index] = {
                    "step": shared.flight.step, "moved": shared.moved.clone(), "sent": shared.sent.clone(),
                }  # fmt: skip
        assert self._averaging is not None
        plan = [self.every, len(self._shared)]
        return {
            "plan": plan, "agreed": agreed, "momentum": momentum, "under_way": under_way,
            "exchange": self._averaging.state_dict(),
        }  # fmt: skip

    def _load(self, state: Mapping[str, Any]) -> None:
        self._land_all()
        plan = [self.every, len(self._shared)]
        if list(state["plan"]) != plan and state["under_way"]:
            raise SynchronizationError(
                f"the saved state is of every={state['plan'][0]} in {state['plan'][1]} fragments; this is "
                f"every={plan[0]} in {plan[1]}, and fragments were under way.",
                hint="Call synchronize() before state_dict() to resume with another plan.",
            )
        mine = self._load_exchange(state["exchange"])
        for index, shared in enumerate(self._shared):
            shared.fragment.take(state["agreed"], shared.agreed)
            if shared.momentum is not None:
                shared.fragment.take(state["momentum"], shared.momentum)
            saved = state["under_way"].get(index)
            if saved is None or not mine:
                continue
            assert shared.sent is not None
            shared.flight = Flight(int(saved["step"]), landed=True)
            shared.moved.copy_(saved["moved"])
            shared.sent.copy_(saved["sent"])


def _delay(delay: int | None, stream: bool, every: int) -> int | None:
    if not stream:
        if delay:
            raise SynchronizationError(f"delay={delay} needs stream=True.")
        return 0
    if delay is not None and at_least("delay", delay, 0) > every:
        raise SynchronizationError(f"delay={delay} is longer than the {every} steps between launches.")
    return delay
