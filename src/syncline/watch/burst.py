"""Rates over short windows, out of counters read every millisecond, links side by side in NumPy.

Bytes move a packet at a time and a shaper lets a few pass at once, so a rate over one millisecond of a slow link is
only noise. What a link reaches is measured over the shortest window that holds `MIN_PACKETS` of the largest packets at
the rate it has reached so far: nobody has to know its capacity. Bursts are counted over windows of frames, where the
capacity is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncline.watch.sampler import SampleRows

MIN_PACKETS = 20
FRAME_BYTES, LARGEST_BYTES = 9018, 1 << 14
"""A jumbo frame; and what is handed to a NIC at once, between a frame and the 64 KiB that it may cut by itself."""
MAX_WINDOW_S = 0.1
FORGET = 0.999
"""Share of a link's highest rate that is left after a look without one as high: half of it in three minutes."""
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
    """What one direction of one device did since the last look; `reach_Bps` is its highest rate, noise left out."""

    peak_Bps: float
    saturated_share: float
    bursts: tuple[Burst, ...] = ()
    reach_Bps: float = 0.0


def window_s(rate_Bps: Floats, packet_bytes: int) -> Floats:
    """Return the windows that make rates meaningful on links that reach these: 1, 2, 4 ... 64 ms or a tenth."""
    least_ms = MIN_PACKETS * packet_bytes / np.fmax(rate_Bps, 1e-3) * 1e3
    width = 1e-3 * 2.0 ** np.ceil(np.log2(np.clip(least_ms, 1.0, 1e4)))
    return np.where(rate_Bps > 0, np.minimum(width, MAX_WINDOW_S), MAX_WINDOW_S)


class BurstFinder:
    """Turns rows into peaks and bursts; keeps the tail of what it saw, so that no burst is cut at a look."""

    def __init__(self) -> None:
        self._time_s: Floats = np.empty(0)
        self._counters: npt.NDArray[np.uint64] = np.empty((0, 0), np.uint64)
        self._devices: tuple[str, ...] = ()
        self._open: dict[tuple[str, str], tuple[float, float]] = {}
        self._reached: Floats = np.empty(0)

    def update(self, rows: SampleRows, capacity_Bps: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], Peaks]:
        """Take rows; return the peaks of every (device, "rx" or "tx") in them; bursts where a capacity is known."""
        if rows.devices != self._devices:
            self._devices, self._open = rows.devices, {}
            self._time_s, self._counters = rows.time_s, rows.counters
            self._reached = np.zeros(2 * len(rows.devices))
            first_new = min(1, len(rows.time_s))
        else:
            first_new = len(self._time_s)
            self._time_s = np.concatenate([self._time_s, rows.time_s])
            self._counters = np.concatenate([self._counters, rows.counters])
        found = {}
        if len(self._time_s) > first_new >= 1:
            found = self._look(np.arange(first_new, len(self._time_s)), capacity_Bps)
        self._keep_tail()
        return found

    def _look(
        self, here: npt.NDArray[np.int64], capacity_Bps: Mapping[tuple[str, str], float]
    ) -> dict[tuple[str, str], Peaks]:
        places = [(device, way) for device in self._devices for way in ("rx", "tx")]
        capacity = np.array([capacity_Bps.get(place, np.nan) for place in places])
        still = self._counters[0] == self._counters[-1]
        reach = np.zeros(len(places))
        for columns, _, rate in self._windows(here, window_s(self._reached, LARGEST_BYTES), ~still):
            reach[columns] = rate.max(axis=0, initial=0.0)
        self._reached = np.maximum(FORGET * self._reached, reach)
        found = {place: Peaks(top, 0.0, (), top) for place, top in zip(places, reach.tolist(), strict=True)}
        moves = ~still | [place in self._open for place in places]
        step = np.diff(self._time_s[here[0] - 1 :])
        for columns, before, rate in self._windows(here, window_s(capacity, FRAME_BYTES), moves & (capacity > 0)):
            high, low = rate >= BURST_SHARE * capacity[columns], rate < BURST_END_SHARE * capacity[columns]
            for k, column in enumerate(columns.tolist()):
                place, share = places[column], 0.0
                bursts: tuple[Burst, ...] = ()
                if high[:, k].any() or place in self._open:
                    held = _held(high[:, k], low[:, k], place in self._open)
                    bursts = self._runs(place, here, before, held, self._counters[:, column])
                    share = float(step[high[:, k]].sum() / step.sum()) if step.sum() > 0 else 0.0
                found[place] = Peaks(float(rate[:, k].max(initial=0.0)), share, bursts, float(reach[column]))
        return found

    def _windows(
        self, here: npt.NDArray[np.int64], widths: Floats, wanted: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]]:
        """Give the columns of each window, the row it begins with for each row, and the rates over it."""
        for width in np.unique(widths[wanted]).tolist():
            columns = np.flatnonzero((widths == width) & wanted)
            before = np.searchsorted(self._time_s, self._time_s[here] - width + 1e-9, side="right") - 1
            before = np.minimum(np.maximum(before, 0), here - 1)
            yield columns, before, self._rates(columns, here, before, width)

    def _rates(
        self,
        columns: npt.NDArray[np.int64],
        here: npt.NDArray[np.int64],
        before: npt.NDArray[np.int64],
        width: float,
    ) -> Floats:
        counters = self._counters[:, columns]
        # Unsigned differences are right across a wrap of 64 bits; a reset shows as an absurd rate and is left out.
        moved = (counters[here] - counters[before]).astype(np.float64)
        span = (self._time_s[here] - self._time_s[before])[:, None]
        moved[moved > 2.0**62] = 0.0
        # A look that came late sees a longer window, never a shorter one: short ones would only show quantisation.
        return np.where(span >= 0.5 * width, moved / np.maximum(span, 1e-9), 0.0)

    def _runs(
        self,
        key: tuple[str, str],
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
