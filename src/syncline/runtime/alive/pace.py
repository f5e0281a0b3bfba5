"""A rate limit of the runtime's own: what a process sends leaves it as if through one link of a given rate.

    pace = Pace(12.5e6)
    work = pace.send(lambda: backend.send([tensor], peer, tag), tensor.nbytes)     # returns at once
    work.wait()                                                                    # as the backend's own

A token bucket decides when the last byte of a message would have arrived; then a thread hands the message over, one
after the other. Only sending is limited: what several senders may do to one receiver is not seen.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from syncline.errors import SynchronizationError

BURST_BYTES = 20_000
"""What an idle link lets through at once: that of an emulated link."""


class PacedWork:
    """A message that is on its way, or will be: the part of torch's `Work` that the runtime uses."""

    def __init__(self, post: Callable[[], Any], due_s: float) -> None:
        self.due_s = due_s
        self._post = post
        self._posted = threading.Event()
        self._work: Any = None
        self._error: Exception | None = None

    def hand_over(self) -> None:
        """Give the message to the backend; what it raises is raised where the message is waited for."""
        try:
            self._work = self._post()
        except Exception as error:
            self._error = error
        self._posted.set()

    def wait(self, timeout: timedelta | None = None) -> None:
        """Wait until the backend has sent it; at most so long."""
        began = time.monotonic()
        if not self._posted.wait(None if timeout is None else timeout.total_seconds()):
            raise TimeoutError(f"timed out: held back by the runtime's own rate limit for {timeout}")
        if self._error is not None:
            raise self._error
        if timeout is None:
            self._work.wait()
        else:
            self._work.wait(max(timeout - timedelta(seconds=time.monotonic() - began), timedelta(milliseconds=1)))


class Pace:
    """One link's worth of sending for a process; `close` ends its thread when everything has been handed over."""

    def __init__(self, rate_Bps: float, burst_bytes: float = BURST_BYTES) -> None:
        self.rate_Bps, self.burst_bytes = check_rate(rate_Bps), burst_bytes
        self._free_s = 0.0
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[PacedWork | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="syncline-pace", daemon=True)
        self._thread.start()

    def send(self, post: Callable[[], Any], size_bytes: int) -> PacedWork:
        """Let a message wait for its turn; order is kept."""
        with self._lock:
            idle_since_s = time.monotonic() - self.burst_bytes / self.rate_Bps
            self._free_s = max(self._free_s, idle_since_s) + size_bytes / self.rate_Bps
            work = PacedWork(post, self._free_s)
            self._waiting.put(work)
        return work

    def close(self) -> None:
        """Hand over what waits, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            time.sleep(max(0.0, work.due_s - time.monotonic()))
            work.hand_over()


def check_rate(rate_Bps: float) -> float:
    """Return a rate that something can be sent at."""
    if not rate_Bps > 0:
        raise SynchronizationError(f"send_Bps={rate_Bps!r} must be a rate above 0.", hint="12.5e6 is 100 Mb/s.")
    return rate_Bps
