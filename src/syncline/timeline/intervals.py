"""Unions and differences of intervals, for millions of them in many groups at once.

A group is whatever must not be mixed: a rank, or a rank and a kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.timeline.columns import Array, Floats, Ints, sum_by


@dataclass(frozen=True, eq=False)
class Intervals:
    """Disjoint intervals of positive length, ordered by group and then by time."""

    group: Ints
    start_s: Floats
    end_s: Floats

    def __len__(self) -> int:
        return len(self.start_s)

    def length_s(self, num_groups: int) -> Floats:
        """Return the total length in each group."""
        return sum_by(self.group, self.end_s - self.start_s, num_groups)


def grouped_order(group: Array, time_s: Floats) -> Ints:
    """Return the row order by group, then time."""
    by_time = np.argsort(time_s, kind="stable")
    # Stable sorting of 16-bit integers is a radix sort: with few groups the second pass is nearly free.
    key = group.astype(np.uint16) if len(group) and group.max() < 2**16 else group
    return by_time[np.argsort(key[by_time], kind="stable")]


def union(group: Array, start_s: Floats, end_s: Floats) -> Intervals:
    """Return what the intervals cover in each group; touching ones become one, empty ones vanish."""
    rows = np.flatnonzero(end_s > start_s)
    if len(rows) == 0:
        return Intervals(np.empty(0, np.int64), np.empty(0), np.empty(0))
    rows = rows[grouped_order(group[rows], start_s[rows])]
    ordered, starts = group[rows].astype(np.int64), start_s[rows]
    reach = _running_end(ordered, end_s[rows])
    opens = np.empty(len(rows), bool)
    opens[0] = True
    opens[1:] = (ordered[1:] != ordered[:-1]) | (starts[1:] > reach[:-1])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(rows)) - 1
    return Intervals(ordered[first], starts[first], reach[last])


def subtract(whole: Intervals, cover: Intervals) -> Intervals:
    """Return the parts of `whole` that `cover` leaves bare, group by group."""
    group = np.concatenate([whole.group, whole.group, cover.group, cover.group])
    time_s = np.concatenate([whole.start_s, whole.end_s, cover.start_s, cover.end_s])
    # +1 and -1 for whole, +2 and -2 for cover: the running sum says 1 exactly where whole is alone.
    step = np.repeat(np.array([1, -1, 2, -2], np.int8), [len(whole), len(whole), len(cover), len(cover)])
    order = grouped_order(group, time_s)
    group, time_s, state = group[order], time_s[order], np.cumsum(step[order], dtype=np.int64)
    bare = np.flatnonzero((state[:-1] == 1) & (time_s[1:] > time_s[:-1]) & (group[1:] == group[:-1]))
    return Intervals(group[bare], time_s[bare], time_s[bare + 1])


def _running_end(group: Ints, end_s: Floats) -> Floats:
    """Return the latest end so far within each group (rows ordered by group)."""
    # Complex numbers compare by real part and then by imaginary part: a group's first row beats all earlier groups.
    pairs = np.empty(len(group), np.complex128)
    pairs.real = group
    pairs.imag = end_s
    np.maximum.accumulate(pairs, out=pairs)
    return pairs.imag
