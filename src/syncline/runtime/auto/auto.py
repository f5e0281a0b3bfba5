"""`codec="auto"`: DDP that measures, predicts, tries and then synchronises each bucket in what makes the step shortest.

The pilot (`pilot.py`) decides from numbers that all ranks have gathered; this file takes the numbers and carries the
decision out. Between decisions a step is that of `DdpSynchronizer`, or the backend's own all-reduce for buckets that
travel plain, or one that this rank makes alone (`alone.py`). Where plain is held for all buckets the step is DDP's own
(`native.py`).
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from syncline.codec.low_rank import LowRank
from syncline.codec.names import PLAIN, scheme
from syncline.describe.units import show_time
from syncline.errors import SynchronizationError
from syncline.program.choice import CLASSES, LOCAL_CLASS, LOCAL_EVERY, Local, decide
from syncline.program.overlap import Work
from syncline.program.stages import DENSE
from syncline.runtime.alive.agreement import Gathering, exchange_json
from syncline.runtime.auto.alone import STATES, WEIGHTS, SoloSteps
from syncline.runtime.auto.basis import basis_of, gathered_costs, guessed_work
from syncline.runtime.auto.chosen import ChosenAveragers
from syncline.runtime.auto.guard import Guard
from syncline.runtime.auto.native import Native
from syncline.runtime.auto.pilot import STRICTNESS, Pilot, best_s, name_of, typical_s
from syncline.runtime.auto.plain import average_plain, check_finite
from syncline.runtime.auto.probe import probe_link
from syncline.runtime.auto.worklog import Lengths, WorkLog, mean_work
from syncline.runtime.periodic.averaging import Flight
from syncline.runtime.periodic.optimizers import Average, Optimizers
from syncline.runtime.periodic.target import Target
from syncline.runtime.sync.bucket import Layout, Order
from syncline.runtime.sync.ddp import DdpSynchronizer, Future, GradBucket, joining, outside_graphs
from syncline.runtime.sync.finite import is_finite
from syncline.runtime.sync.overflow import Scaler
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.links import GroupLinks

TUNE_VARIABLE = "SYNCLINE_TUNE"
"""Names the file into which rank 0 writes what was learned, after every decision."""
log = logging.getLogger("syncline.auto")
KEPT = 2 * max(LOCAL_EVERY)
"""Steps whose length is kept."""
SINGLE = (torch.float32, torch.bfloat16, torch.float16)
"""Types whose values float32 holds: weights are averaged in that."""


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
        accuracy: str = "safe",
        fixed: tuple[str, ...] = (),
    ) -> None:
        self._shapes = [tuple(p.shape) for p in model.parameters() if p.requires_grad]
        # Steps read the codec while the base class is being made.
        alone = scaler is None and all(p.dtype in SINGLE for p in model.parameters())
        self._pilot = Pilot(accuracy, fixed or (PLAIN,), alone)
        self._fixed = bool(fixed)
        if fixed and not alone and self._pilot.period > 1:
            raise SynchronizationError(
                f'"{fixed[0]}" works neither with a GradScaler nor with float64 weights.',
                hint="Run `syncline tune` with the script as it is now.",
            )
        super().__init__(model, settings, links, scaler)
        self._averagers = ChosenAveragers(settings, links, self.codec_of)
        self._keeps: dict[str, bool] = {PLAIN: False}
        self._owing: set[str] = set()
        self._alone = SoloSteps(self._exchange, self.busy, self._averagers.residuals, self._keeps_error)
        self._optimizers: Optimizers | None = None
        if alone and (accuracy == LOCAL_CLASS or self._pilot.period > 1):
            self._optimizers = Optimizers(self._trained())
            self._hooks.append(self._optimizers)
        self._native = Native(self)
        # DDP's own reducer tells nobody of its buckets. All ranks keep or leave the hook together, so all agree once.
        heard = exchange_json({"heard": self._writer.is_heard()}, links.team)
        self._is_watched = any(row["heard"] for row in heard)
        self._spent_s = 0.0
        self._said = ""
        self._lengths = Lengths(KEPT)
        self._came_s = 0.0
        self._gathering: Gathering | None = None
        self._works = WorkLog()
        self._seen = 0
        self._guard = Guard()
        self._costs: dict[str, Any] = {}
        if not self._fixed:
            began = time.perf_counter()
            allowed = [name for name in CLASSES[accuracy] if self._can_be(name)]
            self._costs = gathered_costs(allowed, self._shapes, self.links)
            # Steps that warm up lose no more than int8 does.
            first = min(accuracy, "safe", key=STRICTNESS.index) if settings.warmup else accuracy
            guess = basis_of([self._costs], guessed_work(self._shapes), self.num_ranks, self.piece_bytes)
            self._pilot.codecs = decide(guess, first, mixed=False).together[:1]
            self._spent_s = time.perf_counter() - began

    # What the user asks

    def why(self) -> str:
        """Return on one line what is used and why."""
        text = f"{name_of(self._pilot.codecs)}: {self.reason}" if self._fixed else self._pilot.why()
        text = "; ".join(filter(None, (text, self.links.told)))
        return f"{text}; DDP's own reducer runs" if self._native.is_on else text

    def observe(self, loss: torch.Tensor | float) -> None:
        """Take this step's loss, on every rank or some: a codec under which it rises is left, and `why()` says so."""
        number, steps = self._num_steps + bool(self._next_began_s), self._alone.steps
        self._guard.observe(loss, steps is not None and steps.is_first(number))

    def synchronize(self) -> None:
        """Average the weights, where ranks step alone: all replicas are then equal.

        Every rank calls it, between two steps; before the model is evaluated or saved, for example.
        """
        self._alone.meet(self._num_steps)

    def check_replicas(self) -> None:
        """Compare the parameters of all ranks and raise on every rank if any differ that must not."""
        if self._alone.steps is None or not self._alone.steps.is_apart(self._num_steps):
            super().check_replicas()

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
        probed = 0.0 if measured is None else measured.rate_Bps
        return super()._rate(step) if self.settings.rate_Bps is not None else probed or super()._rate(step)

    def codec_of(self, index: int) -> str:
        """Return what a bucket travels in, if it does."""
        if index >= WEIGHTS:
            return self._alone.codec_of(index)
        codecs = self._pilot.codecs
        return PLAIN if self._pilot.period > 1 else codecs[min(index, len(codecs) - 1)]

    def state_dict(self, *, local: bool = False) -> dict[str, Any]:
        """Return residuals, factors, the step, and what was learned; ranks that step alone meet first."""
        self.synchronize()
        auto = {**self._pilot.to_json(), "fixed": self._fixed}
        step = self._num_steps + self._native.num_pending
        return {**super().state_dict(local=local), "step": step, "codec": "auto", "auto": json.dumps(auto)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over residuals and begin with the codecs that were in use; the network is measured anew."""
        super().load_state_dict(state)
        self._alone.resume()
        self._seen = self._num_steps
        self._owing = set(self._averagers.residuals.parts()) & set(self._names.values())
        if "auto" in state and not self._fixed:
            saved = json.loads(state["auto"])
            self._pilot.alone = self._pilot.alone and saved.get("alone", True)
            if saved["accuracy"] != saved.get("allowed"):  # the guard found that this model bears no more
                self._pilot.accuracy = min(self._pilot.accuracy, saved["accuracy"], key=STRICTNESS.index)
            if set(saved["codecs"]) <= set(CLASSES[self._pilot.accuracy]):
                self._pilot.codecs = tuple(saved["codecs"])

    # Steps

    def average(self, order: Order) -> None:
        """Replace a buffer by its average in the bucket's codec; what is owed is paid where no error is kept."""
        self._works.mark(order.buffer.numel())
        codec = self.codec_of(order.index)
        owing = None if codec in CLASSES["exact"] else self._keeps_error(codec)
        order = self._guard.watch(order, len(self._pilot.codecs), owing)
        if owing:
            self._owing.update(order.layout.names)
        elif self._owing and not self._guard.dense:
            self._pay(order)
        if self._alone.steps is not None and not self._guard.dense:
            self._keep_own(order)
        elif codec == PLAIN or self._guard.dense:
            average_plain(order, self._group, self.num_ranks, self.settings.nan, self.failure_of)
        else:
            super().average(order)

    def close(self) -> None:
        """Turn synchronisation off; ranks that step alone become one first, so every rank calls it."""
        self._native.is_on = False
        if not self._closed and self.failure is None and self._alone.steps is not None:
            self._alone.end(self._num_steps)
            self._unify_before_next_forward()
        super().close()

    def _unify_before_next_forward(self) -> None:
        """Make optimizers equal when the step under way, of which this rank has its own gradients, is over."""
        model = self._weak_model()
        assert model is not None

        def unify(module: Any, inputs: Any) -> None:
            if torch.is_grad_enabled():
                hook.remove()
                self._unify(self._plain_sum)

        hook = model.register_forward_pre_hook(outside_graphs(unify))

    def bucket(self, bucket: GradBucket) -> Future:
        """Enqueue a bucket and return the future of its average."""
        if bucket.index() == 0:
            self._works.first()
        return super().bucket(bucket)

    def _keep_own(self, order: Order) -> None:
        """Leave this rank its own gradients."""
        steps, number = self._alone.steps, order.step.number + 1
        assert steps is not None
        if self._pilot.phase == "hold" and (steps.is_first(number) or steps.is_last(number)):
            self._guard.watch_own(order, steps.is_first(number))
        order.step.bucket_in(order.index, order.buffer.nbytes, order.last)
        if self.settings.nan == "skip" and not is_finite(order.buffer):
            order.step.skipped = True
        order.step.bucket_out()
        order.done(None)

    def _choose_codec(self) -> str:
        return PLAIN if self._guard.dense else name_of(self._pilot.codecs)

    def _forward(self, module: Any, inputs: Any) -> None:
        joins = joining(module)
        if joins:
            self._guard.rest()
            self._follow(None)
        if torch.is_grad_enabled() and not self._next_began_s and not joins:
            self._came_s = time.perf_counter()
            if self._alone.steps is not None and self._alone.steps.is_due(self._num_steps):
                self._alone.meet(self._num_steps)  # before the step ends: it is part of it
            self.begin()
            self._steer()
            self._follow(None if self._num_steps < self.settings.warmup else Local.named(self._pilot.codecs[0]))
            self._next_began_s = time.perf_counter()
            self._works.begin()
            if self._is_plain() and not joins:
                self._native.turn_on(module)
                return
        super()._forward(module, inputs)

    def break_off(self, failure: BaseException) -> None:
        """End every wait with this failure; one inside DDP's own all-reduce ends with the process."""
        super().break_off(failure)
        self._native.end_soon(failure)

    # Steps that are DDP's own

    def _is_plain(self) -> bool:
        """Whether nothing is left for this handle to do in a step."""
        held = self._fixed or (self._pilot.phase == "hold" and self._gathering is None)
        return (
            held and not self._is_watched and self._num_steps >= self.settings.warmup
            and set(self._pilot.codecs) == {PLAIN}
            and not self._owing and self._alone.steps is None and not self._alone.owes
            and (self.settings.nan != "skip" or self._follower is not None)  # a scaler looks itself
            and self.settings.accumulate == 1 and not self._guard.dense
        )  # fmt: skip

    def native_turn(self, num_steps: int, length_s: float) -> bool:
        """Look at the last steps that were DDP's own; return whether a codec is to be tried again."""
        self._num_steps += num_steps
        every = self.settings.check_every
        if every and self._num_steps // every != (self._num_steps - num_steps) // every:
            self.check_replicas()
            if self.settings.nan == "raise":
                check_finite(self._trained(), self._num_steps)
        if self._fixed:
            return False
        rows = Gathering([length_s], self.links.team).rows()
        if not self._pilot.is_slower(typical_s(rows), num_steps):
            return False
        with self.busy():
            self._look()
        self._seen = self._num_steps
        return self._pilot.phase != "hold" or set(self._pilot.codecs) != {PLAIN}

    def _look(self) -> None:
        began = time.perf_counter()
        link = probe_link(self.links.team)
        rates = exchange_json({**link, "look_s": time.perf_counter() - began}, self.links.team)
        self._pilot.looked(min(row["rate_Bps"] for row in rates), max(row["look_s"] for row in rates))

    # Steps that ranks make alone

    def _follow(self, plan: Local | None) -> None:
        """Take up, go on with or leave steps alone; all replicas are equal before the first and after the last."""
        alone, step = self._alone, self._num_steps
        before = None if alone.steps is None else alone.steps.plan
        if plan is None and before is not None:
            alone.end(step)
            self._unify(lambda flat, layout: self._exchange(STATES, flat, layout).wait())
            self._buckets.clear()
        elif plan is None and alone.owes and (self._fixed or self._pilot.phase == "hold"):
            alone.pay(self._target(), step)
        elif plan is not None and plan != before:
            alone.meet(step)
            self.check_replicas()
            alone.begin(self._target(), plan, step)

    def _exchange(self, index: int, buffer: torch.Tensor, layout: Layout) -> Flight:
        """Begin to average something that is no gradient; what is sent between two steps belongs to none."""
        last = self.steps[-1] if self.steps else None
        if last is None or last.ended_s:
            last = Step(self._num_steps, self.rank, DENSE, time.perf_counter())
        flight = Flight(self._num_steps)
        super().average(flight.order(index, buffer, layout, last))
        return flight

    def _unify(self, average: Average) -> None:
        """Give all ranks' optimizers the same state, without which replicas would not stay equal."""
        assert self._optimizers is not None
        with self.busy():
            self._optimizers.unify(self.links.team, average)

    def _plain_sum(self, flat: torch.Tensor, layout: Layout) -> None:
        dist.all_reduce(flat.div_(self.num_ranks), group=self._group)

    def _trained(self) -> dict[str, torch.Tensor]:
        model = self._weak_model()
        assert model is not None
        return {name: p for name, p in model.module.named_parameters() if p.requires_grad}

    def _target(self) -> Target:
        trained = self._trained()
        return Target(tuple(trained), tuple(trained.values()), self._group, (), None)

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
        is_due, before = self._pilot.due(), self._pilot.codecs
        if self._gathering is not None:
            with self.busy():
                self._check(self._gathering)
        elif is_due:
            with self.busy():
                self._report_to(self._pilot)
        else:
            return
        if self._pilot.codecs != before:
            self._buckets.clear()
        self._tell()
        self._say()

    def _report_to(self, pilot: Pilot) -> None:
        if pilot.wants_work:
            whole = self._optimizers is not None and self._optimizers.are_whole
            rows = exchange_json({**self._costs, "work": asdict(self._works.usual()), "whole": whole}, self.links.team)
            works = [Work.from_json(row["work"]) for row in rows]
            pilot.alone = pilot.alone and all(row["whole"] for row in rows)
            pilot.decide(basis_of(rows, mean_work(works), self.num_ranks, self.piece_bytes))
            return
        times = self._lengths.last(pilot.num_scored)
        if pilot.period > 1:
            times = [fmean(times)]
        gathering = Gathering(times, self.links.team)
        if pilot.phase == "try":
            pilot.tried(best_s(gathering.rows()))
        else:
            self._gathering = gathering

    def _check(self, gathering: Gathering) -> None:
        """Take what was gathered during the last step: while a choice is held nobody waits for anybody."""
        rows, self._gathering = gathering.rows(), None
        if self._pilot.phase == "hold" and self._pilot.checked(typical_s(rows)):
            self._look()

    def _keeps_error(self, codec: str) -> bool:
        if codec not in self._keeps:
            self._keeps[codec] = replace(self.settings, codec=codec).uses_feedback
        return self._keeps[codec]

    def _pay(self, order: Order) -> None:
        """Add what these parameters still owe from a codec that kept its error: it counts as their gradient does."""
        if not self._owing.isdisjoint(order.layout.names):
            self._averagers.residuals.pay(order.layout.names, order.layout.sizes, order.buffer)
            self._owing.difference_update(order.layout.names)

    def _can_be(self, name: str) -> bool:
        """Tell whether the settings allow a codec: low rank cannot do without error feedback."""
        return name == PLAIN or self.settings.feedback is not False or not isinstance(scheme(name), LowRank)

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
        used = name_of(self._pilot.codecs)
        if self._pilot.phase == "hold" and self.rank == 0 and used != self._said:
            self._said = used
            spent = f"found in {self._num_steps} steps and {show_time(self._spent_s)} of measuring before them"
            log.info("gradients travel in %s, %s: %s", used, spent, self._pilot.why())

    def _tell(self) -> None:
        """Write what was learned where `syncline tune` asks for it."""
        path = os.environ.get(TUNE_VARIABLE, "")
        if path and os.environ.get("LOCAL_RANK", str(self.rank)) == "0":  # each host has a `tune` that reads it
            text = json.dumps({**self._pilot.to_json(), "num_ranks": self.num_ranks, "steps": self._num_steps})
            part = Path(f"{path}.part")
            part.write_text(text, "utf-8")
            part.replace(path)
