"""One data-parallel training step, as every rank lives it: what hides behind what, on a wire and shared processors.

    work = Work(forward_s=0.12, backward_s=(0.08, 0.1, 0.07), elements=(7_000_000, ...), optimizer_s=0.03)
    int8 = ExchangeCosts("int8", scheme("int8"), encode_s=1e-9, decode_s=1e-9)
    step_s(work, [int8] * 3, 4, RankLink(125e6, 1e-4), SharedMachine(2.0, 1e-9, 2e-5))

What is priced are the stages of `program/stages.py` in the order of `program/laying.py`, which are those that run.
`sim/emulate/emulated_step.py` prices them for every rank on any wiring. Here all ranks are alike and have equal links,
so one of them stands for all: it gets its part of the processors, and its wire carries what it sends. That is small
enough for a training run to ask before it chooses how to synchronise.

Threads take at most one processor, and share what there is; bytes that TCP moves take their part of it. Rates are fair
between threads and messages in the way the flow engine is (`docs/method/flow.md`): all grow alike until something is
full.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from syncline.codec.names import scheme
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
    BucketStage,
    PieceProgram,
)

NS = 1e-9
"""The unit of work: shares of a processor are nanoseconds a second, as messages are bytes a second."""
MAX_PARTS = 3
"""Messages of one piece are modelled one by one up to this many; of more, several count as one."""
SOON_SHARE = 0.5
"""Of a backward pass on a card that processes take turns on: what is ready by then is encoded at once, and the rest
when the pass is over. Read off the spans of one step (1-bit, GPT of 350M, four ranks on an H200: 21 of 44 pieces)."""
MAX_ROUNDS = 24
"""Rounds of a ring are modelled one by one up to this many; beyond, neighbouring rounds count as one."""


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


@dataclass(frozen=True)
class LowRankCosts:
    """Low rank: two small averages of float32 one after the other; each element costs at three places.

    `ratio` is float32 sent over float32 of the bucket, of both averages together.
    """

    name: str
    ratio: float
    encode_s: float
    middle_s: float
    decode_s: float

    def pieces(self, elements: int, num_ranks: int, bucket: int) -> list[PricedPiece]:
        """Return the bucket as one piece; P and Q are about equally large, and their sums cost next to nothing."""
        factor = max(1, round(self.ratio * elements / 2))
        program = BucketProgram(elements, scheme(self.name), (num_ranks,), factors=(factor, factor))
        cost = {FIRST: self.encode_s, MIDDLE: self.middle_s, LAST: self.decode_s}
        price = [cost.get(stage.name, 0.0) * elements for stage in program.stages]
        return [PricedPiece(piece, bucket, price.__getitem__, None) for piece in program.pieces]


How = ExchangeCosts | RingCosts | LowRankCosts


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


@dataclass(frozen=True)
class RankLink:
    """What joins each rank to the others: bytes a second each way, and the time until a message's first byte."""

    rate_Bps: float
    latency_s: float


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


def step_s(work: Work, how: Sequence[How], num_ranks: int, wire: RankLink, machine: SharedMachine) -> float:
    """Return the seconds of one step in which bucket i travels as how[i] says."""
    draft = _Draft(num_ranks, wire, machine)
    lay_step(draft, work, how, num_ranks, take_turns=machine.take_turns)
    return _Course(draft).end_s()


@dataclass
class _Draft:
    """One rank's tasks under construction: threads and messages, and what each waits for."""

    num_ranks: int
    wire: RankLink
    machine: SharedMachine
    size: list[float] = field(default_factory=list)
    delay: list[float] = field(default_factory=list)
    on_wire: list[bool] = field(default_factory=list)
    waits: list[list[int]] = field(default_factory=list)
    ranks: Sequence[int] = (0,)
    most_rounds: int = MAX_ROUNDS

    def stand_in(self, rank: int) -> int:
        """Return who plays a rank: the one."""
        return 0

    def parts(self, messages: list[tuple[int, int]]) -> list[tuple[int, float, float]]:
        """Return the messages of one stage as a few: more ranks send more, smaller ones at the same time."""
        count = min(len(messages), MAX_PARTS)
        size = sum(size for _, size in messages)
        return [(part + 1, size / count, len(messages) / count) for part in range(count)]

    def work(
        self, rank: int, seconds: float, after: list[int], stage: BucketStage | None, piece: int, peer: int
    ) -> int:
        """Append work of one thread."""
        if self.machine.computes_apart and stage in (COMPUTED, OPTIMIZED):
            return self._add(0.0, max(seconds, 0.0), False, after)
        return self._add(max(seconds, 0.0) / NS, 0.0, False, after)

    def send(
        self, rank: int, peer: int, size_bytes: float, after: list[int], post_s: float | None, count: float, hops: float
    ) -> int:
        """Append messages: the processor's time to post them, then their bytes."""
        posted = self.work(rank, count * (self.machine.message_s if post_s is None else post_s), after, None, -1, -1)
        return self._add(max(size_bytes, 0.0), self.wire.latency_s * hops, True, [posted])

    def arrived(self, rank: int, name: str, piece: int, posted: int, size_bytes: float, tasks: list[int]) -> None:
        """Note nothing: only the end is asked for."""

    def _add(self, size: float, delay: float, on_wire: bool, after: list[int]) -> int:
        self.size.append(size)
        self.delay.append(delay)
        self.on_wire.append(on_wire)
        self.waits.append(after)
        return len(self.size) - 1


class _Course:
    """Threads all run at one rate and messages at another, so each kind needs one clock of work done and a heap."""

    def __init__(self, draft: _Draft) -> None:
        self._draft = draft
        self._cores = draft.machine.num_cores / draft.num_ranks / NS
        self._left = [len(after) for after in draft.waits]
        self._next: list[list[int]] = [[] for _ in draft.waits]
        for task, after in enumerate(draft.waits):
            for before in after:
                self._next[before].append(task)
        self._due: list[tuple[float, int]] = []
        self._heaps: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
        self._done = [0.0, 0.0]
        self._now = 0.0

    def end_s(self) -> float:
        for task, count in enumerate(self._left):
            if count == 0:
                self._release(task)
        while self._due or any(self._heaps):
            self._advance()
        return self._now

    def _release(self, task: int) -> None:
        heapq.heappush(self._due, (self._now + self._draft.delay[task], task))

    def _advance(self) -> None:
        threads, flows = self._rates()
        rates = (threads if self._heaps[0] else 0.0, flows if self._heaps[1] else 0.0)
        steps = [self._due[0][0] - self._now if self._due else math.inf]
        for heap, done, rate in zip(self._heaps, self._done, rates, strict=True):
            if heap:
                steps.append(max(0.0, heap[0][0] - done) / rate)
        step = max(0.0, min(steps))
        self._now += step
        for kind in (0, 1):
            self._done[kind] += rates[kind] * step
        ended = []
        for kind, heap in enumerate(self._heaps):
            room = 1e-9 * (1.0 + self._done[kind])
            while heap and heap[0][0] <= self._done[kind] + room:
                ended.append(heapq.heappop(heap)[1])
        while self._due and self._due[0][0] <= self._now * (1 + 1e-15):
            task = heapq.heappop(self._due)[1]
            if self._draft.size[task] <= 0.0:
                ended.append(task)
            else:
                kind = int(self._draft.on_wire[task])
                heapq.heappush(self._heaps[kind], (self._done[kind] + self._draft.size[task], task))
        for task in ended:
            for after in self._next[task]:
                self._left[after] -= 1
                if self._left[after] == 0:
                    self._release(after)

    def _rates(self) -> tuple[float, float]:
        """Return nanoseconds a second for each thread and bytes a second for each message: fair, and nothing idle."""
        threads, flows = (len(heap) for heap in self._heaps)
        byte = self._draft.machine.byte_s / NS
        wire = self._draft.wire.rate_Bps / flows if flows else math.inf
        alone = 1 / NS
        load = threads + flows * byte
        shared = self._cores / load if load else math.inf
        if shared <= min(wire, alone):
            return shared, (shared if byte > 0 else wire)
        if wire <= alone:
            left = self._cores - wire * flows * byte
            return (min(alone, left / threads) if threads else alone), wire
        if not flows or byte == 0:
            return alone, wire
        return alone, min(wire, (self._cores - threads * alone) / (flows * byte))
