"""The handle: what `synchronize` returns, and the one place that owns threads, buckets, residuals and steps."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from syncline.errors import LostRankError, SynchronizationError
from syncline.program.pieces import AHEAD
from syncline.program.stages import BucketProgram
from syncline.runtime.alive.last_words import from_transport
from syncline.runtime.alive.watchdog import start_watchdog
from syncline.runtime.span_writer import SpanWriter, follow
from syncline.runtime.sync.averagers import Averagers
from syncline.runtime.sync.bucket import Bucket, Order
from syncline.runtime.sync.conveyor import BucketJob, Conveyor, Piece
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.step import Step, StepReport
from syncline.runtime.sync.streams import SideStreams
from syncline.runtime.wire.connections import cut_off
from syncline.runtime.wire.links import GroupLinks
from syncline.runtime.wire.native_wire import LineReport, wire_summary
from syncline.runtime.wire.team import Team, store_port
from syncline.timeline import Timeline

STATE_VERSION = 1
WARM_UP_CODEC = "int8"
HISTORY = 16
"""Steps whose timeline is kept."""

GRACE_S = 0.5
"""How long the training thread has to hear of a lost rank before waits elsewhere are ended."""

log = logging.getLogger("syncline.watchdog")


class Synchronizer:
    """Averages buckets of gradients over the ranks of a group, in order, on threads of its own."""

    ends_all_waits = False
    """Whether a lost rank ends every wait of this process: nothing in it goes on without that rank."""

    def __init__(
        self, settings: Settings, links: GroupLinks, label: str, watched: Team | None = None, *, in_order: bool = False
    ) -> None:
        """Make one over these links; `watched` are the ranks whose loss ends it, by default those of the links.

        Buckets `in_order` go as they come, else the last ones, which the next forward needs first, go first.
        """
        self.settings = settings
        self.links = links
        self.rank, self.num_ranks = links.rank, links.num_ranks
        self.steps: deque[Step] = deque(maxlen=HISTORY)
        self._averagers = Averagers(settings, links, in_order=in_order)
        self._streams = SideStreams(links.device)
        ahead = AHEAD if links.device.type == "cuda" else 0
        self._conveyor = Conveyor(f"syncline-{label}", self._streams.entered, ahead=ahead, join=self._streams.join)
        self._buckets: dict[int, Bucket] = {}
        self._programs: dict[int, BucketProgram] = {}
        self._codec = settings.codec
        self._trainer, self._is_heard = threading.get_ident(), False
        self.phase = "start"
        """What the training thread is at: "start", "forward", "backward", "optimizer", "checkpoint" or "close"."""
        self._num_steps = self._checked = 0
        self._next_began_s = 0.0
        self._rate_Bps = 0.0
        self.reason = "as given"
        self._writer = SpanWriter()
        follow(self.rank)
        try:
            self._watchdog = start_watchdog(self, watched or links.team, settings.watch_s, settings.patience_s)
        except BaseException:
            self._conveyor.abandon()
            self._writer.close()
            raise

    # Steps

    def begin(self) -> None:
        """Note that a step's computation begins here, which ends the one before."""
        now = time.perf_counter()
        self._end_step(now)
        self._next_began_s = self._next_began_s or now

    def open_step(self) -> Step:
        """Return a new step, to which buckets can be given."""
        self._end_step(self._next_began_s or time.perf_counter())
        began = self._next_began_s or time.perf_counter()
        step = Step(self._num_steps, self.rank, self._choose_codec(), began)
        self._num_steps += 1
        self._next_began_s = 0.0
        self.steps.append(step)
        return step

    def _end_step(self, now_s: float) -> None:
        """End the step before this moment, if it has not ended, and tell the agent of this host."""
        if not self.steps or self.steps[-1].ended_s:
            return
        step = self.steps[-1]
        step.ended_s = now_s
        for wire in self.links.native():
            wire.news()
        if self._writer.is_heard():
            # With levels most bytes go to few, and the others are numbered within their level.
            everyone = () if self.settings.levels else range(self.num_ranks)
            self._writer.send(step.agent_spans([peer for peer in everyone if peer != self.rank]))

    def average(self, order: Order) -> None:
        """Replace a buffer by its average over the ranks, some time later."""
        if self._conveyor.failure is not None:
            raise self.failure_of(self._conveyor.failure)
        index, buffer, layout, step = order.index, order.buffer, order.layout, order.step
        bucket = self._buckets.get(index)
        if bucket is None or bucket.layout != layout or bucket.buffer.dtype != buffer.dtype:
            bucket = self._buckets[index] = self._averagers.bucket(index, layout, buffer, order.codec or step.codec)
            self._programs[index] = bucket.program
        bucket.begin(buffer, step)
        self._streams.follow()
        self._submit(order, bucket.pieces)

    def _submit(self, order: Order, pieces: Sequence[Piece]) -> None:
        """Put a bucket's pieces on the conveyor, and say when they are averaged, or why they are not."""
        step, size = order.step, order.buffer.nbytes
        step.bucket_in(order.index, size, order.last)
        step.dense_bytes += 2 * (self.num_ranks - 1) * size // self.num_ranks

        def finished(failure: BaseException | None) -> None:
            step.bucket_out()
            order.done(None if failure is None else self.failure_of(failure))

        self._conveyor.submit(BucketJob(list(pieces), finished))

    def settle(self, step: Step) -> None:
        """Wait for a step's buckets and raise what went wrong with any."""
        step.computed()
        self._meanwhile(step)
        step.wait()
        if self._conveyor.failure is not None:
            raise self.failure_of(self._conveyor.failure)
        self.phase = "optimizer"

    def _compare(self) -> None:
        """Compare replicas after the first step and every so many, before the forward that follows."""
        every, done = self.settings.check_every, self._num_steps
        if every and done != self._checked and (done == 1 or done % every == 0):
            self._checked = done
            with self.talking("forward"):
                self.check_replicas()

    def check_replicas(self) -> None:
        """Compare what all ranks hold alike and raise on every rank where any differ; every rank calls it."""

    def _meanwhile(self, step: Step) -> None:
        """Do what can be done before the last bucket has come."""

    def failure_of(self, failure: BaseException) -> BaseException:
        """Return the failure with rank and step; a lost rank behind it is named, and the other ranks are notified."""
        if self._watchdog is not None:
            failure = self._watchdog.explain(failure)
        step = max(0, self._num_steps - 1)
        if isinstance(failure, LostRankError) and failure.step < 0:
            failure.step, failure.phase = step, self.phase
        self._is_heard = self._is_heard or threading.get_ident() == self._trainer
        if isinstance(failure, SynchronizationError) and not failure.where:
            phase = f", {self.phase}" if isinstance(failure, LostRankError) else ""
            failure.where = f"rank {self.links.team.names[self.rank]}, step {step}{phase}"
        return failure

    @contextlib.contextmanager
    def talking(self, phase: str) -> Iterator[None]:
        """Enter a phase in which this thread talks to other ranks: what a backend raises there is explained."""
        self.phase = phase
        if self._conveyor.failure is not None:
            raise self.failure_of(self._conveyor.failure)
        try:
            yield
        except RuntimeError as error:
            vague = SynchronizationError(f"ranks could not talk in {phase}.", detail=str(error).split("\n")[0])
            found = self.failure_of(vague)
            raise error if found is vague and not from_transport(error) else found from error

    def break_off(self, failure: BaseException) -> None:
        """End every wait with this failure, as the watchdog does when a rank is lost."""
        self._conveyor.break_off(failure)
        self.links.break_off(str(failure))
        if self.ends_all_waits:
            timer = threading.Timer(GRACE_S, self._end_other_waits)
            timer.daemon = True
            timer.start()

    def _end_other_waits(self) -> None:
        """End a wait of the training thread that is not this handle's: in a collective of torch or of the script."""
        if not self._is_heard and self._watchdog is not None:
            count = cut_off(self._watchdog.roll.addresses, store_port(self.links.team.store))
            log.warning("the training thread waits elsewhere: %d connections to other ranks were shut down.", count)

    @property
    def failure(self) -> BaseException | None:
        """What ended the exchange; None: nothing has."""
        return self._conveyor.failure

    @property
    def lost(self) -> int | None:
        """The rank that was found dead, hung or gone; None: none is known by its number."""
        verdict = None if self._watchdog is None else self._watchdog.verdict
        return verdict.rank if verdict is not None and verdict.kind in ("dead", "silent", "hung", "closed") else None

    @property
    def piece_bytes(self) -> int:
        """The size of the pieces in which a bucket is exchanged."""
        return self.settings.piece_bytes_on(self.links.device.type)

    @property
    def residuals(self) -> dict[str, torch.Tensor]:
        """What this rank owes the average, by parameter: views of what the exchanges use."""
        return self._averagers.residuals.parts()

    def abandon(self) -> None:
        """Leave the connections as they are: threads that wait for a lost rank end with its time-out."""
        self._is_heard = True
        if self._watchdog is not None:
            self._watchdog.close(tells=False)
        self._conveyor.abandon()
        self.links.break_off("the handle was given up")

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for what takes long on purpose on this rank: nobody is called hung meanwhile."""
        return contextlib.nullcontext() if self._watchdog is None else self._watchdog.busy()

    def synchronize(self) -> None:
        """Do nothing: replicas are equal after every step. DiLoCo has the same call, and averages there."""

    # What happened

    def why(self) -> str:
        """Return on one line what gradients travel in, and why."""
        return f"{self.settings.codec}: {self.reason}"

    def report(self) -> StepReport:
        """Return the last complete step in numbers."""
        step = self._last()
        return dataclasses.replace(step.report(self._rate(step)), wire=wire_summary(self.lines()))

    def summary(self) -> str:
        """Return the last step on one line, and when warming up ends."""
        return self.report().line() + self.settings.warming_up(self._last().number)

    def timeline(self) -> Timeline:
        """Return the last complete step of this rank; `syncline.timeline.save` writes it for Perfetto."""
        step = self._last()
        return step.timeline(self._rate(step))

    def program(self) -> tuple[BucketProgram, ...]:
        """Return what is done with each bucket: pieces, stages, messages; it is what runs, and what is priced."""
        if not self._programs:
            raise SynchronizationError("no bucket has been synchronised yet.", hint="Call it after the first backward.")
        return tuple(self._programs[index] for index in sorted(self._programs))

    def lines(self) -> list[LineReport]:
        """Return how each connection of the native wire does, rail by rail; what changed since is logged."""
        return [line for wire in self.links.native() for line in wire.lines()]

    def _last(self) -> Step:
        complete = [step for step in self.steps if step.ended_s]
        if complete:
            return complete[-1]
        if self.steps:
            return self.steps[-1]
        raise SynchronizationError("no step has been synchronised yet.", hint="Call it after the first backward.")

    def _rate(self, step: Step) -> float:
        self._rate_Bps = max(self._rate_Bps, step.received_Bps())
        return self._rate_Bps

    # State

    def state_dict(self, *, local: bool = False) -> dict[str, Any]:
        """Return what must outlive the process: residuals and factors by parameter name, and the step.

        Every rank calls it. The residuals are what all ranks together owe the average, so the same on every rank, and
        a run with another number of ranks can take them over. With `local` they are this rank's own, for the same rank.
        """
        parts = self._averagers.residuals.parts()
        residuals = {name: part.clone() for name, part in parts.items()}
        if not local:
            for name in sorted(residuals):
                self._averagers.team.all_reduce(residuals[name])
                residuals[name].div_(self._averagers.num_owing)
        return {
            "version": STATE_VERSION,
            "codec": self.settings.codec,
            "num_ranks": self.num_ranks,
            "num_owing": self._averagers.num_owing,
            "local_to": self.rank if local else -1,
            "step": self._num_steps,
            "residuals": residuals,
            "factors": {name: factor.clone() for name, factor in self._averagers.factors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, here or in a run with another number of ranks."""
        if state.get("version") != STATE_VERSION:
            raise SynchronizationError(
                f"the saved state has version {state.get('version')!r}; this syncline reads {STATE_VERSION}."
            )
        owner = (state["local_to"], state["num_ranks"])
        if owner[0] >= 0 and owner != (self.rank, self.num_ranks):
            raise SynchronizationError(
                f"the saved state belongs to rank {owner[0]} of {owner[1]}; this is rank {self.rank} of "
                f"{self.num_ranks}.",
                hint="Save with state_dict(), without local=True, to resume on another number of ranks.",
            )
        self._num_steps = int(state["step"])
        self._averagers.load(state["residuals"], state["factors"])
        self._buckets.clear()

    def rescale(self, factor: float) -> None:
        """Multiply what is owed, as when the scale of the loss changes; call it between steps."""
        self._averagers.residuals.scale(factor)

    def close(self) -> None:
        """Finish what is under way, end the threads and give the buffers back; what was measured stays."""
        self._is_heard = True
        if self._watchdog is not None:
            self._watchdog.close()
        self._conveyor.close()
        self._writer.close()
        if self.links.team.pace is not None:
            self.links.team.pace.close()
        self._buckets.clear()
        self.links.close()

    def _choose_codec(self) -> str:
        codec = WARM_UP_CODEC if self._num_steps < self.settings.warmup else self.settings.codec
        if codec != self._codec:
            self._codec = codec
            self._buckets.clear()
        return codec


def explained(call: Callable[..., Any], known: weakref.ref[Any]) -> Callable[..., Any]:
    """Return a call of a model's own that names the lost rank where a wait of its breaks; `known` is the handle."""

    def named(*inputs: Any, **options: Any) -> Any:
        handle = known()
        with contextlib.nullcontext() if handle is None else handle.talking("forward"):
            return call(*inputs, **options)

    return named
