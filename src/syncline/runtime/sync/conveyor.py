"""The communication threads of a process: buckets go in, in order, and come out averaged, in order.

The front thread encodes a piece and posts it; the back thread waits for what peers sent, sums, posts the sum, and waits
for the sums of others. So one piece is encoded while another is on the wire, and what a rank posts is in one order on
every rank. A front thread waits for nobody; `reduce` waits only for peers that send, or reduce the same piece;
`collect` only for peers that reduce or collect the same piece. Back threads do both in the order of the pieces, so no
rank can wait in a circle, though each chooses for itself how many sums it leaves outstanding.

A failure stays: the bucket's future carries it, so do those of all later buckets, and peers are told.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from syncline.program.pieces import DEPTH

PATIENCE_S = 1.0
"""How long a conveyor that failed is waited for: a thread of it may wait for a peer that is gone."""


class Piece(Protocol):
    """A part of a bucket: three stages, two threads. An `ordered` one is collected before the next is reduced."""

    ordered: bool

    def send(self) -> None: ...

    def fail(self) -> None: ...

    def reduce(self) -> None: ...

    def collect(self) -> None: ...


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


class Conveyor:
    """Two threads and the queues between, each inside `place()`; `submit` returns at once."""

    def __init__(
        self, name: str, place: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    ) -> None:
        self.failure: BaseException | None = None
        self._under_way: dict[BucketJob, None] = {}
        self._front: queue.SimpleQueue[BucketJob | None] = queue.SimpleQueue()
        self._back: queue.SimpleQueue[tuple[BucketJob, Piece | None] | None] = queue.SimpleQueue()
        self._place = place
        self._threads = [
            threading.Thread(target=self._run, args=(run,), name=f"{name}-{stage}", daemon=True)
            for stage, run in (("front", self._run_front), ("back", self._run_back))
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

    def _run(self, stage: Callable[[], None]) -> None:
        with self._place():
            stage()

    def _run_front(self) -> None:
        while (job := self._front.get()) is not None:
            for piece in job.pieces:
                if not self._try(piece.send):
                    self._tell(piece)
                self._back.put((job, piece))
            self._back.put((job, None))
        self._back.put(None)

    def _run_back(self) -> None:
        waiting: deque[tuple[BucketJob, Piece | None]] = deque()
        while True:
            # Sums of others are awaited when enough pieces are under way, or when there is nothing else to do.
            if waiting and (len(waiting) > DEPTH or self._back.empty()):
                self._finish(*waiting.popleft())
                continue
            item = self._back.get()
            if item is None:
                break
            if item[1] is not None:
                self._try(item[1].reduce)
            waiting.append(item)
            if item[1] is not None and item[1].ordered:
                self._finish(*waiting.pop())
        while waiting:
            self._finish(*waiting.popleft())

    def _finish(self, job: BucketJob, piece: Piece | None) -> None:
        if piece is None:
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
        with contextlib.suppress(Exception):  # the failure itself is already kept; a lost peer cannot be told
            piece.fail()
