"""Compressed all-reduce of one piece of a bucket: encoded shards out, decode and sum, encoded sums out, decode.

Each rank owns one shard. It sends every other rank that rank's shard, encoded; adds what it receives to its own shard,
which is never encoded for itself; and sends the encoded sum to all. Every rank, the owner too, then takes the values
that the encoded sum decodes to, so replicas stay equal bit for bit. With error feedback one residual as long as the
piece holds both kinds of error: what was lost of my contribution to others' shards, and of the sum in my own shard.
Both count 1/size in the average, so residuals of all ranks add up, whatever the number of ranks.

An exchange is the operations of one level on its buffers: `piece.py` calls them in the order of the program's stages
(`program/stages.py`), under whose names they are recorded. On a device `prepare` and `sum_up` only give work to the
device, and `send` and `post` wait for it and post, so that it is not idle meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from syncline.codec.dense import Dense
from syncline.errors import AgreementError, SynchronizationError
from syncline.program.pieces import shard_bounds
from syncline.program.stages import ADD, DECODE, ENCODE, ON_THE_WIRE, SUM, Posts
from syncline.runtime.sync.finite import finite_flag
from syncline.runtime.sync.step import Step
from syncline.runtime.sync.streams import Landing
from syncline.runtime.sync.tensors import take_back, tensor_codec
from syncline.runtime.wire.message import EVERYONE, FAILED, NONFINITE, Box, OtherStepError, Stamp
from syncline.runtime.wire.wire import Wire
from syncline.timeline import SpanKind


@dataclass(frozen=True)
class Trouble:
    """A rank whose contribution is not finite, and the bucket's parameter (-1: it failed otherwise)."""

    rank: int
    parameter: int


@dataclass(frozen=True)
class ExchangePlace:
    """Where an exchange stands: its tag and layout on the wire, this rank's number, how to name an element."""

    tag: int
    layout: int
    codec: int
    origin: int
    find: Callable[[torch.Tensor], int]
    """Return the index, in the bucket, of the parameter that holds the first bad element of a shard (-1: none)."""
    ends: tuple[int, ...] = ()
    """Where each parameter of the bucket ends, in elements, and where this exchange begins among them."""
    offset: int = 0
    priority: int = 0
    """What is larger goes first: buckets that the next forward needs first come last."""


class Exchange:
    """One level of a piece with everything it needs, allocated once: shards, slots, residual."""

    number = -1
    """Which of the step's pieces this is."""

    def __init__(
        self,
        values: torch.Tensor,
        residual: torch.Tensor | None,
        scheme: Dense,
        wire: Wire,
        place: ExchangePlace,
        bounds: list[tuple[int, int]] | None = None,
        *,
        scatter_only: bool = False,
    ) -> None:
        self.wire = wire
        self.codec = tensor_codec(scheme, values.device)
        self._bounds = bounds = bounds or shard_bounds(values.numel(), wire.size)
        self._shards = [values[low:high] for low, high in bounds]
        self._residuals = [None if residual is None else residual[low:high] for low, high in bounds]
        self.scale = self._scales()[0]
        """What a sum is multiplied by that is not encoded in the same stage."""
        sizes = [scheme.wire_bytes(high - low) for low, high in bounds]
        own, largest = sizes[wire.rank], max(sizes)
        device = values.device
        staged = wire.on_host and device.type != "cpu"
        summed = not wire.checks_bytes
        self._out = Box(sizes, device=device, staged=staged, summed=summed)
        self._in = Box([own] * wire.size, largest, device, staged=staged, summed=summed)
        self._sum = Box([own], largest, device, staged=staged, summed=summed)
        self._sums = Box(sizes, device=device, staged=staged, summed=summed)
        self._landings = Landing(device), Landing(device)
        self._taken = Landing(device)
        self._place = place
        self._step: Step
        self._tags = (2 * place.tag, 2 * place.tag + 1)
        self._stamp = Stamp(place.codec, place.layout, 0, 0)
        self._trouble: Trouble | None = None
        self._finite: list[bool | torch.Tensor] | None = None
        """Of the own shard and of every peer's, when they have been encoded: whether each held numbers only."""
        self._posted_s = self._summed_s = 0.0
        posted = 0 if scatter_only else len(self._sum[0].tensor)
        self.sent_bytes = sum(len(self._out[peer].tensor) + posted for peer in wire.peers)
        self._has_posted = True

    def bind(self, values: torch.Tensor) -> None:
        """Work on this memory from now on."""
        self._shards = [values[low:high] for low, high in self._bounds]

    @property
    def own(self) -> torch.Tensor:
        """The shard this rank sums."""
        return self._shards[self.wire.rank]

    def prepare(self, step: Step) -> None:
        """Give the device what `send` will wait for; on the CPU there is nothing to be gained."""
        if self.own.is_cuda:
            self._begin(step)
            self._finite = self._encode_all()

    def send(self, step: Step, trouble: Trouble | None = None) -> None:
        """Encode what others own and post it; where something is not finite, send only a notice."""
        if self._finite is None:
            self._begin(step)
            self._finite = self._encode_all() if trouble is None else []
        self._trouble = trouble or self._judge(self._finite)
        self._finite = None
        self._posted_s = time.perf_counter()
        for peer in self.wire.peers:
            due = self._due(0, self.wire.rank, peer)
            if self._trouble is None:
                self._out[peer].seal(due)
            else:
                self._out[peer].seal(due, NONFINITE, self._trouble.rank, self._trouble.parameter)
            self.wire.scatter(self._tags[0], peer, self._out)

    def fail(self, step: Step) -> None:
        """Tell every peer, in place of `send`, that this rank cannot go on."""
        if self._finite is None:
            self._begin(step)
        self._finite = None
        for peer in self.wire.peers:
            self._out[peer].seal(self._due(0, self.wire.rank, peer), FAILED, self._place.origin)
            self.wire.scatter(self._tags[0], peer, self._out)

    def receive(self) -> Trouble | None:
        """Wait for every peer's shard; say who had trouble, on all ranks alike."""
        trouble = self._trouble
        for peer in self.wire.peers:
            trouble = _first(trouble, self._receive(0, peer, self._in))
        self._arrived(Posts.SHARDS, self._posted_s, self._in)
        if trouble is None:
            self._in.take()
            self._taken.mark()
        return trouble

    def add_up(self) -> None:
        """Add what peers sent to the own shard, then multiply by `scale`."""
        began = time.perf_counter()
        self.codec.add_up(self._received(), self.own, scale=self.scale)
        self._step.record(SpanKind.REDUCE, ADD, began, time.perf_counter(), self.own.nbytes, self.number)

    def sum_up(self, came: bool = True) -> None:
        """Sum what `came` from peers, encode and take what that decodes to; without it the own shard is a sum."""
        own, rank = self.own, self.wire.rank
        self.wire.open(self._tags[1], self._sums)
        before, after = self._scales()
        began = time.perf_counter()
        self.codec.reduce(
            self._received() if came else [],
            own,
            self._sum[0].payload,
            self._residuals[rank],
            before=before if came else 1.0,
            after=after,
        )
        self._summed_s = time.perf_counter()
        self._step.record(SpanKind.REDUCE, SUM, began, self._summed_s, own.nbytes, self.number)
        self._sum.bring()
        self._landings[1].mark()

    def post(self) -> None:
        """Send the encoded sum, when it has reached the memory that it is sent from."""
        self._landings[1].passed()
        self._sum[0].seal(self._due(1, self.wire.rank))
        self._has_posted = True
        self.wire.gather(self._tags[1], self._sum)

    def fail_sum(self) -> None:
        """Tell every peer, in place of the sum, that this rank cannot go on."""
        if not self._has_posted:
            self._sum[0].seal(self._due(1, self.wire.rank), FAILED, self._place.origin)
            self.wire.open(self._tags[1], self._sums)
            self.wire.gather(self._tags[1], self._sum)

    def collect(self) -> None:
        """Take the values that every owner's encoded sum decodes to, divided by the number of ranks."""
        at_once = not self.own.is_cuda  # a device gets all sums with one copy
        for owner in self.wire.peers:
            self._receive(1, owner, self._sums)
            if owner == self.wire.peers[-1]:
                self._arrived(Posts.SUMS, self._summed_s, self._sums)
            if at_once:
                self._decode(owner)
        if not at_once:
            self._sums.take()
            self._taken.mark()
            for owner in self.wire.peers:
                self._decode(owner)

    def _decode(self, owner: int) -> None:
        began = time.perf_counter()
        self.codec.decode(self._sums[owner].payload, self._shards[owner], scale=self._scales()[1])
        size = self._shards[owner].nbytes
        self._step.record(SpanKind.DECODE, DECODE, began, time.perf_counter(), size, self.number)

    def finish(self) -> None:
        """Wait until nothing of this exchange is under way, so that its buffers may be used again."""
        for tag in self._tags:
            self.wire.finish(tag)

    def forget(self) -> None:
        """Take the residual back to what it was before `send`: what was sent is not used, nor are these gradients."""
        if self._trouble is None:
            self._take_back()

    def _arrived(self, what: Posts, posted_s: float, box: Box) -> None:
        size = sum(len(box[peer].tensor) for peer in self.wire.peers)
        self._step.record(SpanKind.RECV, ON_THE_WIRE[what], posted_s, time.perf_counter(), size, self.number)

    def _begin(self, step: Step) -> None:
        self._taken.passed()  # what came last has left the memory that the next messages come to
        last = self._stamp
        self._stamp = Stamp(last.codec, last.layout, last.sequence + 1, step.stamp)
        self._step = step
        self._has_posted = False
        self.wire.open(self._tags[0], self._in)

    def _due(self, stage: int, sender: int, receiver: int = EVERYONE) -> Stamp:
        """Return what a message of this stage and step must say of itself."""
        stamp = self._stamp
        return Stamp(stamp.codec, stamp.layout, stamp.sequence, stamp.step, self._tags[stage], sender, receiver)

    def _encode_all(self) -> list[bool | torch.Tensor]:
        """Encode every peer's shard, unless the own one is not finite, and say of each whether it is."""
        finite = [finite_flag(self.own)]
        if finite[0] is False:
            return finite
        for peer in self.wire.peers:
            began = time.perf_counter()
            shard, payload = self._shards[peer], self._out[peer].payload
            finite.append(self.codec.encode(shard, payload, self._residuals[peer]))
            self._step.record(SpanKind.ENCODE, ENCODE, began, time.perf_counter(), shard.nbytes, self.number)
        self._out.bring()
        self._landings[0].ask(finite)
        return finite

    def _judge(self, finite: list[bool | torch.Tensor]) -> Trouble | None:
        """Wait for what was encoded; where something is not finite, leave the residuals as they were and say which.

        Nothing is posted before all are encoded: every peer hears of trouble in any shard. On a device the answers are
        brought with the bytes, in one wait.
        """
        answers = zip((self.wire.rank, *self.wire.peers), self._landings[0].answers(finite), strict=False)
        bad = next((shard for shard, is_so in answers if not is_so), None)
        if bad is None:
            return None
        if len(finite) > 1:
            self._take_back()
        return Trouble(self._place.origin, self._place.find(self._shards[bad]))

    def _take_back(self) -> None:
        for peer in self.wire.peers:
            residual = self._residuals[peer]
            if residual is not None:
                take_back(self.codec, self._shards[peer], self._out[peer].payload, residual)

    def _received(self) -> list[torch.Tensor]:
        return [self._in[peer].payload for peer in self.wire.peers]

    def _scales(self) -> tuple[float, float]:
        """Return what the sum is multiplied by before it is encoded, and what it decodes to: one makes it the mean.

        A residual is kept of the sum itself, so that it means the same whatever the number of ranks.
        """
        share = 1.0 / self.wire.size
        return (share, 1.0) if self._residuals[self.wire.rank] is None else (1.0, share)

    def _receive(self, stage: int, peer: int, box: Box) -> Trouble | None:
        """Wait for one message; what it says, if it is the one that was due."""
        try:
            self.wire.wait(self._tags[stage], peer)
        except RuntimeError as error:
            raise SynchronizationError(f"rank {peer} did not answer.", detail=str(error).split("\n")[0]) from error
        try:
            receiver = EVERYONE if stage else self.wire.rank
            flags, origin, parameter = box[peer].open(self._due(stage, peer, receiver))
        except OtherStepError as error:
            raise error.between(peer, self.wire.rank) from None
        except AgreementError as error:
            raise AgreementError(f"rank {peer} sent an unexpected message: {error.message}.") from None
        if flags & FAILED:
            raise SynchronizationError(f"rank {origin} reported a failure.", hint=f"See the error of rank {origin}.")
        return Trouble(origin, parameter) if flags & NONFINITE else None


def _first(one: Trouble | None, other: Trouble | None) -> Trouble | None:
    both = [trouble for trouble in (one, other) if trouble is not None]
    return min(both, key=lambda trouble: trouble.rank, default=None)
