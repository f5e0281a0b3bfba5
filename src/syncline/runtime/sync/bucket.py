"""A bucket of gradients and its exchange: which parameters it holds, the pieces it is sent in, what NaN does to it."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Protocol

import torch

from syncline.errors import NonFiniteError
from syncline.program.stages import BucketProgram
from syncline.runtime.sync.exchange import Trouble
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.team import Team

_SHARD = re.compile(r" \([^()]*shards?, \d+\)\Z")
"""How a name says which part of a parameter it means; people know the parameter."""


@dataclass(frozen=True)
class Layout:
    """The parameters of a bucket in order: which element belongs to which, the same on every rank."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    def fingerprint(self) -> int:
        """Return a number that differs between layouts."""
        return zlib.crc32(repr((self.names, self.shapes)).encode())

    def parameter_at(self, element: int) -> int:
        """Return the index of the parameter that holds an element."""
        for index, end in enumerate(accumulate(self.sizes)):
            if element < end:
                return index
        return len(self.sizes) - 1


@dataclass(frozen=True)
class Order:
    """A flat buffer of a step to be replaced by its average over the ranks, some time later; `done` is called then."""

    index: int
    buffer: torch.Tensor
    layout: Layout
    step: Step
    done: Callable[[BaseException | None], None]
    last: bool = False


class Averager(Protocol):
    """Averages one stretch of a bucket over the ranks, in three stages."""

    sent_bytes: int
    inside_bytes: int
    number: int
    ordered: bool
    """Whether `sum_up` waits for peers that collect: all ranks must then do both in one order."""

    def bind(self, values: torch.Tensor) -> None: ...

    def prepare(self, step: Step) -> None: ...

    def send(self, step: Step) -> None: ...

    def fail(self, step: Step) -> None: ...

    def sum_up(self) -> Trouble | None: ...

    def post(self) -> None: ...

    def collect(self) -> None: ...

    def forget(self) -> None: ...

    def finish(self) -> None: ...


class BucketPiece:
    """A stretch of a bucket on the conveyor, with what is to be done where a gradient is not finite."""

    def __init__(self, bucket: Bucket, low: int, high: int, averager: Averager) -> None:
        self._bucket = bucket
        self._low, self._high = low, high
        self._averager = averager
        self._troubled = False
        self.ordered = averager.ordered

    def bind(self, values: torch.Tensor) -> None:
        """Work on this memory from now on."""
        self._averager.bind(values[self._low : self._high])

    def prepare(self) -> None:
        """Begin what `send` ends."""
        bucket = self._bucket
        if bucket.staging is not None:
            bucket.staging[self._low : self._high].copy_(bucket.buffer[self._low : self._high])
        self._averager.number = bucket.step.next_piece()
        self._averager.prepare(bucket.step)

    def send(self) -> None:
        """Encode and post."""
        bucket = self._bucket
        self._averager.send(bucket.step)
        bucket.step.wire_bytes += self._averager.sent_bytes
        bucket.step.inside_bytes += self._averager.inside_bytes

    def fail(self) -> None:
        """Tell peers that this rank cannot go on."""
        self._averager.fail(self._bucket.step)

    def sum_up(self) -> None:
        """Sum, unless some rank's gradient is not finite."""
        trouble = self._averager.sum_up()
        self._troubled = trouble is not None
        if trouble is not None:
            self._handle(trouble)

    def post(self) -> None:
        """Post the sum."""
        if not self._troubled:
            self._averager.post()

    def collect(self) -> None:
        """Take the average."""
        if self._troubled:
            self._averager.finish()
        else:
            self._averager.collect()
        bucket = self._bucket
        if bucket.staging is not None:
            bucket.buffer[self._low : self._high].copy_(bucket.staging[self._low : self._high])

    def _handle(self, trouble: Trouble) -> None:
        bucket = self._bucket
        if bucket.nan == "raise":
            name = _SHARD.sub("", bucket.layout.names[trouble.parameter])
            team, step = bucket.team, bucket.step.number
            rank = team.sources.of(trouble.rank, step) if team.sources is not None else team.names[trouble.rank]
            raise NonFiniteError(
                f'the gradient of "{name}" on rank {rank} is not finite at step {step}.',
                hint='Find what overflows, or pass nan="skip" to leave such steps out on every rank.',
            )
        self._averager.forget()
        values = bucket.values[self._low : self._high]
        bucket.step.skipped = True
        values.fill_(float("nan"))


class Bucket:
    """One bucket with its pieces; `values` is the float32 memory that pieces work on."""

    def __init__(
        self, layout: Layout, buffer: torch.Tensor, nan: str, team: Team, program: BucketProgram | None = None
    ) -> None:
        self.layout = layout
        self.program = program
        self.nan = nan
        self.team = team
        self.pieces: list[BucketPiece] = []
        self.scatter: Averager | None = None
        self.buffer = buffer
        is_float32 = buffer.dtype == torch.float32
        self.staging = None if is_float32 else torch.empty(buffer.numel(), dtype=torch.float32, device=buffer.device)
        self.step: Step

    @property
    def values(self) -> torch.Tensor:
        """The float32 numbers that are exchanged: the buffer itself where it is float32."""
        return self.buffer if self.staging is None else self.staging

    def cut(self, cuts: Sequence[int], make: Callable[[int, int], Averager]) -> None:
        """Make a piece of each stretch between neighbouring cuts."""
        self.pieces = [BucketPiece(self, low, high, make(low, high)) for low, high in pairwise(cuts)]

    def begin(self, buffer: torch.Tensor, step: Step) -> None:
        """Work on this step's gradients, wherever they are now."""
        self.step = step
        moved = buffer.data_ptr() != self.buffer.data_ptr()
        self.buffer = buffer
        if moved and self.staging is None:
            for piece in self.pieces:
                piece.bind(buffer)
            if self.scatter is not None:
                self.scatter.bind(buffer)
