"""Intervals in words: where half and nine tenths of measurements lie, and what that rests on."""

from __future__ import annotations

from collections.abc import Callable

from syncline.sim.uncertainty import Interval


def between(interval: Interval, show: Callable[[float], str]) -> str:
    """Return "90 %: 3.9 s to 5.6 s, 50 %: 4.4 s to 5.0 s"."""
    outer, inner = (" to ".join(show(end) for end in ends) for ends in (interval.p90, interval.p50))
    return f"90 %: {outer}, 50 %: {inner}"


def interval_lines(interval: Interval, show: Callable[[float], str]) -> list[str]:
    """Return the interval, and under it what it was made from."""
    return [between(interval, show), f"from {interval.basis}"]
