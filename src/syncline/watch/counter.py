"""Counters that only grow, out of counters that wrap, reset, vanish and come back.

A raw counter that falls has either wrapped at its width or been reset (a driver reload, a reboot). It is a wrap when
the way round is short for its width; else it is a reset, and what it shows now is what was counted since. InfiniBand's
narrow counters stick at their top instead of wrapping; they are followed the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from syncline.watch.metric import METRICS, Key, Reading

WRAP_SHARE = 0.25
"""A fall is a wrap when the distance round is at most this share of the counter's width, and it was near the top."""
FORGET_AFTER = 600.0
"""Seconds after which a counter that vanished is forgotten; the number of remembered counters stays bounded."""


@dataclass(slots=True)
class _Track:
    raw: int
    total: int
    seen_s: float
    bits: int


class Growth(NamedTuple):
    """What one counter did since it was last read."""

    delta: float
    interval_s: float
    reset: bool = False

    @property
    def rate(self) -> float:
        return self.delta / self.interval_s if self.interval_s > 0 else 0.0


def growth(previous: int, current: int, bits: int) -> tuple[int, bool]:
    """Return how much a counter grew and whether it was reset; never negative."""
    if current >= previous:
        return current - previous, False
    for width in sorted({bits, 32}):
        # A 64-bit interface may show a 32-bit counter of the hardware below it.
        top = 1 << width
        if width <= bits and previous < top and (top - previous) + current <= top * WRAP_SHARE:
            return top - previous + current, False
    return current, True


class CounterBank:
    """Totals and rates of every counter, from raw readings at monotonic times."""

    def __init__(self) -> None:
        self._tracks: dict[Key, _Track] = {}
        self.num_resets = 0
        self._forgot_s = float("-inf")

    def update(self, reading: Reading, now_s: float) -> dict[Key, Growth]:
        """Take a reading; return the growth of every counter seen at least once before."""
        grown: dict[Key, Growth] = {}
        tracks, still = self._tracks, Growth(0, 0.0)
        for key, value in reading.items():
            track = tracks.get(key)
            if track is None:
                bits = METRICS[key.metric].bits
                if bits is not None:
                    tracks[key] = _Track(int(value), int(value), now_s, bits)
                continue
            since_s = track.seen_s
            if value == track.raw:  # as most are, most of the time
                if since_s < now_s:
                    if still.interval_s != now_s - since_s:
                        still = Growth(0, now_s - since_s)
                    grown[key], track.seen_s = still, now_s
                continue
            if now_s <= since_s:
                continue  # it is of a later moment than is said, and counts when that has come
            delta, reset = growth(track.raw, int(value), track.bits)
            self.num_resets += reset
            grown[key], track.seen_s = Growth(delta, now_s - since_s, reset), now_s
            track.raw, track.total = int(value), track.total + delta
        self._forget(now_s)
        return grown

    def totals(self) -> Iterator[tuple[Key, int]]:
        """Give each counter's running total, which starts at the raw value first seen and never falls."""
        return ((key, track.total) for key, track in self._tracks.items())

    def __len__(self) -> int:
        return len(self._tracks)

    def _forget(self, now_s: float) -> None:
        if now_s - self._forgot_s < 0.1 * FORGET_AFTER:
            return
        self._forgot_s = now_s
        old = [key for key, track in self._tracks.items() if now_s - track.seen_s > FORGET_AFTER]
        for key in old:
            del self._tracks[key]
