"""`codec="auto"`: DDP that measures, predicts, tries and then synchronises in what makes the step shortest.

The pilot (`pilot.py`) decides from numbers that all ranks have gathered; this file takes the numbers and carries the
decision out. Between decisions a step is that of `DdpSynchronizer`, or the backend's own all-reduce where gradients
travel plain.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from syncline.codec.names import PLAIN
from syncline.describe.units import show_time
from syncline.program.choice import CLASSES, decide
from syncline.program.overlap import Work
from syncline.runtime.alive.agreement import Gathering, exchange_json
from syncline.runtime.auto.guard import Guard
from syncline.runtime.auto.pilot import STRICTNESS, Pilot, best_s, typical_s
from syncline.runtime.auto.probe import basis_of, gathered_costs, guessed_work, probe_link
from syncline.runtime.auto.worklog import Lengths, WorkLog, mean_work
from syncline.runtime.sync.axes import MeshAxes
from syncline.runtime.sync.bucket import Order
from syncline.runtime.sync.ddp import DdpSynchronizer, Future, GradBucket, joining
from syncline.runtime.sync.optimizer_hooks import Scaler
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.step import Step
from syncline.runtime.sync.vendor import AllReduce, check_finite
from syncline.runtime.wire.links import GroupLinks
from syncline.runtime.wire.team import Team

TUNE_VARIABLE = "SYNCLINE_TUNE"
"""Names the file into which rank 0 writes what was learned, after every decision."""
log = logging.getLogger("syncline.auto")
KEPT = 16
"""Steps whose length is kept."""


class AutoSynchronizer(DdpSynchronizer):
    """Synchronises a DDP model in whatever is fastest here, within an accuracy class; `why()` says what and why."""

    fits_buckets = False  # plain DDP is among what is tried, and is tried as it is

    def __init__(
        self,
        model: DistributedDataParallel,
        settings: Settings,
        links: GroupLinks,
        scaler: Scaler | None = None,
        *,
        axes: MeshAxes,
        everyone: Team | None = None,
        accuracy: str = "safe",
        fixed: str = "",
    ) -> None:
        self._shapes = [tuple(p.shape) for p in model.parameters() if p.requires_grad]
        # Steps read the codec while the base class is being made.
        self._pilot = Pilot(accuracy, fixed or PLAIN)
        self._fixed = bool(fixed)
        super().__init__(model, settings, links, scaler, axes=axes, everyone=everyone)
        self._owing: set[str] = set()
        self._spent_s = 0.0
        self._announced = ""
        self._lengths = Lengths(KEPT)
        self._came_s = 0.0
        self._gathering: Gathering | None = None
        self._works = WorkLog()
        self._seen = 0
        self._guard = Guard()
        self._costs: dict[str, Any] = {}
        if not self._fixed:
            began = time.perf_counter()
            self._costs = gathered_costs(CLASSES[accuracy], self._shapes, self.links)
            # Steps that warm up lose no more than int8 does.
            first = min(accuracy, "safe", key=STRICTNESS.index) if settings.warmup else accuracy
            guess = basis_of([self._costs], guessed_work(self._shapes), self.num_ranks, self.piece_bytes)
            self._pilot.codec = decide(guess, first).codec
            self._spent_s = time.perf_counter() - began

    # What the user asks

    def why(self) -> str:
        """Return on one line what is used and why."""
        return f"{self._pilot.codec}: {self.reason}" if self._fixed else self._pilot.why()

    def observe(self, loss: torch.Tensor | float) -> None:
        """Take this step's loss, on every rank or some: a codec under which it rises is left, and `why()` says so."""
        self._guard.observe(loss)

    def summary(self) -> str:
        """Return the last step on one line, and why it is as it is."""
        return f"{super().summary()}; auto: {self.why()}"

    @property
    def pilot(self) -> Pilot:
        """The state of the choice: phase, predictions, measurements."""
        return self._pilot

    def _rate(self, step: Step) -> float:
        # All-reduces of the backend leave no spans: what the link carries is what was probed.
        measured = self._pilot.measured
        return super()._rate(step) if measured is None else measured.rate_Bps

    def state_dict(self, *, local: bool = False) -> dict[str, Any]:
        """Return residuals, factors, the step, and what was learned."""
        auto = {**self._pilot.to_json(), "fixed": self._fixed}
        return {**super().state_dict(local=local), "codec": "auto", "auto": json.dumps(auto)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over residuals and begin with the codecs that were in use; the network is measured anew."""
        super().load_state_dict(state)
        self._seen = self._num_steps
        self._owing = set(self._averagers.residuals.parts()) & set(self._names.values())
        if "auto" in state and not self._fixed:
            saved = json.loads(state["auto"])
            if saved["accuracy"] != saved.get("allowed"):  # the guard found that this model bears no more
                self._pilot.accuracy = min(self._pilot.accuracy, saved["accuracy"], key=STRICTNESS.index)
            if saved.get("codec") in CLASSES[self._pilot.accuracy]:
                self._pilot.codec = saved["codec"]

    # Steps

    def average(self, order: Order) -> None:
        """Replace a buffer by its average in the codec; what is owed is paid where no error is kept."""
        self._works.mark(order.buffer.numel())
        codec = self._pilot.codec
        owing = None if codec in CLASSES["exact"] else self.settings.keeps_error(codec)
        order = self._guard.watch(order, owing)
        if owing:
            self._owing.update(order.layout.names)
        elif self._owing and not self._guard.dense:
            self._pay(order)
        if codec == PLAIN or self._guard.dense:
            if self.failure is not None:
                raise self.failure_of(self.failure)
            piece = AllReduce(order.buffer, order.step, self.settings.nan, self._group)
            order.step.wire_bytes += 2 * (self.num_ranks - 1) * order.buffer.nbytes // self.num_ranks
            self._submit(order, [piece])
        else:
            super().average(order)

    def bucket(self, bucket: GradBucket) -> Future:
        """Enqueue a bucket and return the future of its average."""
        if bucket.index() == 0:
            self._works.first()
        return super().bucket(bucket)

    def _choose_codec(self) -> str:
        return PLAIN if self._guard.dense else self._pilot.codec

    def _forward(self, module: Any, inputs: Any) -> None:
        joins = joining(module)
        if joins:
            self._guard.rest()
        if torch.is_grad_enabled() and not self._next_began_s and not joins:
            self._came_s = time.perf_counter()
            self.begin()
            with self.talking("forward"):
                self._steer()
            self._next_began_s = time.perf_counter()
            self._works.begin()
        super()._forward(module, inputs)

    def check_replicas(self) -> None:
        """Compare the parameters of all ranks; of what travelled plain on a device, look whether they are finite."""
        super().check_replicas()
        if self._pilot.codec == PLAIN and self.settings.nan == "raise" and self.links.device.type != "cpu":
            check_finite(self._trained(), self._num_steps)

    def _look(self) -> None:
        began = time.perf_counter()
        link = probe_link(self.links.team)
        rates = exchange_json({**link, "look_s": time.perf_counter() - began}, self.links.team)
        self._pilot.looked(min(row["rate_Bps"] for row in rates), max(row["look_s"] for row in rates))

    def _trained(self) -> dict[str, torch.Tensor]:
        model = self._weak_model()
        assert model is not None
        return {name: p for name, p in model.module.named_parameters() if p.requires_grad}

    # The course

    def _steer(self) -> None:
        """After each step: note its work, and where a decision is due gather every rank's numbers for it."""
        if self._fixed or self._num_steps == self._seen:
            return
        self._seen = self._num_steps
        if not self.steps[-1].ready:
            return  # nothing but sparse gradients
        self._lengths.note(self.steps[-1], self._came_s)
        self._works.note(self.steps[-1])
        self._judge()
        if self._num_steps <= self.settings.warmup:
            return
        is_due, before = self._pilot.due(), self._pilot.codec
        if self._gathering is not None:
            with self.busy():
                self._check(self._gathering)
        elif is_due:
            with self.busy():
                self._report_to(self._pilot)
        else:
            return
        if self._pilot.codec != before:
            self._buckets.clear()
        self._tell()
        self._say()

    def _report_to(self, pilot: Pilot) -> None:
        if pilot.wants_work:
            rows = exchange_json({**self._costs, "work": asdict(self._works.usual())}, self.links.team)
            works = [Work.from_json(row["work"]) for row in rows]
            pilot.decide(basis_of(rows, mean_work(works), self.num_ranks, self.piece_bytes))
            return
        gathering = Gathering(self._lengths.last(pilot.num_scored), self.links.team)
        if pilot.phase == "try":
            pilot.tried(best_s(gathering.rows()))
        else:
            self._gathering = gathering

    def _check(self, gathering: Gathering) -> None:
        """Take what was gathered during the last step: while a choice is held nobody waits for anybody."""
        rows, self._gathering = gathering.rows(), None
        if self._pilot.phase == "hold" and self._pilot.checked(typical_s(rows)):
            self._look()

    def _pay(self, order: Order) -> None:
        """Add what these parameters still owe from a codec that kept its error: it counts as their gradient does."""
        if not self._owing.isdisjoint(order.layout.names):
            self._averagers.residuals.pay(order.layout.names, order.layout.parts(order.buffer))
            self._owing.difference_update(order.layout.names)

    def _judge(self) -> None:
        """Now and then put what codecs do beside what is dense, and allow less where that has drifted."""
        if self._pilot.phase != "hold":
            self._guard.rest()
        elif self._guard.next(self._pilot.dense_extra):
            row = self._guard.row(lambda dense: self.links.team.all_reduce(dense.div_(self.num_ranks)))
            drift = self._guard.judge(exchange_json(row, self.links.team))
            if drift:
                self._pilot.drifted(drift)
                self._buckets.clear()

    def _say(self) -> None:
        """Log a decision, once, on the first rank."""
        used = self._pilot.codec
        if self._pilot.phase == "hold" and self.rank == 0 and used != self._announced:
            self._announced = used
            spent = f"found in {self._num_steps} steps and {show_time(self._spent_s)} of measuring before them"
            log.info("gradients travel in %s, %s: %s", used, spent, self._pilot.why())

    def _tell(self) -> None:
        """Write what was learned where `syncline calibrate tune` asks for it."""
        path = os.environ.get(TUNE_VARIABLE, "")
        if path and os.environ.get("LOCAL_RANK", str(self.rank)) == "0":  # each host has a `tune` that reads it
            text = json.dumps({**self._pilot.to_json(), "num_ranks": self.num_ranks, "steps": self._num_steps})
            part = Path(f"{path}.part")
            part.write_text(text, "utf-8")
            part.replace(path)
