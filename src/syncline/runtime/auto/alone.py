"""Steps that the ranks of a DDP model make alone, and how they become one again: in a codec, and exactly at the end.

alone.begin(target, Local(8, "int8"), step)
alone.meet(step)       # every eighth step: weights are the same on every rank
alone.end(step)        # and owe nothing any more
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from syncline.program.choice import Local
from syncline.program.stages import DENSE
from syncline.runtime.periodic.averaging import Flight
from syncline.runtime.periodic.local_steps import TAG, LocalSteps
from syncline.runtime.periodic.target import Target
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.residuals import Residuals

WEIGHTS, EXACT, ARRIVALS, STATES = range(1 << 12, (1 << 12) + 4)
"""Indices under which weights are exchanged, in a codec and exactly, the news that a rank has come to that, and what
optimizers keep; buckets of gradients have lower ones."""
STATES_CODEC = "bf16"

Exchange = Callable[[int, torch.Tensor, Layout], Flight]


class SoloSteps:
    """The steps that this rank makes alone, if it does; numbers of steps are the handle's."""

    def __init__(
        self,
        exchange: Exchange,
        busy: Callable[[], AbstractContextManager[None]],
        residuals: Residuals,
        keeps_error: Callable[[str], bool],
    ) -> None:
        self.steps: LocalSteps | None = None
        self.owes = False
        """Whether codecs have kept back something of the weights that is still to be sent."""
        self._exchange, self._busy = exchange, busy
        self._residuals, self._keeps_error = residuals, keeps_error

    def codec_of(self, index: int) -> str:
        """Return what travels under an index in."""
        if index == WEIGHTS and self.steps is not None:
            return self.steps.plan.codec
        return STATES_CODEC if index == STATES else DENSE

    def resume(self) -> None:
        """Begin anew, from the weights that were loaded and what was owed then."""
        self.steps = None
        self.owes = any(name.endswith(TAG) for name in self._residuals.parts())

    def begin(self, target: Target, plan: Local, step: int) -> None:
        """Step alone from weights that all ranks have."""
        self.steps = LocalSteps(target, plan, step)

    def meet(self, step: int) -> None:
        """Let all ranks have the same weights, sent in the codec."""
        if self.steps is not None and self.steps.is_apart(step):
            self._average(self.steps, WEIGHTS, step)
            self.owes = self.owes or self._keeps_error(self.steps.plan.codec)

    def end(self, step: int) -> None:
        """Let all ranks have the same weights, exactly and with all that codecs have kept back, and go on together."""
        if self.steps is not None and (self.steps.is_apart(step) or self.owes):
            self._average(self.steps, EXACT, step)
        self.steps, self.owes = None, False

    def pay(self, target: Target, step: int) -> None:
        """Add what codecs have kept back in a run before, though ranks go on together."""
        self.begin(target, Local(1, DENSE), step)
        self.end(step)

    def _average(self, steps: LocalSteps, index: int, step: int) -> None:
        # A rank that hangs is found while the others wait here; the average itself may take many times a usual step.
        here = torch.zeros(1, device=steps.device)
        self._exchange(ARRIVALS, here, Layout(("arrivals",), ((1,),))).wait()

        def launch(buffer: torch.Tensor, layout: Layout) -> Flight:
            if index == EXACT:
                self._residuals.pay(layout.names, layout.sizes, buffer)
                self._residuals.drop(layout.names)
            return self._exchange(index, buffer, layout)

        with self._busy():
            steps.meet(launch, step)
