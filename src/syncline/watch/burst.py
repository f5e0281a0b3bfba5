"""Microbursts: what 1 ms counters say about rates over short windows, links side by side in NumPy.

Bytes move a packet at a time, so a rate over one millisecond of a slow link is only noise: each link's window is the
shortest that holds `MIN_PACKETS` packets at its capacity, and 1 ms at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from syncline.watch.sampler import SampleRows

MIN_PACKETS = 20
PACKET_BYTES = 9018
MIN_WINDOW_S = 1e-3
MAX_WINDOW_S = 0.1
BURST_SHARE = 0.95
BURST_END_SHARE = 0.5
"""A burst begins when the short-window rate passes the first share of the capacity, and ends when it falls below the
second: a rate that trembles around one threshold would be counted as many."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Burst:
    """One burst: when (monotonic), how long, and how many bytes it carried."""

    start_s: float
    end_s: float
    size_bytes: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Peaks:
    """What one direction of one device did since the last look."""

    peak_Bps: float
    saturated_share: float
    bursts: tuple[Burst, ...] = ()


def window_s(capacity_Bps: float) -> float:
    """Return the window that makes a rate meaningful on a link of this capacity."""
    if not capacity_Bps > 0:
        return MAX_WINDOW_S / 10
    return float(min(max(MIN_WINDOW_S, MIN_PACKETS * PACKET_BYTES / capacity_Bps), MAX_WINDOW_S))


class RowWindow(NamedTuple):
    """Rows to look at, and for each the row that a window begins with."""

    width_s: float
    here: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]


class BurstFinder:
    """Turns rows into peaks and bursts; keeps the tail of what it saw, so that no burst is cut at a look."""

    def __init__(self) -> None:
        self._time_s: Floats = np.empty(0)
        self._counters: npt.NDArray[np.uint64] = np.empty((0, 0), np.uint64)
        self._devices: tuple[str, ...] = ()
        self._open: dict[tuple[str, int], tuple[float, float]] = {}

    def update(self, rows: SampleRows, capacity_Bps: dict[tuple[str, str], float]) -> dict[tuple[str, str], Peaks]:
        """Take rows; return the peaks of every (device, "rx" or "tx") in them."""
        if rows.devices != self._devices:
            self._devices, self._open = rows.devices, {}
            self._time_s, self._counters = rows.time_s, rows.counters
            first_new = min(1, len(rows.time_s))
        else:
            first_new = len(self._time_s)
            self._time_s = np.concatenate([self._time_s, rows.time_s])
            self._counters = np.concatenate([self._counters, rows.counters])
        found = {}
        if len(self._time_s) > first_new >= 1:
            windows: dict[float, RowWindow] = {}
            for k, device in enumerate(self._devices):
                for side, direction in enumerate(("rx", "tx")):
                    capacity = capacity_Bps.get((device, direction), float("nan"))
                    width = window_s(capacity)
                    if width not in windows:
                        windows[width] = self._window(width, first_new)
                    found[device, direction] = self._look(2 * k + side, windows[width], (device, side), capacity)
        self._keep_tail()
        return found

    def _window(self, width: float, first_new: int) -> RowWindow:
        """Return the rows to look at with the row a window before each; one for all links of a rate."""
        time_s = self._time_s
        here = np.arange(first_new, len(time_s))
        before = np.searchsorted(time_s, time_s[here] - width + 1e-9, side="right") - 1
        return RowWindow(width, here, np.minimum(np.maximum(before, 0), here - 1))

    def _look(self, column: int, window: RowWindow, key: tuple[str, int], capacity_Bps: float) -> Peaks:
        time_s, counter = self._time_s, self._counters[:, column]
        width, here, before = window
        if counter[0] == counter[-1] and key not in self._open:
            return Peaks(0.0, 0.0)  # nothing moved
        # Unsigned differences are right across a wrap of 64 bits; a reset shows as an absurd rate and is left out.
        moved = (counter[here] - counter[before]).astype(np.float64)
        span = time_s[here] - time_s[before]
        moved = np.where(moved > 2.0**62, 0.0, moved)
        # A look that came late sees a longer window, never a shorter one: short ones would only show quantisation.
        rate = np.where(span >= 0.5 * width, moved / np.maximum(span, 1e-9), 0.0)
        if not capacity_Bps > 0:
            return Peaks(float(rate.max(initial=0.0)), 0.0)
        high = rate >= BURST_SHARE * capacity_Bps
        held = _held(high, rate < BURST_END_SHARE * capacity_Bps, key in self._open)
        bursts = self._runs(key, here, before, held, counter)
        step = np.diff(time_s[here[0] - 1 :])
        share = float(step[high].sum() / step.sum()) if step.sum() > 0 else 0.0
        return Peaks(float(rate.max(initial=0.0)), share, bursts)

    def _runs(
        self,
        key: tuple[str, int],
        here: npt.NDArray[np.int64],
        before: npt.NDArray[np.int64],
        high: npt.NDArray[np.bool_],
        counter: npt.NDArray[np.uint64],
    ) -> tuple[Burst, ...]:
        """Return the bursts that ended in these rows; one still going on is kept open for the next look."""
        edges = np.flatnonzero(np.diff(np.concatenate([[key in self._open], high])))
        bursts = []
        for edge in edges:
            row = int(here[edge])
            if high[edge]:
                start = int(before[edge])
                self._open[key] = (float(self._time_s[start]), float(counter[start]))
            elif key in self._open:
                start_s, start_bytes = self._open.pop(key)
                end = row - 1
                moved = max(0.0, float(counter[end]) - start_bytes)
                bursts.append(Burst(start_s, float(self._time_s[end]), moved))
        return tuple(bursts)

    def _keep_tail(self) -> None:
        if len(self._time_s):
            keep = int(np.searchsorted(self._time_s, self._time_s[-1] - 2 * MAX_WINDOW_S))
            self._time_s, self._counters = self._time_s[keep:].copy(), self._counters[keep:].copy()


def _held(on: npt.NDArray[np.bool_], off: npt.NDArray[np.bool_], start: bool) -> npt.NDArray[np.bool_]:
    """Return a switch that goes on with `on`, off with `off`, and stays as it was between."""
    decided = on | off
    last = np.maximum.accumulate(np.where(decided, np.arange(len(on)), -1))
    return np.where(last < 0, start, on[np.maximum(last, 0)])
