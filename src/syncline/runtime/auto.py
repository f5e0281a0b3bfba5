"""`codec="auto"`: DDP that measures, predicts, tries and then synchronises each bucket in what makes the step shortest.

The pilot (`pilot.py`) decides from numbers that all ranks have gathered; this file takes the numbers and carries the
decision out. Between decisions a step is that of `DdpSynchronizer`, or the backend's own all-reduce for buckets that
travel plain.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from syncline.codec.low_rank import LowRank
from syncline.codec.names import PLAIN
from syncline.codec.scheme import scheme
from syncline.errors import NonFiniteError, SynchronizationError
from syncline.program.choice import CLASSES, Measured, Price, decide
from syncline.program.overlap import Work
from syncline.runtime.agreement import exchange_json
from syncline.runtime.averagers import Averagers
from syncline.runtime.bucket import Bucket, Layout, Order
from syncline.runtime.ddp import DdpSynchronizer, Future, GradBucket
from syncline.runtime.guard import Guard
from syncline.runtime.links import GroupLinks
from syncline.runtime.overflow import Scaler
from syncline.runtime.pilot import STRICTNESS, Pilot, best_s, name_of, typical_s
from syncline.runtime.probe import add_s, host, prices, probe_link
from syncline.runtime.settings import Settings
from syncline.runtime.step import Step
from syncline.runtime.tensors import is_finite

TUNE_VARIABLE = "SYNCLINE_TUNE"
"""Names the file into which rank 0 writes what was learned, after every decision."""
GUESSED_BUCKET = 25 << 18


class ChosenAveragers(Averagers):
    """Makes each bucket in the codec that was chosen for it, with error feedback where that codec wants it."""

    def __init__(self, settings: Settings, links: GroupLinks, codec_of: Callable[[int], str]) -> None:
        super().__init__(settings, links)
        self._asked = settings
        self._codec_of = codec_of

    def bucket(self, index: int, layout: Layout, buffer: torch.Tensor, codec: str) -> Bucket:
        """Return the bucket of this index, ready to be exchanged in its codec."""
        chosen = self._codec_of(index)
        self._settings = replace(self._asked, codec=chosen)
        return super().bucket(index, layout, buffer, self._settings.codec)


class AutoSynchronizer(DdpSynchronizer):
    """Synchronises a DDP model in whatever is fastest here, within an accuracy class; `why()` says what and why."""

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
        self._pilot = Pilot(accuracy, fixed or (PLAIN,))
        self._fixed = bool(fixed)
        super().__init__(model, settings, links, scaler)
        self._averagers = ChosenAveragers(settings, links, self.codec_of)
        self._keeps: dict[str, bool] = {PLAIN: False}
        self._owing: set[str] = set()
        self._marks: list[tuple[int, int, float]] = []
        self._works: list[Work] = []
        self._begun = (0, 0.0)
        self._seen = 0
        self._guard = Guard()
        self._costs: dict[str, Any] = {}
        if not self._fixed:
            self._costs = self._probe([name for name in CLASSES[accuracy] if self._can_be(name)])
            # Steps that warm up lose no more than int8 does.
            first = min(accuracy, "safe", key=STRICTNESS.index) if settings.warmup else accuracy
            self._pilot.codecs = decide(self._combined([self._costs], self._guess()), first, mixed=False).codecs[:1]

    # What the user asks

    def why(self) -> str:
        """Return on one line what is used and why."""
        return f"{name_of(self._pilot.codecs)}: {self.reason}" if self._fixed else self._pilot.why()

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
        probed = 0.0 if measured is None else measured.rate_Bps
        return super()._rate(step) if self.settings.rate_Bps is not None else probed or super()._rate(step)

    def codec_of(self, index: int) -> str:
        """Return what a bucket travels in."""
        codecs = self._pilot.codecs
        return codecs[min(index, len(codecs) - 1)]

    def state_dict(self, *, local: bool = False) -> dict[str, Any]:
        """Return residuals, factors, the step, and what was learned."""
        auto = {**self._pilot.to_json(), "fixed": self._fixed}
        return {**super().state_dict(local=local), "codec": "auto", "auto": json.dumps(auto)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over residuals and begin with the codecs that were in use; the network is measured anew."""
        super().load_state_dict(state)
        self._seen = self._num_steps
        self._owing = set(self._averagers.residuals.parts())
        if "auto" in state and not self._fixed:
            saved = json.loads(state["auto"])
            if saved["accuracy"] != saved.get("allowed"):  # the guard found that this model bears no more
                self._pilot.accuracy = min(self._pilot.accuracy, saved["accuracy"], key=STRICTNESS.index)
            if set(saved["codecs"]) <= set(CLASSES[self._pilot.accuracy]):
                self._pilot.codecs = tuple(saved["codecs"])

    # Steps

    def average(self, order: Order) -> None:
        """Replace a buffer by its average in the bucket's codec; what is owed is paid where no error is kept."""
        self._marks.append((threading.get_ident(), order.buffer.numel(), time.thread_time()))
        codec = self.codec_of(order.index)
        owing = None if codec in CLASSES["exact"] else self._keeps_error(codec)
        order = self._guard.watch(order, len(self._pilot.codecs), owing)
        if owing:
            self._owing.update(order.layout.names)
        elif self._owing and not self._guard.dense:
            self._pay(order.buffer, order.layout)
        if codec == PLAIN or self._guard.dense:
            self._plain_average(order)
        else:
            super().average(order)

    def bucket(self, bucket: GradBucket) -> Future:
        """Enqueue a bucket and return the future of its average."""
        if bucket.index() == 0:
            self._marks.clear()
        return super().bucket(bucket)

    def _plain_average(self, order: Order) -> None:
        buffer, step = order.buffer, order.step
        step.bucket_in(order.index, buffer.nbytes, order.last)
        size = 2 * (self.num_ranks - 1) * buffer.nbytes // self.num_ranks
        step.dense_bytes += size
        step.wire_bytes += size
        work = dist.all_reduce(buffer.div_(self.num_ranks), group=self._group, async_op=True)
        assert work is not None

        def finished(future: Any) -> None:
            failure: BaseException | None = None
            try:
                future.wait()
                failure = self._not_finite(buffer, step)
            except RuntimeError as error:
                failure = self.failure_of(SynchronizationError("the all-reduce failed.", detail=str(error)))
            step.bucket_out()
            order.done(failure)

        work.get_future().then(finished)

    def _not_finite(self, buffer: torch.Tensor, step: Step) -> BaseException | None:
        """Do what the settings say about a sum that is no number: every rank has the same sum."""
        if self.settings.nan == "pass" or is_finite(buffer):
            return None
        if self.settings.nan == "skip":
            step.skipped = True
            return None
        return NonFiniteError(
            f"an averaged gradient is not finite at step {step.number}.",
            hint='Find what overflows, or pass nan="skip" to leave such steps out on every rank.',
        )

    def _choose_codec(self) -> str:
        return PLAIN if self._guard.dense else name_of(self._pilot.codecs)

    def _forward(self, module: Any, inputs: Any) -> None:
        # Ranks that have joined early take no part in what the others gather.
        joining = getattr(getattr(module, "_join_config", None), "enable", False)
        if joining:
            self._guard.rest()
        if torch.is_grad_enabled() and not self._next_began_s and not joining:
            self.begin()
            self._steer()
            self._next_began_s = time.perf_counter()
            self._begun = (threading.get_ident(), time.thread_time())
        super()._forward(module, inputs)

    # The course

    def _steer(self) -> None:
        """After each step: note its work, and where a decision is due gather every rank's numbers for it."""
        if self._fixed or self._num_steps == self._seen:
            return
        self._seen = self._num_steps
        self._note_work()
        self._judge()
        if self._num_steps <= self.settings.warmup or not self._pilot.due():
            return
        before = self._pilot.codecs
        with self.busy():
            self._report_to(self._pilot)
        if self._pilot.codecs != before:
            self._buckets.clear()
        self._tell()

    def _report_to(self, pilot: Pilot) -> None:
        times = [step.ended_s - step.began_s for step in self.steps if step.ended_s][-3:]
        if pilot.wants_work:
            rows = exchange_json({**self._costs, "work": asdict(self._work())}, self.links.team)
            works = [Work.from_json(row["work"]) for row in rows]
            pilot.decide(self._combined(rows, _mean_work(works)))
            return
        if pilot.phase == "try":
            times = times[-pilot.num_scored :]
        everyone = [row["times"] for row in exchange_json({"times": times}, self.links.team)]
        if pilot.phase == "try":
            pilot.tried(best_s(everyone))
        elif pilot.checked(typical_s(everyone)):
            began = time.perf_counter()
            link = probe_link(self.links.team)
            rows = exchange_json({**link, "look_s": time.perf_counter() - began}, self.links.team)
            pilot.looked(min(row["rate_Bps"] for row in rows), max(row["look_s"] for row in rows))

    def _probe(self, names: list[str]) -> dict[str, Any]:
        """Return this rank's numbers, gathered so that every rank works with the same ones."""
        link = probe_link(self.links.team)
        found = [asdict(price) for price in prices(names, self._shapes, self.links.device)]
        own = {**link, **host(), "add_s": add_s(), "prices": found}
        rows = exchange_json(own, self.links.team)
        return {**rows[0], "rate_Bps": min(row["rate_Bps"] for row in rows), "cores": _cores(rows)}

    def _combined(self, rows: list[dict[str, Any]], work: Work) -> Measured:
        first = rows[0]
        return Measured(
            self.num_ranks,
            min(row["rate_Bps"] for row in rows),
            max(row["latency_s"] for row in rows),
            first["cores"],
            fmean(row["byte_s"] for row in rows),
            fmean(row["message_s"] for row in rows),
            fmean(row["add_s"] for row in rows),
            work,
            tuple(Price(**price) for price in first["prices"]),
            self.settings.piece_bytes,
        )

    def _guess(self) -> Work:
        """Return what is known of a step before the first: its gradients, in buckets as DDP makes them."""
        total = sum(torch.Size(shape).numel() for shape in self._shapes)
        num = max(1, round(total / GUESSED_BUCKET))
        return Work(0.0, (0.0,) * num, (total // num,) * num, 0.0)

    def _note_work(self) -> None:
        """Add the work of the step that has ended: the training thread's own processor time up to each bucket."""
        marks, self._marks = self._marks, []
        ident, began = self._begun
        if not marks or any(mark[0] != ident for mark in marks) or ident != threading.get_ident():
            step = self.steps[-1]
            times = [when for _, when, _ in step.ready]
            sizes = [size // 4 for _, _, size in step.ready]
            begin, end = step.began_s, max(times[-1], step.ended_s - (step.synchronised_s - step.computed_s))
        else:
            times, sizes = [when for _, _, when in marks], [size for _, size, _ in marks]
            begin, end = began, time.thread_time()
        backward = [0.0, *(after - before for before, after in pairwise(times))]
        self._works.append(Work(times[0] - begin, tuple(backward), tuple(sizes), max(0.0, end - times[-1])))
        del self._works[:-3]

    def _work(self) -> Work:
        """Return the work of steps with today's buckets, their mean."""
        last = self._works[-1]
        return _mean_work([work for work in self._works[-2:] if work.elements == last.elements])

    def _keeps_error(self, codec: str) -> bool:
        if codec not in self._keeps:
            self._keeps[codec] = replace(self.settings, codec=codec).uses_feedback
        return self._keeps[codec]

    def _pay(self, buffer: torch.Tensor, layout: Layout) -> None:
        """Add what these parameters still owe from a codec that kept its error: it counts as their gradient does."""
        parts = self._averagers.residuals.parts()
        start = 0
        for name, size in zip(layout.names, layout.sizes, strict=True):
            if name in self._owing and name in parts:
                owed = parts[name].reshape(-1)
                buffer[start : start + size].add_(owed.to(buffer.dtype))
                owed.zero_()
            self._owing.discard(name)
            start += size

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

    def _tell(self) -> None:
        """Write what was learned where `syncline tune` asks for it."""
        path = os.environ.get(TUNE_VARIABLE, "")
        if path and self.rank == 0:
            text = json.dumps({**self._pilot.to_json(), "num_ranks": self.num_ranks, "steps": self._num_steps})
            part = Path(f"{path}.part")
            part.write_text(text, "utf-8")
            part.replace(path)


def _mean_work(works: list[Work]) -> Work:
    """Return the mean of works with the same buckets."""
    backward = tuple(fmean(part) for part in zip(*(work.backward_s for work in works), strict=True))
    forward, last = fmean(work.forward_s for work in works), fmean(work.optimizer_s for work in works)
    return Work(forward, backward, works[0].elements, last)


def _cores(rows: list[dict[str, Any]]) -> float:
    """Return the processors of all ranks together, as if every host gave its ranks what the scarcest gives."""
    hosts = [row["host"] for row in rows]
    return min(float(row["cores"]) / hosts.count(row["host"]) for row in rows) * len(rows)
