"""`codec="auto"`: DDP that tries plain averages and codecs in turn, and holds what makes the step shortest.

The pilot (`pilot.py`) decides from numbers that all ranks have gathered; this file takes the numbers and carries the
decision out. A step is that of `DdpSynchronizer`, or the backend's own all-reduce where gradients travel plain.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from syncline.codec.names import PLAIN
from syncline.runtime.alive.agreement import Gathering
from syncline.runtime.auto.lengths import Lengths
from syncline.runtime.auto.pilot import CONTENDERS, Pilot, shortest_s, typical_s
from syncline.runtime.sync.bucket import Order
from syncline.runtime.sync.ddp import DdpSynchronizer, joining
from syncline.runtime.sync.vendor import AllReduce, check_finite

TUNE_VARIABLE = "SYNCLINE_TUNE"
"""Names the file into which rank 0 writes what was learned, after every decision."""
log = logging.getLogger("syncline.auto")
KEPT = 16
"""Steps whose length is kept."""


class AutoSynchronizer(DdpSynchronizer):
    """Synchronises a DDP model in whatever is fastest here, or plain where that is `fixed`; `why()` says what."""

    fits_buckets = False  # plain DDP is among what is tried, and is tried as it is

    def __init__(self, *given: Any, fixed: bool = False, **options: Any) -> None:
        # Steps read the codec while the base class is being made.
        self._pilot, self._fixed = Pilot(), fixed
        super().__init__(*given, **options)
        self._announced = ""
        self._lengths = Lengths(KEPT)
        self._came_s = 0.0
        self._gathering: Gathering | None = None
        self._seen = 0

    # What the user asks

    def why(self) -> str:
        """Return on one line what is used and why."""
        return f"{PLAIN}: {self.reason}" if self._fixed else self._pilot.why()

    def summary(self) -> str:
        """Return the last step on one line, and why it is as it is."""
        return f"{super().summary()}; auto: {self.why()}"

    @property
    def pilot(self) -> Pilot:
        """The state of the choice: phase and measurements."""
        return self._pilot

    def state_dict(self, *, local: bool = False) -> dict[str, Any]:
        """Return residuals, factors, the step, and what was learned."""
        return {**super().state_dict(local=local), "codec": "auto", "auto": json.dumps(self._pilot.to_json())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the step, and begin with the codec that was held; the trial follows as ever."""
        super().load_state_dict(state)
        self._seen = self._num_steps
        saved = json.loads(state.get("auto", "{}"))
        if not self._fixed and saved.get("phase") == "hold" and saved.get("codec") in CONTENDERS:
            self._pilot.resume(saved["codec"])

    # Steps

    def average(self, order: Order) -> None:
        """Replace a buffer by its average in the step's codec."""
        if order.step.codec != PLAIN:
            super().average(order)
            return
        if self.failure is not None:
            raise self.failure_of(self.failure)
        piece = AllReduce(order.buffer, order.step, self.settings.nan, self._group)
        order.step.wire_bytes += 2 * (self.num_ranks - 1) * order.buffer.nbytes // self.num_ranks
        self._submit(order, [piece])

    def _choose_codec(self) -> str:
        return self._pilot.codec

    def _forward(self, module: Any, inputs: Any) -> None:
        if torch.is_grad_enabled() and not self._next_began_s and not joining(module):
            self._came_s = time.perf_counter()
            self.begin()
            with self.talking("forward"):
                self._steer()
            self._next_began_s = time.perf_counter()
        super()._forward(module, inputs)

    def check_replicas(self) -> None:
        """Compare the parameters of all ranks; of what travelled plain on a device, look whether they are finite."""
        super().check_replicas()
        if self._pilot.codec == PLAIN and self.settings.nan == "raise" and self.links.device.type != "cpu":
            check_finite(self._trained(), self._num_steps)

    # The course

    def _steer(self) -> None:
        """After each step: note its length, and where a decision is due gather every rank's numbers for it."""
        if self._fixed or self._num_steps == self._seen:
            return
        self._seen = self._num_steps
        if not self.steps[-1].ready:
            return  # nothing but sparse gradients
        self._lengths.note(self.steps[-1], self._came_s)
        is_due, before, phase = self._pilot.due(), self._pilot.codec, self._pilot.phase
        # While a choice is held nobody waits for anybody: what was gathered during the last step is taken now.
        under_way, self._gathering = self._gathering, None
        if is_due:
            begun = Gathering(self._lengths.last(self._pilot.num_scored), self.links.team)
            if phase == "try":
                with self.busy():
                    self._pilot.tried(shortest_s(begun.rows()))
            else:
                self._gathering = begun
        elif under_way is not None:
            self._pilot.checked(typical_s(under_way.rows()))
        if self._pilot.codec != before:
            self._buckets.clear()
        if (self._pilot.codec, self._pilot.phase) != (before, phase):
            self._tell()
            self._say()

    def _say(self) -> None:
        """Log a decision, once, on the first rank."""
        used = self._pilot.codec
        if self._pilot.phase == "hold" and self.rank == 0 and used != self._announced:
            self._announced = used
            log.info("gradients travel in %s, found in %d steps: %s", used, self._num_steps, self._pilot.why())

    def _tell(self) -> None:
        """Write what was learned where `syncline calibrate tune` asks for it."""
        path = os.environ.get(TUNE_VARIABLE, "")
        if path and os.environ.get("LOCAL_RANK", str(self.rank)) == "0":  # each host has a `tune` that reads it
            text = json.dumps({**self._pilot.to_json(), "num_ranks": self.num_ranks, "steps": self._num_steps})
            part = Path(f"{path}.part")
            part.write_text(text, "utf-8")
            part.replace(path)
