"""The slow twin of the native sampler: the same rows, one interpreter's work for each."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.host.netlink import NLM_F_REQUEST, RTM_GETSTATS, STATISTICS

_HEADER, _MESSAGE, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBHII"), struct.Struct("=HH")
STATISTICS_AT = _HEADER.size + _MESSAGE.size + _ATTRIBUTE.size
"""Where the first 64-bit field stands in an answer."""


def statistics_request(ifindex: int) -> bytes:
    """Return the message that asks for the 64-bit counters of one interface."""
    return _HEADER.pack(28, RTM_GETSTATS, NLM_F_REQUEST, 1, 0) + _MESSAGE.pack(0, 0, 0, ifindex, 1)


class PythonLoop:
    """The twin of the native loop: the same rows, one interpreter's work for each."""

    def __init__(self, handles: Sequence[socket.socket], indices: Sequence[int], period_ns: int, num_rows: int) -> None:
        self._asks = [(handle, statistics_request(index)) for handle, index in zip(handles, indices, strict=True)]
        self._period_s = period_ns * 1e-9
        self._num_rows = num_rows
        self._rows: list[tuple[int, list[int]]] = []
        self._lock = threading.Lock()
        self._lost = self._late = self._failed = 0
        self._cpu_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="syncline-sampler", daemon=True)
        self._thread.start()

    def take(self) -> tuple[Any, Any, int, int, int, float]:
        """Return (time_ns, counters row by row, lost, late, failed, cpu_s) since the last call."""
        with self._lock:
            rows, self._rows = self._rows, []
        time_ns = np.array([moment for moment, _ in rows], np.int64)
        counters = np.array([values for _, values in rows], np.uint64).reshape(-1)
        return time_ns, counters, self._lost, self._late, self._failed, self._cpu_s

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        buffer = bytearray(1024)
        last = [0] * (2 * len(self._asks))
        next_s = time.monotonic()
        while not self._stopping.is_set():
            next_s += self._period_s
            time.sleep(max(0.0, next_s - time.monotonic()))
            for at, (handle, request) in enumerate(self._asks):
                try:
                    handle.send(request)
                    if handle.recv_into(buffer) < STATISTICS_AT + STATISTICS.size:
                        self._failed += 1
                        continue
                except OSError:
                    self._failed += 1
                    continue
                counts = STATISTICS.unpack_from(buffer, STATISTICS_AT)
                last[2 * at], last[2 * at + 1] = counts[2], counts[3]
            behind = int((time.monotonic() - next_s) / self._period_s)
            next_s += behind * self._period_s
            with self._lock:
                self._late += behind
                self._rows.append((time.monotonic_ns(), last.copy()))
                if len(self._rows) > self._num_rows:
                    del self._rows[0]
                    self._lost += 1
            self._cpu_s = time.thread_time()
