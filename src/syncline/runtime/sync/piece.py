"""One stretch of a bucket: the interpreter of its program (`program/stages.py`), called by the conveyor's threads.

A phase runs the stages that the program has in it, in their order; each is an operation of the exchange at the stage's
level, or of the factors. Where some rank's gradient is not finite the stages that would use it are left out, alike on
every rank.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping

import torch

from syncline.errors import NonFiniteError, SynchronizationError
from syncline.program.stages import ADD, DECODE, ENCODE, FIRST, LAST, MIDDLE, SUM, BucketStage, PieceProgram, StagePhase
from syncline.runtime.sync.bucket import BoundPiece, Bucket
from syncline.runtime.sync.exchange import Exchange, Trouble
from syncline.runtime.sync.low_rank import Factors
from syncline.runtime.sync.native_exchange import NativeExchange

Exchanges = Mapping[tuple[int, int], Exchange | NativeExchange]
"""By part (of a bucket in factors) and level."""
_SHARD = re.compile(r" \([^()]*shards?, \d+\)\Z")
"""How a name says which part of a parameter it means; people know the parameter."""


class BucketPiece(BoundPiece):
    """Walks the stages of one piece; `exchanges` and `factors` do what a stage says."""

    def __init__(
        self, bucket: Bucket, program: PieceProgram, exchanges: Exchanges, factors: Factors | None = None
    ) -> None:
        self._bucket, self.program = bucket, program
        self._exchanges, self._factors = exchanges, factors
        self.ordered = program.is_ordered
        last = len(program.shape) - 1
        self._wire_bytes = sum(one.sent_bytes for (_, level), one in exchanges.items() if level == last)
        self._inside_bytes = sum(one.sent_bytes for (_, level), one in exchanges.items() if level < last)
        self._trouble: Trouble | None = None
        self._unposted: Exchange | NativeExchange | None = None
        self._run: dict[str, Callable[[BucketStage], None]] = {
            ENCODE: self._encode, ADD: self._add, SUM: self._sum, DECODE: self._decode,
            FIRST: self._first, MIDDLE: self._middle, LAST: self._last,
        }  # fmt: skip

    def bind(self, values: torch.Tensor, scale: float | None = None) -> None:
        """Work on this memory from now on; sums that stay with their owners are multiplied by `scale`."""
        values = values[self.program.low : self.program.high]
        if self._factors is not None:
            self._factors.bind(values)
            return
        for _, exchange in sorted(self._exchanges.items(), key=lambda item: item[0]):
            exchange.bind(values)
            values = exchange.own
            if scale is not None:
                exchange.scale = scale

    # What the conveyor calls

    def prepare(self) -> None:
        """Begin what `send` ends: give the device its work where gradients are on one."""
        bucket = self._bucket
        bucket.bring(self.program.low, self.program.high)
        self._trouble = None
        number = bucket.step.next_piece()
        for part in (*self._exchanges.values(), *([] if self._factors is None else [self._factors])):
            part.number = number
        first = self.program.stages[0]
        if first.name == ENCODE:
            self._at(first).prepare(bucket.step)

    def send(self) -> None:
        """Run the stages that wait for nobody."""
        self._walk(StagePhase.SEND)
        self._bucket.step.wire_bytes += self._wire_bytes
        self._bucket.step.inside_bytes += self._inside_bytes

    def fail(self) -> None:
        """Tell peers that this rank cannot go on."""
        next(iter(self._exchanges.values())).fail(self._bucket.step)

    def sum_up(self) -> None:
        """Run the stages that wait for what peers sent; the last sum is left to `post`."""
        self._unposted = None
        try:
            self._walk(StagePhase.REDUCE)
        except SynchronizationError:
            for exchange in self._exchanges.values():
                with contextlib.suppress(RuntimeError):  # a lost peer cannot be notified
                    exchange.fail_sum()
            raise
        if self._trouble is not None:
            self._leave_out(self._trouble)

    def post(self) -> None:
        """Post the sum, when it has reached the memory that it is sent from."""
        if self._unposted is not None:
            self._unposted.post()

    def collect(self) -> None:
        """Run the stages that wait for the sums of others, and wait until nothing is under way."""
        if self._trouble is None:
            self._walk(StagePhase.COLLECT)
        for exchange in self._exchanges.values():
            exchange.finish()
        self._bucket.take_back(self.program.low, self.program.high)

    # Stages

    def _walk(self, phase: StagePhase) -> None:
        for stage in self.program.stages:
            if stage.phase is phase:
                self.carry_out(stage)

    def carry_out(self, stage: BucketStage) -> None:
        """Run one stage."""
        self._run[stage.name](stage)

    def _at(self, stage: BucketStage) -> Exchange | NativeExchange:
        return self._exchanges[stage.part, stage.level]

    def _encode(self, stage: BucketStage) -> None:
        self._at(stage).send(self._bucket.step, self._trouble)

    def _add(self, stage: BucketStage) -> None:
        self._hear(stage)
        if self._trouble is None:
            self._at(stage).add_up()

    def _sum(self, stage: BucketStage) -> None:
        came = stage.awaits >= 0
        if came:
            self._hear(stage)
        if self._trouble is not None:
            return
        exchange = self._at(stage)
        exchange.sum_up(came)
        if stage is self.program.last_of(StagePhase.REDUCE):
            self._unposted = exchange
        else:
            exchange.post()

    def _decode(self, stage: BucketStage) -> None:
        if self._trouble is None:
            self._at(stage).collect()

    def _first(self, stage: BucketStage) -> None:
        assert self._factors is not None
        self._trouble = self._factors.first(self._bucket.step)

    def _middle(self, stage: BucketStage) -> None:
        assert self._factors is not None
        self._factors.middle(self._bucket.step)

    def _last(self, stage: BucketStage) -> None:
        assert self._factors is not None
        self._factors.last(self._bucket.step)

    def _hear(self, stage: BucketStage) -> None:
        """Wait for every peer's message; who had trouble is known on all ranks alike."""
        self._trouble = self._at(stage).receive()
        if self._trouble is not None and stage.phase is StagePhase.COLLECT:
            number = self._bucket.step.number
            raise NonFiniteError(f"factors overflow on rank {self._trouble.rank} at step {number}.")

    def _leave_out(self, trouble: Trouble) -> None:
        """Raise, or leave the step out on every rank: residuals are then as they were."""
        bucket = self._bucket
        if bucket.nan == "raise":
            name = _SHARD.sub("", bucket.layout.names[trouble.parameter])
            team, step = bucket.team, bucket.step.number
            ranks = [team.names[trouble.rank]] if team.behind is None else team.behind[trouble.rank]
            raise NonFiniteError(
                f'the gradient of "{name}" on rank {" or ".join(map(str, ranks))} is not finite at step {step}.',
                hint='Find what overflows, or pass nan="skip" to leave such steps out on every rank.',
            )
        for exchange in self._exchanges.values():
            exchange.forget()
        if self._factors is not None:
            self._factors.forget()
        bucket.step.skipped = True
        bucket.values[self.program.low : self.program.high].fill_(float("nan"))
