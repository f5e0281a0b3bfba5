"""Byte counters of chosen interfaces every millisecond, by the native loop.

sampler = BurstSampler({"eth0": InterfacePlace(None, 4)})
rows = sampler.take()           # every row since the last call: times, and rx and tx bytes of each interface
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from syncline.errors import WatchError
from syncline.host.netlink import inside, open_route

PERIOD_S = 1e-3
MAX_PERIOD_S = 16e-3
MAX_CPU, JUDGED_S = 0.004, 3.0
"""Share of a core that the loop may take, and how long is measured before the period is changed."""
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


class SamplerPace:
    """How often to sample: every millisecond, or as seldom as it takes to stay below a hundredth of a core."""

    def __init__(self) -> None:
        self.period_s = PERIOD_S
        self._since: tuple[float, float] | None = None

    def look(self, rows: SampleRows) -> None:
        """Take rows with what they cost; a period 2, 4, 8 ... times as long where they cost so much too much."""
        if not len(rows.time_s):
            return
        now_s = float(rows.time_s[-1])
        if self._since is None or rows.cpu_s < self._since[1]:
            self._since = (now_s, rows.cpu_s)
        elif now_s - self._since[0] >= JUDGED_S:
            excess = (rows.cpu_s - self._since[1]) / (MAX_CPU * (now_s - self._since[0]))
            if excess > 1:
                self.period_s = min(self.period_s * 2.0 ** math.ceil(math.log2(excess)), MAX_PERIOD_S)
            self._since = (now_s, rows.cpu_s)


class Loop(Protocol):
    """What takes the rows: the native loop, or its twin in tests."""

    def take(self) -> tuple[Any, Any, int, int, int, float]: ...

    def stop(self) -> None: ...


StartLoop = Callable[[Sequence[socket.socket], Sequence[int], int, int], Loop]


class BurstSampler:
    """Samples the given devices until closed."""

    def __init__(
        self, places: Mapping[str, InterfacePlace], period_s: float = PERIOD_S, *, start: StartLoop | None = None
    ) -> None:
        if not places:
            raise WatchError("no interface to sample.", hint="Name at least one that is there.")
        # Interfaces of one namespace stand together: one datagram asks for all of them.
        order = sorted(places.items(), key=lambda item: (item[1].netns or "", item[1].ifindex))
        self.devices = tuple(device for device, _ in order)
        self.places = dict(places)
        self.period_s = period_s
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
        self._loop = (start or native_loop)(handles, indices, int(period_s * 1e9), NUM_ROWS)

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


def native_loop(handles: Sequence[socket.socket], indices: Sequence[int], period_ns: int, num_rows: int) -> Loop:
    """Start the native loop."""
    try:
        from syncline._native.sampler import CounterSampler
    except ImportError:  # built without it, or not on Linux
        raise WatchError("syncline was built without its sampler.", hint="Sampling needs Linux and a wheel.") from None
    numbers = np.array([handle.fileno() for handle in handles], np.int32)
    return CounterSampler(numbers, np.array(indices, np.int32), period_ns, num_rows)
