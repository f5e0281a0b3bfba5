"""The handle: what `synchronize` returns, and the one place that owns groups, threads, buckets, residuals and steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from syncline.errors import SynchronizationError
from syncline.runtime.bucket import Averager, Bucket, Layout, piece_cuts
from syncline.runtime.conveyor import Conveyor, Job
from syncline.runtime.exchange import Exchange, Place
from syncline.runtime.residuals import Residuals
from syncline.runtime.settings import Settings
from syncline.runtime.step import Step, StepReport
from syncline.runtime.wire import Collectives, PointToPoint, Wire
from syncline.timeline import Timeline

STATE_VERSION = 1


class Synchronizer:
    """Averages buckets of gradients over the ranks of a group, in order, on threads of its own."""

    def __init__(self, settings: Settings, groups: Sequence[dist.ProcessGroup], label: str) -> None:
        self.settings = settings
        self.group = groups[0]
        self.rank = dist.get_rank(self.group)
        self.num_ranks = dist.get_world_size(self.group)
        self.residuals = Residuals()
        self.steps: deque[Step] = deque(maxlen=settings.history)
        self._wire: Wire = PointToPoint(groups[0]) if len(groups) == 1 else Collectives(groups[0], groups[1])
        self._conveyor = Conveyor(f"syncline-{label}")
        self._buckets: dict[int, Bucket] = {}
        self._scheme = settings.scheme
        self._num_steps = 0
        self._next_began_s = 0.0
        self._rate_Bps = 0.0
        self._next_tag = 0

    # Steps

    def begin(self) -> None:
        """Note that a step's computation begins here, which ends the one before."""
        now = time.perf_counter()
        if self.steps and not self.steps[-1].ended_s:
            self.steps[-1].ended_s = now
        self._next_began_s = self._next_began_s or now

    def open_step(self) -> Step:
        """Return a new step, to which buckets can be given."""
        if self.steps and not self.steps[-1].ended_s:
            self.steps[-1].ended_s = self._next_began_s or time.perf_counter()
        began = self._next_began_s or time.perf_counter()
        step = Step(self._num_steps, self.rank, self.settings.codec, began)
        self._num_steps += 1
        self._next_began_s = 0.0
        self.steps.append(step)
        return step

    def average(
        self,
        index: int,
        buffer: torch.Tensor,
        layout: Layout,
        step: Step,
        done: Callable[[BaseException | None], None],
        last: bool = False,
    ) -> None:
        """Replace a flat buffer by its average over the ranks, some time later; `done` is called then."""
        if self._conveyor.failure is not None:
            raise self.failure_of(self._conveyor.failure)
        bucket = self._buckets.get(index)
        if bucket is None or bucket.layout != layout or bucket.buffer.dtype != buffer.dtype:
            bucket = self._buckets[index] = self._bucket(layout, buffer)
        bucket.begin(buffer, step)
        step.bucket_in(index, buffer.nbytes, last)
        step.dense_bytes += 2 * (self.num_ranks - 1) * buffer.nbytes // self.num_ranks

        def finished(failure: BaseException | None) -> None:
            step.bucket_out()
            done(None if failure is None else self.failure_of(failure))

        self._conveyor.submit(Job(list(bucket.pieces), finished))

    def settle(self, step: Step) -> None:
        """Wait for a step's buckets and raise what went wrong with any."""
        step.wait()
        if self._conveyor.failure is not None:
            raise self.failure_of(self._conveyor.failure)

    def failure_of(self, failure: BaseException) -> BaseException:
        """Return the failure with where it happened."""
        if isinstance(failure, SynchronizationError) and not failure.where:
            failure.where = f"rank {self.rank}, step {max(0, self._num_steps - 1)}"
        return failure

    # What happened

    def report(self) -> StepReport:
        """Return the last complete step in numbers."""
        step = self._last()
        return step.report(self._rate(step))

    def summary(self) -> str:
        """Return the last step on one line."""
        return self.report().line()

    def timeline(self) -> Timeline:
        """Return the last complete step of this rank; `syncline.timeline.save` writes it for Perfetto."""
        step = self._last()
        return step.timeline(self._rate(step))

    def _last(self) -> Step:
        complete = [step for step in self.steps if step.ended_s]
        if complete:
            return complete[-1]
        if self.steps:
            return self.steps[-1]
        raise SynchronizationError("no step has been synchronised yet.", hint="Ask after the first backward.")

    def _rate(self, step: Step) -> float:
        if self.settings.rate_Bps is not None:
            return self.settings.rate_Bps
        size_bytes, time_s = step.received()
        if time_s > 0:
            self._rate_Bps = max(self._rate_Bps, size_bytes / time_s)
        return self._rate_Bps

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return what must outlive the process: this rank's residuals by parameter, and the step."""
        return {
            "version": STATE_VERSION,
            "codec": self.settings.codec,
            "num_ranks": self.num_ranks,
            "step": self._num_steps,
            "residuals": {name: part.clone() for name, part in self.residuals.parts().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, here or in a run with another number of ranks."""
        if state.get("version") != STATE_VERSION:
            raise SynchronizationError(
                f"the saved state has version {state.get('version')!r}; this syncline reads {STATE_VERSION}."
            )
        self._num_steps = int(state["step"])
        self.residuals.load(state["residuals"])

    def close(self) -> None:
        """Finish what is under way and end the threads."""
        self._conveyor.close()

    # Buckets

    def _bucket(self, layout: Layout, buffer: torch.Tensor) -> Bucket:
        bucket = Bucket(layout, buffer, self.settings.nan, self.group)
        residual = None
        if self.settings.uses_feedback:
            residual = self.residuals.flat(layout.names, layout.sizes, buffer.device)
        base = buffer.numel()

        def make(low: int, high: int) -> Averager:
            part = None if residual is None else residual[low:high]
            return Exchange(bucket.values[low:high], part, self._scheme, self._wire, self._place(bucket, low))

        bucket.cut(piece_cuts(base, self.settings.piece_bytes), make)
        return bucket

    def _place(self, bucket: Bucket, low: int) -> Place:
        layout = bucket.layout

        def find(shard: torch.Tensor) -> int:
            offset = (shard.data_ptr() - bucket.values.data_ptr()) // 4
            bad = torch.nonzero(~torch.isfinite(shard))
            return layout.parameter_at(offset + int(bad[0]))

        self._next_tag += 1
        return Place(self._next_tag, layout.fingerprint(), self.settings.fingerprint(), find)
