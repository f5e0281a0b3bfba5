"""One training step as it was measured: spans as they happen, then a report and a Timeline."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import syncline
from syncline.describe.plain import JsonObject
from syncline.describe.units import show_rate, show_size, show_time
from syncline.timeline import Source, SourceKind, SpanKind, Timeline, TimelineBuilder
from syncline.timeline.collective import CollectiveName, codec_of

IGNORES = ("headers of the network", "work of other processes on this host")
OPTIMIZER = "optimizer"
TRAINING, FRONT, BACK = 0, 1, 2
"""Streams of a timeline: the training thread and the two communication threads."""

Span = tuple[int, float, float, SpanKind, str, int, int]
"""Stream, begin, end, kind, name, bytes, and the number of the piece among those of the step (-1: none)."""


@dataclass(frozen=True)
class StepReport:
    """A step in numbers.

    wire_bytes   sent by this rank at the outermost level, which is the only one unless there are several
    inside_bytes sent by this rank at the levels inside
    dense_bytes  what a ring of float32 over all ranks would have sent
    compute_s    the step less what was exposed
    exposed_s    waiting for communication after the last gradient was there
    rate_Bps     what the link carries: the best that was seen, which is less where a peer was waited for
    bound_s      the larger of compute and wire bytes over the rate: no step can be shorter
    wire         what is not well on the native wire, rail by rail; "" where all is
    """

    step: int
    rank: int
    codec: str
    step_s: float
    compute_s: float
    exposed_s: float
    encode_s: float
    wire_bytes: int
    inside_bytes: int
    dense_bytes: int
    rate_Bps: float
    skipped: bool
    wire: str = ""

    @property
    def ratio(self) -> float:
        """How many times fewer bytes than float32."""
        return self.dense_bytes / self.wire_bytes if self.wire_bytes else 1.0

    @property
    def bound_s(self) -> float:
        """No step with this computation, these bytes and this link is shorter."""
        return max(self.compute_s, self.wire_bytes / self.rate_Bps if self.rate_Bps > 0 else 0.0)

    @property
    def bound_share(self) -> float:
        """The bound over the step: 1 is perfect."""
        return self.bound_s / self.step_s if self.step_s > 0 else 1.0

    def line(self) -> str:
        """Return the step on one line."""
        skipped = ", SKIPPED: not finite" if self.skipped else ""
        wire = f"; {self.wire}" if self.wire else ""
        return (
            f"step {self.step}: {show_time(self.step_s)} = compute {show_time(self.compute_s)} + exposed "
            f"{show_time(self.exposed_s)}; sent {show_size(self.wire_bytes)} ({self.codec}, {self.ratio:.1f}x fewer) "
            f"at {show_rate(self.rate_Bps)}; {self.bound_share:.0%} of the bound{skipped}{wire}"
        )

    def to_json(self) -> JsonObject:
        """Return the report as JSON writes it."""
        return {**asdict(self), "ratio": self.ratio, "bound_s": self.bound_s, "bound_share": self.bound_share}


class Step:
    """A step while it happens: threads add spans, the training thread waits for its end."""

    def __init__(self, number: int, rank: int, codec: str, began_s: float) -> None:
        self.number = number
        self.rank = rank
        self.codec = codec
        self.began_s = began_s
        self.turn = 0
        """Optimizer steps before this backward: where ranks differ in it, one of them has called backward once more."""
        self.computed_s = 0.0
        self.synchronised_s = 0.0
        self.ended_s = 0.0
        self.wire_bytes = 0
        self.inside_bytes = 0
        self.dense_bytes = 0
        self.skipped = False
        self.ready: list[tuple[int, float, int]] = []
        self.averaged_s: list[float] = []
        """When the k-th bucket that went in had come out; buckets keep their order."""
        self.updates: list[tuple[float, float]] = []
        """When an optimizer was at work before the step's own: on buckets that were averaged while others were not."""
        self.spans: list[Span] = []
        self.num_changes = 0
        self._num_pieces = 0
        self._open = 0
        self._num_waits = 0
        self._sealed = False
        self._idle = threading.Condition()

    @property
    def stamp(self) -> int:
        """What messages carry of the step, in 32 bits: its number, and how many optimizer steps went before."""
        return (self.turn & 0xFFF) << 20 | self.number & 0xFFFFF

    def record(
        self, kind: SpanKind, name: str, began_s: float, ended_s: float, size_bytes: int, piece: int = -1
    ) -> None:
        """Add a span of the calling communication thread."""
        stream = FRONT if threading.current_thread().name.endswith("front") else BACK
        self.spans.append((stream, began_s, ended_s, kind, name, size_bytes, piece))

    def next_piece(self) -> int:
        """Return the number of a piece that is about to be sent."""
        self._num_pieces += 1
        return self._num_pieces - 1

    def bucket_in(self, index: int, size_bytes: int, last: bool) -> None:
        """Note that a bucket's gradients are there."""
        now = time.perf_counter()
        self.ready.append((index, now, size_bytes))
        with self._idle:
            self.num_changes += 1
            self._open += 1
            self._sealed = self._sealed or last
        self.computed_s = now

    def bucket_out(self) -> None:
        """Note that a bucket is averaged, or has failed."""
        with self._idle:
            self.num_changes += 1
            self._open -= 1
            self.synchronised_s = time.perf_counter()
            self.averaged_s.append(self.synchronised_s)
            self._idle.notify_all()

    @property
    def is_waiting(self) -> bool:
        """Whether buckets are under way, or the training thread waits for a collective of the backend's own."""
        return self._open > 0 or self._num_waits > 0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Note that the training thread waits for others, and that it went on."""
        self._num_waits += 1
        try:
            yield
        finally:
            self._num_waits -= 1
            self.num_changes += 1

    def computed(self) -> None:
        """Note that the backward pass is over."""
        self.computed_s = time.perf_counter()

    def wait(self, count: int | None = None) -> None:
        """Wait until so many buckets have come out, or every one that went in."""
        with self._idle:
            self._idle.wait_for(lambda: self._open == 0 or (count is not None and len(self.averaged_s) >= count))

    @property
    def exposed_s(self) -> float:
        """How long the training thread had nothing to do but to wait for the exchange."""
        until = self.synchronised_s
        busy = sum(max(0.0, min(end, until) - began) for began, end in self.updates)
        return max(0.0, until - self.computed_s - busy)

    def report(self, rate_Bps: float) -> StepReport:
        """Return the step in numbers; the step ends where the next begins, or now."""
        ended = self.ended_s or max(time.perf_counter(), self.synchronised_s)
        exposed = self.exposed_s
        codec = [e - b for s, b, e, kind, *_ in self.spans if kind is not SpanKind.RECV and s != TRAINING]
        return StepReport(
            step=self.number,
            rank=self.rank,
            codec=self.codec,
            step_s=ended - self.began_s,
            compute_s=ended - self.began_s - exposed,
            exposed_s=exposed,
            encode_s=sum(codec),
            wire_bytes=self.wire_bytes,
            inside_bytes=self.inside_bytes,
            dense_bytes=self.dense_bytes,
            rate_Bps=rate_Bps,
            skipped=self.skipped,
        )

    def received_Bps(self) -> float:
        """Return what came in over the time in which anything was due: at most the rate of the link."""
        rows = sorted((b, e, size) for _, b, e, kind, _, size, _ in self.spans if kind is SpanKind.RECV)
        busy_s, until_s = 0.0, 0.0
        for began, ended, _ in rows:
            busy_s += max(0.0, ended - max(began, until_s))
            until_s = max(until_s, ended)
        return sum(row[2] for row in rows) / busy_s if busy_s > 0 else 0.0

    def agent_spans(self, peers: Sequence[int]) -> list[dict[str, object]]:
        """Return the step as an agent takes it, on the monotonic clock: computing, buckets, equal parts to peers."""
        shift = time.monotonic() - time.perf_counter()
        own = {"rank": self.rank, "step": self.number}

        def span(kind: SpanKind, name: str, began_s: float, ended_s: float, **more: int) -> dict[str, object]:
            times = {"start_s": began_s + shift, "end_s": max(began_s, ended_s) + shift}
            return {**own, "kind": kind.name.lower(), "name": name, **times, **more}

        spans = [span(SpanKind.COMPUTE, "forward and backward", self.began_s, self.computed_s)]
        spans += [span(SpanKind.COMPUTE, OPTIMIZER, *update) for update in self._optimizer(self.ended_s)]
        for (_, ready_s, size), averaged_s in zip(self.ready, self.averaged_s, strict=False):
            name = str(CollectiveName("all-reduce", "data", size, codec_of(self.codec)))
            spans.append(span(SpanKind.COLLECTIVE, name, ready_s, averaged_s, size_bytes=size))
        for peer in peers if self.ready else ():
            ends, size = (self.ready[0][1], self.synchronised_s), self.wire_bytes // len(peers)
            spans.append(span(SpanKind.SEND, "exchange", *ends, size_bytes=size, peer=peer))
        return spans

    def timeline(self, rate_Bps: float) -> Timeline:
        """Return the step as a Timeline of this rank."""
        source = Source(SourceKind.RUNTIME, "syncline runtime", syncline.__version__, IGNORES)
        builder = TimelineBuilder(source, {"report": self.report(rate_Bps).to_json()})
        ended = self.ended_s or max(self.synchronised_s, self.computed_s)
        own = [(self.began_s, self.computed_s, SpanKind.COMPUTE, "forward and backward")]
        free_s = self.computed_s
        for began, end in self._optimizer(ended):
            own += [(free_s, began, SpanKind.WAIT, "exposed"), (began, end, SpanKind.COMPUTE, OPTIMIZER)]
            free_s = end
        own.append((free_s, self.synchronised_s, SpanKind.WAIT, "exposed"))
        for began, end, kind, name in own:
            if end > began:
                builder.add_span(self.rank, began, end, kind, name, step=self.number)
        for stream, began, end, kind, name, size, piece in list(self.spans):
            builder.add_span(
                self.rank, began, end, kind, name, stream=stream, step=self.number, round=piece, size_bytes=size
            )
        return builder.build()

    def _optimizer(self, ended_s: float) -> list[tuple[float, float]]:
        """Return when the optimizer was at work: on buckets as they came, and after the last of them."""
        last_s = max([self.synchronised_s, *(end for _, end in self.updates)])
        return [*self.updates, *([(last_s, ended_s)] if ended_s > last_s else [])]
