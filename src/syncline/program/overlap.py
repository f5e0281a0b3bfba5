"""One data-parallel training step, as every rank lives it: what hides behind what, on a wire and shared processors.

    work = Work(forward_s=0.12, backward_s=(0.08, 0.1, 0.07), elements=(7_000_000, ...), optimizer_s=0.03)
    step_s(work, [Exchanged("int8", wire_bytes, 1e-9, 1e-9)] * 3, 4, Wire(125e6, 1e-4), Machine(2.0, 1e-9, 2e-5))

The nouns are those of `sim/emulate/emulated_step.py`, which plays every rank on any wiring. Here all ranks are alike
and have equal links, so one of them stands for all: it gets its part of the processors, and its wire carries what it
sends. That is small enough for a training run to ask before it chooses how to synchronise; a test keeps the two models
together.

Threads take at most one processor, and share what there is; bytes that TCP moves take their part of it. Rates are fair
between threads and messages in the way the flow engine is (`docs/method/flow.md`): all grow alike until something is
full.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from syncline.program.pieces import DEPTH, PIECE_BYTES, piece_sizes, shard_sizes

RING_LANES = 2
"""Collectives that gloo runs at once."""
NS = 1e-9
"""The unit of work: shares of a processor are nanoseconds a second, as messages are bytes a second."""
MAX_PARTS = 3
"""Messages of one piece are told apart up to so many: more ranks send more, smaller ones at the same time."""
MAX_ROUNDS = 24
"""Rounds of a ring are told apart up to so many; beyond, neighbouring ones are taken together."""


@dataclass(frozen=True)
class Work:
    """A rank's own work in one step, in seconds of one processor: before the gradients, for each bucket, after them."""

    forward_s: float
    backward_s: tuple[float, ...]
    elements: tuple[int, ...]
    optimizer_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.forward_s + sum(self.backward_s) + self.optimizer_s

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Work:
        """Return the work whose fields JSON holds."""
        backward, elements = tuple(map(float, saved["backward_s"])), tuple(map(int, saved["elements"]))
        return cls(float(saved["forward_s"]), backward, elements, float(saved["optimizer_s"]))


@dataclass(frozen=True)
class Stages:
    """Seconds of one processor for one piece: to encode it for the others, to sum the own shard, to take the sums."""

    send_s: float
    reduce_s: float
    collect_s: float


@dataclass(frozen=True)
class Exchanged:
    """How gradients travel: bytes of a shard, and seconds of one processor to encode and to decode one element.

    `measured` says what pieces of so many elements cost, where somebody knows better than by element; `message_s` what
    a message costs, where it is not what one of the ring costs.
    """

    name: str
    wire_bytes: Callable[[int], int]
    encode_s: float
    decode_s: float
    piece_bytes: int = PIECE_BYTES
    measured: Mapping[int, Stages] = field(default_factory=dict)
    message_s: float | None = None

    def stages(self, elements: int, num_ranks: int) -> Stages:
        """Return what a piece costs each rank."""
        known = self.measured.get(elements)
        if known is not None:
            return known
        own = shard_sizes(elements, num_ranks)[0]
        summed = own * (self.decode_s * (num_ranks - 1) + self.encode_s)
        return Stages(self.encode_s * (elements - own), summed, self.decode_s * elements)


@dataclass(frozen=True)
class Ring:
    """Plain DDP: every bucket by the backend's own ring, `add_s` seconds of one processor for each element added."""

    add_s: float
    name: str = "ddp"


@dataclass(frozen=True)
class Factored:
    """Low rank: two small averages of float32 one after the other; each element costs at three places.

    `ratio` is float32 sent over float32 of the bucket, of both averages together.
    """

    name: str
    ratio: float
    encode_s: float
    middle_s: float
    decode_s: float


How = Exchanged | Ring | Factored


@dataclass(frozen=True)
class Machine:
    """What all ranks share: cores, the processor's time for a byte through TCP (both ends), and for one message."""

    num_cores: float
    byte_s: float
    message_s: float


@dataclass(frozen=True)
class Wire:
    """What joins each rank to the others: bytes a second each way, and the time until a message's first byte."""

    rate_Bps: float
    latency_s: float


def step_s(work: Work, how: Sequence[How], num_ranks: int, wire: Wire, machine: Machine) -> float:
    """Return the seconds of one step in which bucket i travels as how[i] says."""
    draft = _Draft(num_ranks, wire, machine)
    last = draft.work(work.forward_s, [])
    for bucket, seconds in enumerate(work.backward_s):
        last = draft.work(seconds, [last])
        draft.bucket(how[bucket], work.elements[bucket], last)
    draft.finish()
    draft.work(work.optimizer_s, [last, *draft.ends()])
    return draft.run()


@dataclass
class _Draft:
    """One rank's tasks under construction: threads and messages, and what each waits for."""

    num_ranks: int
    wire: Wire
    machine: Machine
    size: list[float] = field(default_factory=list)
    delay: list[float] = field(default_factory=list)
    on_wire: list[bool] = field(default_factory=list)
    waits: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._front: list[int] = []
        self._back: list[int] = []
        self._lanes: list[list[int]] = [[] for _ in range(RING_LANES)]
        self._num_rings = 0
        self._collects: list[Callable[[], None]] = []

    def _add(self, size: float, delay: float, on_wire: bool, after: list[int]) -> int:
        self.size.append(size)
        self.delay.append(delay)
        self.on_wire.append(on_wire)
        self.waits.append(after)
        return len(self.size) - 1

    def work(self, seconds: float, after: list[int]) -> int:
        """Append work of one thread."""
        return self._add(max(seconds, 0.0) / NS, 0.0, False, after)

    def send(self, size_bytes: float, after: list[int], posting_s: float) -> int:
        """Append messages: the processor's time to post them, then their bytes."""
        posted = self.work(posting_s, after)
        return self._add(max(size_bytes, 0.0), self.wire.latency_s, True, [posted])

    def bucket(self, how: How, elements: int, ready: int) -> None:
        """Append how one bucket travels from the moment its gradients are there."""
        if self.num_ranks == 1:
            return
        if isinstance(how, Ring):
            self._ring(how, elements, ready)
        elif isinstance(how, Factored):
            self._factored(how, elements, ready)
        else:
            for size in piece_sizes(elements, how.piece_bytes):
                self._piece(how, size, ready)

    def finish(self) -> None:
        """Await what is still outstanding."""
        while self._collects:
            self._collects.pop(0)()

    def ends(self) -> list[int]:
        """Return the tasks after which every bucket is averaged."""
        return [*self._back, *(task for lane in self._lanes for task in lane)]

    def _piece(self, how: Exchanged, elements: int, ready: int) -> None:
        cost = how.stages(elements, self.num_ranks)
        sent = how.wire_bytes(shard_sizes(elements, self.num_ranks)[0]) * (self.num_ranks - 1)
        message_s = self.machine.message_s if how.message_s is None else how.message_s
        arrived = self._scatter(cost.send_s, sent, ready, message_s)
        summed = self.work(cost.reduce_s, [*self._back, *arrived])
        self._back = [summed]
        sums = self._spread(sent, summed, message_s)
        self._later(lambda: self._take(cost.collect_s, sums))

    def _factored(self, how: Factored, elements: int, ready: int) -> None:
        # P and Q are about equally large; a sum costs little beside the products with the gradient.
        size = how.ratio * 4 * elements / 2 * (self.num_ranks - 1) / self.num_ranks
        message_s = self.machine.message_s
        arrived = self._scatter(how.encode_s * elements, size, ready, message_s)
        summed = self.work(0.0, [*self._back, *arrived])
        self._back = [summed]
        first = self._spread(size, summed, message_s)

        def later() -> None:
            self._take(how.middle_s * elements, first)
            arrived = self._spread(size, self._back[0], message_s)
            self._take(0.0, arrived)
            self._take(how.decode_s * elements, self._spread(size, self._back[0], message_s))

        self._later(later)

    def _scatter(self, seconds: float, size_bytes: float, ready: int, message_s: float) -> list[int]:
        """Append the front thread: encode for every peer, then post."""
        coded = self.work(seconds, [*self._front, ready])
        self._front = [coded]
        return [*self._spread(size_bytes, coded, message_s), coded]

    def _spread(self, size_bytes: float, after: int, message_s: float) -> list[int]:
        parts = min(self.num_ranks - 1, MAX_PARTS)
        posting_s = message_s * (self.num_ranks - 1) / parts
        return [self.send(size_bytes / parts, [after], posting_s) for _ in range(parts)]

    def _take(self, seconds: float, arrived: list[int]) -> None:
        self._back = [self.work(seconds, [*self._back, *arrived])]

    def _later(self, collect: Callable[[], None]) -> None:
        self._collects.append(collect)
        if len(self._collects) > DEPTH:
            self._collects.pop(0)()

    def _ring(self, how: Ring, elements: int, ready: int) -> None:
        lane = self._num_rings % RING_LANES
        self._num_rings += 1
        now = [*self._lanes[lane], ready]
        each = 2 * (self.num_ranks - 1)
        rounds = min(each, MAX_ROUNDS)
        chunk = elements / self.num_ranks * each / rounds
        for number in range(rounds):
            flow = self.send(4 * chunk, now, self.machine.message_s * each / rounds)
            self.delay[flow] *= each / rounds
            now = [self.work(how.add_s * chunk if number < rounds / 2 else 0.0, [flow])]
        self._lanes[lane] = now

    def run(self) -> float:
        """Return when the last task ends."""
        return _Course(self).end_s()


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
