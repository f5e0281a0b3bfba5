"""Byte counters of chosen interfaces every millisecond: the native loop, or its Python twin where it is not built.

    sampler = start({"eth0": Interface(None, 4)})
    rows = sampler.take()           # every row since the last call: times, and rx and tx bytes of each interface

The twin costs twice the processor time (benchmarks/watch.py) and shares the interpreter with everything else.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from syncline.errors import WatchError
from syncline.host.netlink import STATISTICS, STATISTICS_AT, inside, open_route, statistics_request

PERIOD_S = 1e-3
NUM_ROWS = 16384
"""Rows kept until they are taken: 16 seconds at 1 ms."""


class InterfacePlace(NamedTuple):
    """Where an interface is: its network namespace (None: this one) and its number there."""

    netns: str | None
    ifindex: int


@dataclass(frozen=True, eq=False)
class SampleRows:
    """What was sampled: `counters[i, 2k]` and `[i, 2k + 1]` are bytes received and sent of device k at `time_s[i]`."""

    devices: tuple[str, ...]
    time_s: npt.NDArray[np.float64]
    counters: npt.NDArray[np.uint64]
    num_lost: int = 0
    num_late: int = 0
    num_failed: int = 0
    cpu_s: float = 0.0


class Loop(Protocol):
    """What takes the rows: the native loop or its twin."""

    def take(self) -> tuple[Any, Any, int, int, int, float]: ...

    def stop(self) -> None: ...


class BurstSampler:
    """Samples the given devices until closed."""

    def __init__(
        self, places: Mapping[str, InterfacePlace], period_s: float = PERIOD_S, *, native: bool = True
    ) -> None:
        if not places:
            raise WatchError("no interface to sample.", hint="Name at least one that is there.")
        # Interfaces of one namespace stand together: one datagram asks for all of them.
        order = sorted(places.items(), key=lambda item: (item[1].netns or "", item[1].ifindex))
        self.devices = tuple(device for device, _ in order)
        self.places = dict(places)
        self._sockets: dict[str | None, socket.socket] = {}
        try:
            for _, place in order:
                if place.netns not in self._sockets:
                    self._sockets[place.netns] = inside(place.netns, open_route) if place.netns else open_route()
        except OSError as error:
            self._close_sockets()
            raise WatchError(f"cannot sample: {error.strerror}.", hint="Is the namespace still there?") from None
        handles = [self._sockets[place.netns] for _, place in order]
        indices = [place.ifindex for _, place in order]
        self.is_native = native and NATIVE is not None
        self._loop = _start(handles, indices, int(period_s * 1e9), native=self.is_native)

    def take(self) -> SampleRows:
        """Return every row since the last call."""
        time_ns, counters, lost, late, failed, cpu_s = self._loop.take()
        table = counters.reshape(len(time_ns), 2 * len(self.devices))
        return SampleRows(self.devices, time_ns * 1e-9, table, lost, late, failed, cpu_s)

    def close(self) -> None:
        self._loop.stop()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for handle in self._sockets.values():
            handle.close()


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


def _start(handles: Sequence[socket.socket], indices: Sequence[int], period_ns: int, *, native: bool) -> Loop:
    if native and NATIVE is not None:
        numbers = np.array([handle.fileno() for handle in handles], np.int32)
        loop: Loop = NATIVE(numbers, np.array(indices, np.int32), period_ns, NUM_ROWS)
        return loop
    return PythonLoop(handles, indices, period_ns, NUM_ROWS)


def _native() -> Any | None:
    try:
        from syncline._native.sampler import CounterSampler
    except ImportError:  # built without it, or not on Linux
        return None
    return CounterSampler


NATIVE = _native()
