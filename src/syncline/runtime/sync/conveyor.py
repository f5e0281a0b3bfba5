"""The communication threads of a process: buckets go in, in order, and come out averaged, in order.

The front thread encodes a piece and posts it; the back thread waits for what peers sent, sums, posts the sum, and waits
for the sums of others. So one piece is encoded while another is on the wire, and what a rank posts is in one order on
every rank. A front thread waits for nobody; `reduce` waits only for peers that send, or reduce the same piece;
`collect` only for peers that reduce or collect the same piece. Back threads do both in the order of the pieces, so no
rank can wait in a circle, though each chooses for itself how many sums it leaves outstanding.

Where pieces are on a device (`ahead`), the front thread gives it so many pieces before it waits for the first of them,
and a third and a fourth thread take what would keep the back thread waiting: for the device, then posting the sum, and
for the sums of others.

A failure stays: the bucket's future carries it, so do those of all later buckets, and peers are notified.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator

from syncline.program.pieces import DEPTH
from syncline.runtime.sync.streams import ConveyorThread

PATIENCE_S = 1.0
"""How long a conveyor that failed is waited for: a thread of it may wait for a peer that is gone."""


class Piece:
    """A part of a bucket: three stages, two threads. An `ordered` one is collected before the next is reduced."""

    ordered = False

    def prepare(self) -> None:
        """Begin what `send` ends."""

    def send(self) -> None:
        """Post what others sum."""

    def fail(self) -> None:
        """Tell peers, in place of `send`, that this rank cannot go on."""

    def sum_up(self) -> None:
        """Wait for what peers sent, and sum it."""

    def post(self) -> None:
        """Post the sum."""

    def collect(self) -> None:
        """Wait for the sums of others."""


class BucketJob:
    """One bucket of one step: its pieces, and what to call with None or the failure when all are done."""

    def __init__(self, pieces: list[Piece], done: Callable[[BaseException | None], None]) -> None:
        self.pieces = pieces
        self._done = done
        self._lock = threading.Lock()
        self._is_over = False

    def done(self, failure: BaseException | None) -> None:
        """Call back, the first time only: a job that was broken off may still come to its end."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if not was_over:
            self._done(failure)


Item = tuple[BucketJob, Piece | None]
"""A piece of a job; None: all of them have gone before."""
Queue = queue.SimpleQueue[Item | None]


class Conveyor:
    """Threads and the queues between, each inside its stage's `place`; `submit` returns at once."""

    def __init__(
        self,
        name: str,
        place: Callable[[ConveyorThread], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
        *,
        ahead: int = 0,
        join: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the threads; `join` is called before a job is done, by whoever says so."""
        self.failure: BaseException | None = None
        self._under_way: dict[BucketJob, None] = {}
        self._front: queue.SimpleQueue[BucketJob | None] = queue.SimpleQueue()
        self._back, self._sums, self._last = Queue(), Queue(), Queue()
        self._place, self._ahead, self._join = place, ahead, join
        stages = [("front", ConveyorThread.FRONT, self._run_front), ("back", ConveyorThread.BACK, self._run_back)]
        if ahead:
            stages[1:] = [
                ("back", ConveyorThread.BACK, self._run_sums),
                ("post", ConveyorThread.BACK, self._run_posts),
                ("last", ConveyorThread.LAST, self._run_last),
            ]
        self._threads = [
            threading.Thread(target=self._run, args=(stage, run), name=f"{name}-{label}", daemon=True)
            for label, stage, run in stages
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: BucketJob) -> None:
        """Put a bucket on the conveyor."""
        self._under_way[job] = None
        self._front.put(job)
        if self.failure is not None:
            self.break_off(self.failure)

    def break_off(self, failure: BaseException) -> None:
        """End what is under way with a failure, though a thread may still wait for a message that never comes."""
        self._keep(failure)
        for job in list(self._under_way):
            self._end(job)

    def close(self) -> None:
        """Finish what was submitted and end the threads."""
        self._front.put(None)
        for thread in self._threads:
            thread.join(None if self.failure is None else PATIENCE_S)

    def abandon(self) -> None:
        """Let the threads end when they can, and wait for none."""
        self._front.put(None)

    def _run(self, stage: ConveyorThread, run: Callable[[], None]) -> None:
        with self._place(stage):
            run()

    def _run_front(self) -> None:
        prepared: deque[Item] = deque()
        for item in self._items(prepared):
            if item is not None:
                if item[1] is not None:
                    self._try(item[1].prepare)
                prepared.append(item)
            while prepared and (item is None or len(prepared) > self._ahead):
                self._send(prepared.popleft())
        self._back.put(None)

    def _items(self, prepared: deque[Item]) -> Iterator[Item | None]:
        """Yield the pieces of jobs in order; None where there is nothing to do but to wait for what was prepared."""
        while True:
            if prepared and self._front.empty():
                yield None
            job = self._front.get()
            if job is None:
                yield None
                return
            for piece in job.pieces:
                yield job, piece
            yield job, None

    def _send(self, item: Item) -> None:
        piece = item[1]
        if piece is not None and not self._try(piece.send):
            self._tell(piece)
        self._back.put(item)

    def _run_sums(self) -> None:
        """Sum, and leave what waits for the device and for others to the next threads."""
        while (item := self._back.get()) is not None:
            if item[1] is not None:
                self._try(item[1].sum_up)
                if item[1].ordered:
                    self._try(item[1].post)
                    self._try(item[1].collect)
                    continue
            self._sums.put(item)
        self._sums.put(None)

    def _run_posts(self) -> None:
        while (item := self._sums.get()) is not None:
            if item[1] is not None:
                self._try(item[1].post)
            self._last.put(item)
        self._last.put(None)

    def _run_last(self) -> None:
        while (item := self._last.get()) is not None:
            self._finish(*item)

    def _run_back(self) -> None:
        waiting: deque[Item] = deque()
        while True:
            # Sums of others are awaited when enough pieces are under way, or when there is nothing else to do.
            if waiting and (len(waiting) > DEPTH or self._back.empty()):
                self._finish(*waiting.popleft())
                continue
            item = self._back.get()
            if item is None:
                break
            if item[1] is not None:
                self._try(item[1].sum_up)
                self._try(item[1].post)
            waiting.append(item)
            if item[1] is not None and item[1].ordered:
                self._finish(*waiting.pop())
        while waiting:
            self._finish(*waiting.popleft())

    def _finish(self, job: BucketJob, piece: Piece | None) -> None:
        if piece is None:
            self._try(self._join)
            self._end(job)
        else:
            self._try(piece.collect)

    def _end(self, job: BucketJob) -> None:
        self._under_way.pop(job, None)
        job.done(self.failure)

    def _try(self, call: Callable[[], None]) -> bool:
        """Call unless something failed before, keep what is raised, and tell whether all is well."""
        if self.failure is not None:
            return False
        try:
            call()
        except BaseException as error:  # whatever happens must reach the training thread, or it would wait for ever
            self._keep(error)
        return self.failure is None

    def _keep(self, failure: BaseException) -> None:
        """Keep the first failure: a watchdog may have had one while this thread waited."""
        if self.failure is None:
            self.failure = failure

    def _tell(self, piece: Piece) -> None:
        with contextlib.suppress(Exception):  # the failure itself is already kept; a lost peer cannot be notified
            piece.fail()
