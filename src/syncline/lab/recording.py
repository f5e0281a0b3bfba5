"""A recording of link counters: begins and ends with its block, and then holds what was counted."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

from syncline.errors import LabError
from syncline.lab.blueprint import Blueprint
from syncline.lab.counters import QUEUE_ROW, SAMPLE_ROW, LinkCounters, read_rows
from syncline.lab.link import Link

_PATIENCE_S = 10.0


class Recording:
    """Samples the counters of a lab while its block runs; `counters` is what it has so far, or in the end."""

    def __init__(
        self,
        link: Link,
        blueprint: Blueprint,
        interval_s: float,
        queue_interval_s: float,
        running: dict[int, Recording],
    ) -> None:
        self._link, self._blueprint, self._running = link, blueprint, running
        self.interval_s, self.queue_interval_s = interval_s, queue_interval_s
        self.number = 0
        self.ended = threading.Event()
        self.exit_code = 0
        self._files: tuple[int, int] | None = None
        self._counters: LinkCounters | None = None
        self._origin_s = 0.0

    def __enter__(self) -> Recording:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Recording:
        """Begin."""
        self._files = (os.memfd_create("samples"), os.memfd_create("queues"))
        answer, _ = self._link.ask(
            "record", files=self._files, interval_s=self.interval_s, queue_interval_s=self.queue_interval_s
        )
        self.number = answer["recording"]
        self._running[self.number] = self
        self._origin_s = time.monotonic()
        return self

    def stop(self) -> LinkCounters:
        """End, and return what was counted; safe to call twice."""
        if self._counters is not None:
            return self._counters
        if self._files is None:
            raise LabError("the recording has not begun.", hint="Use it as `with lab.counters() as recording:`.")
        if self._link.alive:
            self._link.ask("stop-recording", recording=self.number)
            self.ended.wait(_PATIENCE_S)
        self._counters = self._read()
        for file in self._files:
            os.close(file)
        if self.exit_code:
            raise LabError(f"the sampler of the lab failed with exit code {self.exit_code}.")
        return self._counters

    @property
    def counters(self) -> LinkCounters:
        """What has been counted; while it runs, all but the last fifth of a second."""
        return self._counters if self._counters is not None else self._read()

    def _read(self) -> LinkCounters:
        assert self._files is not None
        samples, queues = (os.pread(file, os.fstat(file).st_size, 0) for file in self._files)
        rows = read_rows(samples, SAMPLE_ROW)
        end_s = max(time.monotonic(), float(rows["end_s"].max(initial=0.0)))
        return LinkCounters(
            self._blueprint, rows, read_rows(queues, QUEUE_ROW), self._origin_s, end_s, self.interval_s
        )
