"""The exchange of `exchange.py` as a lane of the native wire: posted, and waited for.

Encoding, sending, summing and decoding happen on the wire's threads, in the order of what arrives: a lane is the usual
stages of a level, and a program with other ones is carried out in Python. The bits are those of the exchange in Python,
which is its twin and does what lanes do not: CUDA tensors, levels inside the outermost.
"""

from __future__ import annotations

import torch

from syncline.codec.dense import Dense
from syncline.errors import AgreementError, SynchronizationError
from syncline.program.pieces import shard_bounds
from syncline.program.stages import ADD, DECODE, ENCODE, ON_THE_WIRE, SUM, Posts
from syncline.runtime.sync.exchange import ExchangePlace, Trouble
from syncline.runtime.sync.step import BACK, FRONT, Step
from syncline.runtime.wire.message import OtherStepError
from syncline.runtime.wire.native_wire import CLOSED, DISAGREED, FAILED, FINE, TROUBLED, LaneStatus, NativeWire
from syncline.runtime.wire.wire import Wire
from syncline.timeline import SpanKind

_ENCODE, _SHARDS, _REDUCE, _SUMS, _DECODE = range(5)
_SPANS = {
    _ENCODE: (FRONT, SpanKind.ENCODE, ENCODE),
    _REDUCE: (BACK, SpanKind.REDUCE, SUM),
    _DECODE: (BACK, SpanKind.DECODE, DECODE),
}


LANES = (((ENCODE, ""), (SUM, ENCODE), (DECODE, SUM)), ((ENCODE, ""), (ADD, ENCODE)))
"""What the wire's threads walk by themselves: the stages of a level, and which of them each awaits."""


def runs_natively(stages: tuple[tuple[str, str], ...], wire: Wire, device: torch.device) -> bool:
    """Whether these stages of a level with what they await are a lane of this wire."""
    return stages in LANES and isinstance(wire, NativeWire) and wire.size > 1 and device.type == "cpu"


class NativeExchange:
    """One piece as a lane; `scatter_only` leaves the sum of the own shard with its owner."""

    number = -1
    scale = 1.0

    def __init__(
        self,
        values: torch.Tensor,
        residual: torch.Tensor | None,
        scheme: Dense,
        wire: NativeWire,
        place: ExchangePlace,
        bounds: list[tuple[int, int]] | None = None,
        *,
        scatter_only: bool = False,
    ) -> None:
        self.wire = wire
        self._values, self._residual = values, residual
        self._bounds = bounds or shard_bounds(values.numel(), wire.size)
        self._lane = wire.core.lane(
            place.tag,
            [0, *(high for _, high in self._bounds)],
            [scheme.wire_bytes(high - low) for low, high in self._bounds],
            scheme.family,
            scheme.lane,
            scatter_only=scatter_only,
            priority=place.priority,
            codec=place.codec,
            layout=place.layout,
            origin=place.origin,
            ends=list(place.ends),
            offset=place.offset,
        )
        self.sent_bytes = int(self._lane.sent_bytes)
        self._sequence = 0
        self._encoded = False
        self._is_under_way = False
        self._step: Step

    def bind(self, values: torch.Tensor) -> None:
        """Work on this memory from now on."""
        self._values = values

    @property
    def own(self) -> torch.Tensor:
        """The shard this rank sums."""
        low, high = self._bounds[self.wire.rank]
        return self._values[low:high]

    def prepare(self, step: Step) -> None:
        """Do nothing: the wire's own threads encode."""

    def send(self, step: Step, trouble: Trouble | None = None) -> None:
        """Post the piece, or say what trouble there is; nothing is waited for."""
        self._post(step, trouble=None if trouble is None else (trouble.rank, trouble.parameter))

    def fail(self, step: Step) -> None:
        """Tell every peer that this rank cannot go on."""
        self._post(step, fail=True)

    def receive(self) -> Trouble | None:
        """Wait until the own shard is summed; or say who had trouble, on all ranks alike."""
        return self._check(self._lane.wait_reduced(self.wire.timeout_s))

    def add_up(self) -> None:
        """Do nothing: the wire has summed."""

    def sum_up(self, came: bool = True) -> None:
        """Do nothing: the wire has summed and encoded."""

    def post(self) -> None:
        """Do nothing: the wire has posted the sum."""

    def fail_sum(self) -> None:
        """Do nothing: the wire tells peers itself."""

    def collect(self) -> None:
        """Wait until every sum has been taken."""
        self.finish()

    def finish(self) -> None:
        """Wait until nothing of this exchange is under way, and note once what the wire's threads did."""
        if self._is_under_way:
            self._check(self._lane.wait_done(self.wire.timeout_s))
            self._is_under_way = False
            self._note()

    def forget(self) -> None:
        """Take the residual back to what it was before `send`."""
        if self._residual is not None and self._encoded:
            self.finish()
            self._lane.take_back(self._values.numpy(), self._residual.numpy())

    def _post(self, step: Step, *, fail: bool = False, trouble: tuple[int, int] | None = None) -> None:
        self._step = step
        self._is_under_way = True
        self._sequence += 1
        self._encoded = not fail and trouble is None
        residual = None if self._residual is None else self._residual.numpy()
        sequence = self._sequence & 0xFFFFFFFF
        self._lane.post(self._values.numpy(), residual, sequence, step.stamp, self.scale, fail, trouble)

    def _check(self, outcome: LaneStatus) -> Trouble | None:
        status, rank, parameter, text = outcome
        if status == FINE:
            return None
        if status == TROUBLED:
            return Trouble(rank, parameter)
        if status == FAILED:
            raise SynchronizationError(f"rank {rank} reported a failure.", hint=f"See the error of rank {rank}.")
        if status == DISAGREED and parameter != -1:
            raise OtherStepError(parameter & 0xFFFFFFFF, self._step.stamp).between(rank, self.wire.rank)
        if status == DISAGREED:
            raise AgreementError(f"rank {rank} sent an unexpected message: {text}.")
        if status == CLOSED:
            raise SynchronizationError("the exchange was aborted.", detail=text)
        detail = text or f"no message for {self.wire.timeout_s:g} s"
        raise SynchronizationError(f"rank {rank} did not answer.", detail=detail)

    def _note(self) -> None:
        """Put what the wire's threads did into the step."""
        came: dict[int, list[tuple[float, float, int]]] = {_SHARDS: [], _SUMS: []}
        for work, _, began_s, ended_s, size in self._lane.spans():
            if work in came:
                came[work].append((began_s, ended_s, size))
                continue
            stream, kind, name = _SPANS[work]
            self._step.spans.append((stream, began_s, ended_s, kind, name, size, self.number))
        for what, rows in ((Posts.SHARDS, came[_SHARDS]), (Posts.SUMS, came[_SUMS])):
            if rows:
                began_s, ended_s, size = (
                    min(row[0] for row in rows),
                    max(row[1] for row in rows),
                    sum(row[2] for row in rows),
                )
                self._step.spans.append((BACK, began_s, ended_s, SpanKind.RECV, ON_THE_WIRE[what], size, self.number))
