"""Intervals in words: where half and nine tenths of measurements lie, and what that rests on."""

from __future__ import annotations

from collections.abc import Callable

from syncline.sim.uncertainty import Interval


def between(interval: Interval, show: Callable[[float], str]) -> str:
    """Return "90 %: 3.9 s to 5.6 s, 50 %: 4.4 s to 5.0 s"."""
    outer, inner = (" to ".join(show(end) for end in ends) for ends in (interval.p90, interval.p50))
    return f"90 %: {outer}, 50 %: {inner}"


def chance_words(chance: float) -> str:
    """Return a chance as a number that claims no more than is known.

    >>> chance_words(0.999), chance_words(0.634), chance_words(0.0)
    ('over 99 %', '63 %', 'under 1 %')
    """
    return "over 99 %" if chance > 0.99 else "under 1 %" if chance < 0.01 else f"{100 * chance:.0f} %"


def interval_lines(interval: Interval, show: Callable[[float], str]) -> list[str]:
    """Return the interval, under it what it was made from, and what would narrow it most."""
    lines = [between(interval, show), f"from {interval.basis}"]
    if interval.narrower is not None:
        n = interval.narrower
        now = interval.p90[1] / interval.p90[0] if interval.p90[0] else 0.0
        lines.append(f"x{now:.1f} from end to end; {n.measure} makes it x{n.width:.1f}: {n.command}")
    return lines
