"""Local SGD as `codec="auto"` takes it: the ranks of a DDP model step alone and meet every so many steps.

The arithmetic and its parts are those of `LocalSGD` without streaming. There is no optimizer to wrap here: the handle
lets ranks meet before a forward, when whatever optimizer there is has made its step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from syncline.program.choice import Local
from syncline.runtime.periodic.averaging import Flight
from syncline.runtime.periodic.fragment import Fragment
from syncline.runtime.periodic.shared import SharedFragment
from syncline.runtime.periodic.target import Target
from syncline.runtime.sync.bucket import Layout

TAG = " (weights)"
"""Tells what weights owe from what gradients of the same parameters owe."""
Launch = Callable[[torch.Tensor, Layout], Flight]


class LocalSteps:
    """The weights of this rank beside those that all ranks had when they last met; steps are numbers of the handle."""

    def __init__(self, target: Target, plan: Local, step: int) -> None:
        self.plan = plan
        self.device = target.device
        self._began = self._met = step
        whole = Fragment(target, 0, len(target.names), TAG)
        self._shared = SharedFragment(whole, 0, momentum=False, streamed=False)

    def is_apart(self, step: int) -> bool:
        """Whether ranks have made steps since they met."""
        return step != self._met

    def is_due(self, step: int) -> bool:
        """Whether a period is over, and ranks have not met since."""
        return self.is_apart(step) and self.is_last(step)

    def is_first(self, step: int) -> bool:
        """Whether a step was made from weights that all ranks had."""
        return step == self._met + 1

    def is_last(self, step: int) -> bool:
        """Whether ranks meet after a step."""
        return (step - self._began) % self.plan.every == 0

    @torch.no_grad()
    def meet(self, launch: Launch, step: int) -> None:
        """Average how far ranks have moved, and go on from there: all replicas are then equal."""
        shared = self._shared
        shared.pack()
        shared.flight = launch(shared.moved, shared.fragment.layout)
        shared.flight.wait()
        shared.outer_step(1.0, 0.0, nesterov=False)
        shared.take(shared.flight.step)
        self._met = step
