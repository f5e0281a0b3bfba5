"""A recording of link counters: begins and ends with its block, and then holds what was counted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

from syncline.errors import LabError
from syncline.lab.blueprint import Blueprint
from syncline.lab.counters import QUEUE_ROW, SAMPLE_ROW, LinkCounters, read_rows
from syncline.lab.link import LabControl

_PATIENCE_S = 10.0


class LabRecording:
    """Samples the counters of a lab while its block runs; `counters` is what it has so far, or in the end."""

    def __init__(
        self,
        link: LabControl,
        blueprint: Blueprint,
        interval_s: float,
        queue_interval_s: float,
        start: Callable[..., tuple[int, threading.Event]],
    ) -> None:
        self._link, self._blueprint, self._start = link, blueprint, start
        self.interval_s, self.queue_interval_s = interval_s, queue_interval_s
        self.number = 0
        self._ended = threading.Event()
        self._files: tuple[int, int] | None = None
        self._counters: LinkCounters | None = None
        self._origin_s = 0.0

    def __enter__(self) -> LabRecording:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> LabRecording:
        """Begin."""
        self._files = (os.memfd_create("samples"), os.memfd_create("queues"))
        self.number, self._ended = self._start(
            "record", files=self._files, interval_s=self.interval_s, queue_interval_s=self.queue_interval_s
        )
        self._wait_for_first()
        self._origin_s = time.monotonic()
        return self

    def _wait_for_first(self) -> None:
        """Wait until the sampler has read everything once: before that it sees nothing."""
        assert self._files is not None
        until = time.monotonic() + _PATIENCE_S
        while os.fstat(self._files[1]).st_size == 0 and not self._ended.is_set() and time.monotonic() < until:
            time.sleep(0.002)

    def stop(self) -> LinkCounters:
        """End, and return what was counted; safe to call twice."""
        if self._counters is not None:
            return self._counters
        if self._files is None:
            raise LabError("the recording has not begun.", hint="Use it as `with lab.counters() as recording:`.")
        if self._link.alive:
            self._link.ask("stop-recording", recording=self.number)
            self._ended.wait(_PATIENCE_S)
        self._counters = self._read()
        for file in self._files:
            os.close(file)
        return self._counters

    @property
    def counters(self) -> LinkCounters:
        """What has been counted; while it runs, all but the last fifth of a second."""
        return self._counters if self._counters is not None else self._read()

    def _read(self) -> LinkCounters:
        assert self._files is not None
        samples, queues = (os.pread(file, os.fstat(file).st_size, 0) for file in self._files)
        rows = read_rows(samples, SAMPLE_ROW)
        rows = rows[rows["end_s"] > self._origin_s]
        end_s = max(time.monotonic(), float(rows["end_s"].max(initial=0.0)))
        return LinkCounters(self._blueprint, rows, read_rows(queues, QUEUE_ROW), self._origin_s, end_s, self.interval_s)
