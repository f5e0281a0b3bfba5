"""Rows for a viewer: spans of one stream that overlap without nesting go on lanes of their own."""

from __future__ import annotations

import numpy as np

from syncline.timeline.columns import Floats, Ints
from syncline.timeline.intervals import grouped_order

MAX_LANES = 64
"""Beyond this many spans at once no picture is readable; the rest share the last lane."""


def lanes(group: Ints, start_s: Floats, end_s: Floats) -> Ints:
    """Return a lane for each span, so that on one lane of one group spans are apart or one within the other."""
    lane = np.zeros(len(group), np.int64)
    order = grouped_order(group, start_s)
    ordered, start, end = group[order], start_s[order], end_s[order]
    same = ordered[1:] == ordered[:-1]
    crowded = np.unique(ordered[1:][same & (start[1:] < end[:-1])])
    for key in crowded.tolist():
        begin, stop = np.searchsorted(ordered, [key, key + 1])
        rows = order[begin:stop]
        rows = rows[np.lexsort((-end_s[rows], start_s[rows]))]
        lane[rows] = _greedy(start_s[rows].tolist(), end_s[rows].tolist())
    return lane


def _greedy(start: list[float], end: list[float]) -> list[int]:
    stacks: list[list[float]] = []
    return [_place(stacks, begin, stop) for begin, stop in zip(start, end, strict=True)]


def _place(stacks: list[list[float]], begin: float, stop: float) -> int:
    for i, open_ends in enumerate(stacks):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if not open_ends or open_ends[-1] >= stop:
            open_ends.append(stop)
            return i
    if len(stacks) < MAX_LANES:
        stacks.append([stop])
    return len(stacks) - 1
