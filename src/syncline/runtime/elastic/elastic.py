"""Per-step averaging over a crew: the handle that `elastic(model, optimizer, crew)` returns.

Who takes part in a step, and with which place, is fixed before its batch is read. Gradients are averaged in the
background while backward runs, weighted by the samples behind them, so that the average is that of the whole batch.
Where a rank is lost those who are left connect anew at the end of backward, leave the step out and make it again from
its batch, which they now share among themselves. One of them may have made a step that the others have not, with the
lost rank's help; they take its state and go on from there. A rank that comes back is let in before a batch is read: a
peer sends it weights and state while all others compute that step, and it takes part in it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from syncline.errors import SynchronizationError, SynclineError
from syncline.program.stages import DENSE
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.elastic.gradients import buckets
from syncline.runtime.elastic.hooks import BackwardWatch
from syncline.runtime.elastic.inheritance import Estate, Handover, inherit
from syncline.runtime.elastic.replica import Alone
from syncline.runtime.periodic.averaging import Flight
from syncline.runtime.periodic.crew import Crew, Formation, Ticket
from syncline.runtime.periodic.crew_averaging import CrewAveraging, check_crew
from syncline.runtime.periodic.target import Target
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.optimizer_hooks import OptimizerSteps
from syncline.runtime.sync.settings import Settings, at_least
from syncline.runtime.sync.step import Step, StepReport
from syncline.runtime.wire.links import GroupLinks

ATTEMPTS = 5
"""How often those who are left try to connect anew, where one more is lost each time."""
POLL_S = 0.2
SAMPLES = Layout(("samples",), ((1,),))

log = logging.getLogger("syncline.crew")


@dataclass(frozen=True)
class CrewRules:
    """Who must be there, and how often those who wait are looked for.

    min_ranks      with fewer, those who are there wait until enough have come back
    door_every     those who wait to be let in are looked for every so many steps
    """

    min_ranks: int = 1
    door_every: int = 10

    def __post_init__(self) -> None:
        for name in ("min_ranks", "door_every"):
            at_least(name, getattr(self, name), 1)


class StepAveraging(CrewAveraging):
    """Averages over whoever is in the crew: all buckets of a step are one step to heartbeats and reports."""

    _shared: Step | None = None

    def begin(self) -> None:
        """Note that a step's computation begins here."""
        self.synchronizer.begin()
        self._shared = None

    def _count(self, record: Step) -> None:
        """Leave the bytes to the step's report, which has those of all its buckets."""

    def _record(self) -> Step:
        if self._shared is None:
            self._shared = self.synchronizer.open_step()
        return self._shared

    def _start(self, links: GroupLinks) -> None:
        self._shared = None
        super()._start(links)


class ElasticSynchronizer:
    """Averages the gradients of every step over the ranks of a crew until it is closed."""

    def __init__(
        self,
        target: Target,
        settings: Settings,
        crew: Crew,
        estate: Estate,
        rules: CrewRules,
        *,
        replica: Alone | None = None,
        step: int = 0,
    ) -> None:
        check_crew(settings, None, None)
        self.settings, self.crew, self.rules = settings, crew, rules
        self.reason = "as given"
        self.step = step
        """Steps that have been averaged: the number of the one that comes next."""
        self.waited_s = 0.0
        """Spent connecting anew, being let in and letting in."""
        self._estate, self._replica = estate, replica or Alone()
        self._buckets = buckets(target.names, target.parameters)
        self._flights: list[Flight] = []
        self._failure: Exception | None = None
        self._handover: Handover | None = None
        self._skips, self._is_fresh, self._closed = False, True, False
        self._paused = False
        self._samples, self._seen = 0, 0
        self._weight = torch.zeros(1)
        self._put_back: Callable[[], None] | None = None
        meaning = {"method": "every step", "door_every": rules.door_every}
        self._averaging = StepAveraging(target, settings, meaning, crew)
        with self._timed():
            self._holds(lambda: self._take_place(crew.formation))
        model = getattr(estate.model, "_orig_mod", estate.model)
        self._hooks: list[Any] = [
            OptimizerSteps(target.parameters, lambda: self._skips),
            BackwardWatch(model, self._buckets, self._is_last_backward, self._ready, self._settle),
            model.register_forward_pre_hook(self._forward, prepend=True),  # before FSDP2 gathers what may be replaced
        ]
        atexit.register(self._at_exit)

    # What a script asks

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks of the crew that average together now."""
        return self.crew.formation.members

    @property
    def place(self) -> tuple[int, int]:
        """This rank's place among those who are there, and their number: its part of a batch to be shared.

        Who asks begins the step: nobody is let in between this and the next.
        """
        self._begin()
        return self.members.index(self.crew.rank), len(self.members)

    @property
    def samples(self) -> int:
        """The samples behind this step's gradient on this rank, by which it counts in the average.

        Without being set it is the first dimension of the model's first tensor, over all forward passes of the step.
        """
        return self._samples or self._seen or 1

    @samples.setter
    def samples(self, count: int) -> None:
        self._samples = at_least("samples", count, 0)

    @property
    def history(self) -> list[str]:
        """A line for each formation this process was in."""
        return self.crew.history

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for what takes long on purpose on this rank: it is not called lost meanwhile."""
        return self._averaging.synchronizer.busy()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward only add up."""
        self._paused, before = True, self._paused
        try:
            yield
        finally:
            self._paused = before

    def why(self) -> str:
        """Return on one line what gradients travel in, and why."""
        return f"{self.settings.codec}: {self.reason}"

    def report(self) -> StepReport:
        """Return the last complete step in numbers."""
        return self._averaging.synchronizer.report()

    def summary(self) -> str:
        """Return the last step on one line, and who is there."""
        there = f"{len(self.members)} of {self.crew.num_ranks} ranks"
        alone = len(self.members) == 1
        return f"step {self.step - 1}: alone" if alone else f"{self.report().line()}; {there}"

    def close(self) -> None:
        """End when all have come here: a rank that is a step behind takes it over first."""
        if self._closed:
            return
        self._closed = True
        for hook in self._hooks:
            hook.remove()
        try:
            if self._failure is None and sys.exc_info()[1] is None:
                while not self._holds(self._averaging.barrier):
                    continue
            self._wait_for_heirs()
        finally:
            self._averaging.close()
            atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """Leave the crew when the process ends: the others need not wait to see whether this rank comes."""
        with contextlib.suppress(SynclineError):
            self.crew.leave()

    # A step

    def _begin(self) -> None:
        """Begin a step, if it has not begun: let those in who wait, so that all share its batch."""
        if not self._is_fresh or self._closed:
            return
        self._is_fresh, self._skips = False, False
        self._samples, self._seen = 0, 0
        if self._put_back is not None:
            # A script moves its schedule on after every step, also after one that was left out or taken over.
            self._put_back()
            self._put_back = None
        if self.step and self.step % self.rules.door_every == 0:
            with self._timed():
                self._open_door()
        self._averaging.begin()

    def _forward(self, module: nn.Module, inputs: Any) -> None:
        """Before each forward of a step: begin it, and count its samples."""
        if not torch.is_grad_enabled() or self._closed:
            return
        self._begin()
        first = next((one for one in inputs if isinstance(one, torch.Tensor) and one.ndim), None)
        self._seen += 0 if first is None else int(first.shape[0])

    def _is_last_backward(self) -> bool:
        """Tell whether the backward that begins is the one whose gradients are averaged."""
        return not (self._closed or self._paused)

    def _ready(self, number: int) -> None:
        """Launch the first buckets, as many as have all their gradients."""
        while len(self._flights) <= number and self._failure is None:
            try:
                self._flights.append(self._launch(len(self._flights)))
            except (SynchronizationError, RuntimeError) as failure:
                self._failure = failure

    def _launch(self, number: int) -> Flight:
        """Launch how many samples this rank has, which loses no bit on its way, and then one bucket after the other."""
        if number == 0:
            self._weight.fill_(self.samples)
            return self._averaging.launch(len(self._buckets), self._weight, SAMPLES, self.step, DENSE)
        bucket = self._buckets[number - 1]
        bucket.pack(float(self.samples))
        return self._averaging.launch(bucket.index, bucket.buffer, bucket.layout, self.step)

    def _settle(self) -> None:
        """At the end of backward: wait for every average and take it, or leave the step out where a rank was lost."""
        self._ready(len(self._buckets))
        for flight in self._flights:
            try:
                if self._failure is None:
                    flight.wait()
            except (SynchronizationError, RuntimeError) as failure:
                self._failure = failure
        if self._replica.any(self._failure is not None):
            self._replica.check(self._failure)
            with self._timed():
                self._go_on()
            self._skips, self._put_back = True, self._estate.settings()
        else:
            self._take_averages()
            self.step += 1
        self._flights.clear()
        self._is_fresh = True

    def _take_averages(self) -> None:
        finite = all(bool(bucket.buffer.isfinite().all()) for bucket in self._buckets)
        if self.settings.nan == "skip" and not finite:
            self._skips = True
            return
        weight = float(self._weight)
        for bucket in self._buckets:
            bucket.unpack(1.0 / weight if weight else 1.0)

    # Ranks that come and go

    def _go_on(self) -> None:
        """Connect those who are left; afterwards this step is to be made again, or another has been taken over."""
        failure = self._failure or SynchronizationError("another rank of this replica lost its peers.")
        log.warning("step %d: %s The ranks that are left make this step again.", self.step, _text(failure))
        self._averaging.break_off(failure)
        self._handover = None
        self._holds(lambda: self._take_place(self._averaging.form_anew()))
        log.warning("step %d: %s", self.step, self.crew.formation.line())

    def _holds(self, act: Callable[[], None]) -> bool:
        """Do what all members do; False: one more was lost meanwhile, and those who are left have connected anew."""
        for attempt in range(ATTEMPTS):
            failure: RuntimeError | None = None
            try:
                if attempt:
                    self._take_place(self._averaging.form_anew())
                else:
                    act()
            except RuntimeError as error:
                failure = error
            if not self._replica.any(failure is not None):
                return attempt == 0
            kept = failure or RuntimeError("another rank of this replica lost its peers")
            self._averaging.break_off(kept)
        raise SynchronizationError(
            f"the surviving ranks could not reconnect in {ATTEMPTS} attempts.", detail=_text(kept)
        )

    def _take_place(self, formation: Formation) -> None:
        """Be at one with the others of a formation: who is behind takes the state of one who is not."""
        averaging = self._averaging
        is_new = averaging.is_new
        rows = exchange_json({"step": -1 if is_new else self.step}, averaging.team)
        steps = [int(row["step"]) for row in rows]
        source = steps.index(max(steps))
        heirs = [rank for rank, step in enumerate(steps) if step < max(steps)]
        if formation.number == 0:
            heirs = [rank for rank in range(len(steps)) if rank != source]
        if averaging.team.rank == source and heirs:
            data = self._estate.copied(self.step)
            self._handover = Handover(data, averaging.team, heirs)
        if averaging.team.rank in heirs:
            self.step = self._estate.take(inherit(averaging.team, source))
            self._skips, self._put_back = True, self._estate.settings()
        launched = (
            range(len(self._flights) - 1) if self._flights else ()
        )  # the first one told of samples, and owes nothing
        averaging.hand_on([] if averaging.team.rank in heirs else launched)
        self._flights.clear()
        self._failure = None
        self._await_quorum()

    def _await_quorum(self) -> None:
        attempt = 0
        while len(self.members) < self.rules.min_ranks:
            tickets = self.crew.waiting(f"{self.step}.{attempt}")
            attempt += 1
            if tickets:
                self._wait_for_heirs()
                self._let_in(tickets)
            else:
                time.sleep(POLL_S)

    def _open_door(self) -> None:
        """Let those in who wait: they take the state of this step from a peer, and all go on with it."""
        while tickets := self.crew.waiting(self.step):
            self._wait_for_heirs()
            self._holds(partial(self._let_in, tickets))
            log.warning("step %d: %s", self.step, self.crew.formation.line())
        self._skips = False

    def _let_in(self, tickets: Sequence[Ticket]) -> None:
        self._take_place(self._averaging.let_in(tickets))

    def _wait_for_heirs(self) -> None:
        if self._handover is not None:
            self._handover.wait(self.settings.timeout_s)
            self._handover = None

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.waited_s += time.perf_counter() - began


def _text(failure: BaseException) -> str:
    return failure.message if isinstance(failure, SynclineError) else str(failure).split("\n", 1)[0]
