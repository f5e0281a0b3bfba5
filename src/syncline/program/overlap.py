"""One data-parallel training step, as every rank lives it: what hides behind what, on a wire and shared processors.

    work = Work(forward_s=0.12, backward_s=(0.08, 0.1, 0.07), elements=(7_000_000, ...), optimizer_s=0.03)
    int8 = ExchangeCosts("int8", scheme("int8"), encode_s=1e-9, decode_s=1e-9)

What is priced are the stages of `program/stages.py` in the order of `program/laying.py`, which are those that run:
`sim/emulate/emulated_step.py` prices them for every rank on any wiring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from syncline.codec.scheme import Scheme
from syncline.program.laying import COMPUTED, OPTIMIZED, Ledger, LedgerWriter, PricedPiece, RingLayer
from syncline.program.pieces import DEPTH, PIECE_BYTES, shard_sizes
from syncline.program.stages import (
    ADD,
    DECODE,
    ENCODE,
    FIRST,
    LAST,
    MIDDLE,
    SUM,
    BucketProgram,
    PieceProgram,
)

NS = 1e-9
"""The unit of work: shares of a processor are nanoseconds a second, as messages are bytes a second."""
SOON_SHARE = 0.5
"""Of a backward pass on a card that processes take turns on: what is ready by then is encoded at once, and the rest
when the pass is over. Read off the spans of one step (1-bit, GPT of 350M, four ranks on an H200: 21 of 44 pieces)."""


@dataclass(frozen=True)
class Work:
    """A rank's own work in one step, in seconds of one processor: before the gradients, for each bucket, after them.

    An optimizer that goes `by_bucket` updates a bucket's parameters when that one is averaged, not all after the last.
    """

    forward_s: float
    backward_s: tuple[float, ...]
    elements: tuple[int, ...]
    optimizer_s: float
    by_bucket: bool = False

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.forward_s + sum(self.backward_s) + self.optimizer_s

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Work:
        """Return the work whose fields JSON holds."""
        backward, elements = tuple(map(float, saved["backward_s"])), tuple(map(int, saved["elements"]))
        by_bucket = bool(saved.get("by_bucket", False))
        return cls(float(saved["forward_s"]), backward, elements, float(saved["optimizer_s"]), by_bucket)

    @property
    def updates_s(self) -> list[float]:
        """The optimizer's seconds for each bucket: in proportion to its elements."""
        total = sum(self.elements) or 1
        return [self.optimizer_s * elements / total for elements in self.elements]


@dataclass(frozen=True)
class StageCosts:
    """Seconds of one processor for one piece: to encode it for the others, to sum the own shard, to take the sums."""

    send_s: float
    reduce_s: float
    collect_s: float


@dataclass(frozen=True)
class ExchangeCosts:
    """How gradients travel: the codec, and seconds of one processor to encode and to decode one element.

    `measured` says what pieces of so many elements cost, where somebody knows better than by element; `message_s` what
    a message costs, where it is not what one of the ring costs. `levels` are the ranks inside each level, innermost
    first; what travels inside is float32, and `dense_s` is what copying or adding one element of it costs. Where
    gradients are `on_device`, a thread of its own collects sums.
    """

    name: str
    codec: Scheme
    encode_s: float
    decode_s: float
    piece_bytes: int = PIECE_BYTES
    measured: Mapping[int, StageCosts] = field(default_factory=dict)
    message_s: float | None = None
    levels: tuple[int, ...] = ()
    dense_s: float = 0.0
    on_device: bool = False

    def pieces(self, elements: int, num_ranks: int, bucket: int) -> list[PricedPiece]:
        """Return the pieces of a bucket with their prices."""
        shape = (*self.levels, num_ranks // math.prod(self.levels))
        program = BucketProgram(elements, self.codec, shape, self.piece_bytes)
        return [PricedPiece(piece, bucket, self._prices(piece), self.message_s) for piece in program.pieces]

    def _prices(self, program: PieceProgram) -> Callable[[int], float]:
        """Return what each stage of a piece costs the first rank, which has the largest shards."""

        def price(index: int) -> float:
            stage, bounds = program.stages[index], program.bounds(index, 0)
            if program.factors is not None:
                cost = self.stages(program.elements, program.shape[-1])
                return {FIRST: cost.send_s, MIDDLE: cost.reduce_s, LAST: cost.collect_s}.get(stage.name, 0.0)
            whole, own, came = bounds[-1][1], bounds[0][1], program.num_peers(index) * bounds[0][1]
            if stage.level < len(program.shape) - 1:
                return self.dense_s * {ENCODE: whole - own, ADD: came, SUM: own, DECODE: whole - own}[stage.name]
            cost = self.stages(whole, program.shape[-1])
            if stage.name in (ENCODE, DECODE):
                return cost.send_s if stage.name == ENCODE else cost.collect_s
            # A sum is decoding what came and encoding the own shard; a program may have the two as stages of their own.
            decoded, encoded = self.decode_s * came, self.encode_s * own
            share = decoded / (decoded + encoded) if decoded + encoded else 0.5
            if stage.name == SUM and stage.awaits >= 0:
                return cost.reduce_s
            return cost.reduce_s * (share if stage.name == ADD else 1.0 - share)

        return price

    def stages(self, elements: int, num_ranks: int) -> StageCosts:
        """Return what a piece costs each rank."""
        known = self.measured.get(elements)
        if known is not None:
            return known
        own = shard_sizes(elements, num_ranks)[0]
        summed = own * (self.decode_s * (num_ranks - 1) + self.encode_s)
        return StageCosts(self.encode_s * (elements - own), summed, self.decode_s * elements)


@dataclass(frozen=True)
class RingCosts:
    """Plain DDP: every bucket by the backend's own ring, `add_s` seconds of one processor for each element added."""

    add_s: float
    name: str = "ddp"


How = ExchangeCosts | RingCosts


@dataclass(frozen=True)
class SharedMachine:
    """What all ranks share: cores, the processor's time for a byte through TCP (both ends), and for one message.

    Where a GPU `computes_apart`, forward, backward and optimizer take no core. Stages are then launched from Python,
    one thread of a rank at a time: its cores are one. Where ranks that share a card `take_turns` on it (several
    processes without MPS), what is ready late in a backward pass is encoded after it.
    """

    num_cores: float
    byte_s: float
    message_s: float
    computes_apart: bool = False
    take_turns: bool = False


def lay_step(ledger: Ledger, work: Work, how: Sequence[How], num_ranks: int, *, take_turns: bool = False) -> None:
    """Lay one step down in which bucket i travels as how[i] says: forward, backward, exchanges, optimizer."""
    last = {rank: ledger.work(rank, work.forward_s, [], COMPUTED, -1, -1) for rank in ledger.ranks}
    on_device = any(isinstance(way, ExchangeCosts) and way.on_device for way in how)
    exchanges, ring = LedgerWriter(ledger, DEPTH, on_device=on_device), None
    readies = []
    for seconds in work.backward_s:
        last = {rank: ledger.work(rank, seconds, [last[rank]], COMPUTED, -1, -1) for rank in ledger.ranks}
        readies.append(last)
    if take_turns and on_device:
        soon_s = SOON_SHARE * sum(work.backward_s)
        readies = [
            ready if passed_s <= soon_s else last
            for ready, passed_s in zip(readies, accumulate(work.backward_s), strict=True)
        ]
    laid: list[list[PricedPiece]] = []
    for bucket, ready in enumerate(readies if num_ranks > 1 else ()):
        way, elements = how[bucket], work.elements[bucket]
        if isinstance(way, RingCosts):
            ring = ring or RingLayer(ledger, num_ranks, way.add_s)
            ring.add(elements, ready.__getitem__)
            continue
        laid.append(way.pieces(elements, num_ranks, bucket))
        for piece in laid[-1]:
            exchanges.add(piece, ready.__getitem__)
    ends = exchanges.finish()
    if work.by_bucket and ring is None and laid:
        for rank, before in last.items():
            for pieces, seconds in zip(laid, work.updates_s, strict=True):
                came = [task for piece in pieces for task in piece.last[rank]]
                before = ledger.work(rank, seconds, [before, *came], OPTIMIZED, -1, -1)
        return
    rings = {rank: [] for rank in ledger.ranks} if ring is None else ring.finish()
    for rank in ledger.ranks:
        ledger.work(rank, work.optimizer_s, [last[rank], *ends[rank], *rings[rank]], OPTIMIZED, -1, -1)
