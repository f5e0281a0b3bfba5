from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncline.timeline.intervals import Intervals, subtract, union

NUM_GROUPS, HORIZON = 3, 12
rows = st.lists(st.tuples(st.integers(0, NUM_GROUPS - 1), st.integers(0, HORIZON), st.integers(0, 5)), max_size=20)


def covered(group: list[int], start: list[int], end: list[int]) -> Intervals:
    return union(np.array(group, np.int64), np.array(start, float), np.array(end, float))


def of(raw: list[tuple[int, int, int]]) -> Intervals:
    return covered([g for g, _, _ in raw], [s for _, s, _ in raw], [s + n for _, s, n in raw])


def cells(raw: list[tuple[int, int, int]]) -> set[tuple[int, int]]:
    """Return the unit cells that intervals with whole edges cover: the slow and obvious way."""
    return {(g, t) for g, s, n in raw for t in range(s, s + n)}


def cells_of(intervals: Intervals) -> list[tuple[int, int]]:
    edges = zip(intervals.group.tolist(), intervals.start_s.tolist(), intervals.end_s.tolist(), strict=True)
    return [(g, t) for g, s, e in edges for t in range(int(s), int(e))]


def test_overlapping_and_touching_intervals_become_one() -> None:
    result = covered([0, 0, 0, 1], [0, 1, 5, 0], [2, 5, 6, 1])
    assert (result.group.tolist(), result.start_s.tolist(), result.end_s.tolist()) == ([0, 1], [0, 0], [6, 1])


def test_a_long_interval_hides_later_short_ones() -> None:
    result = covered([0, 0, 0], [0, 1, 3], [10, 2, 4])
    assert (result.start_s.tolist(), result.end_s.tolist()) == ([0], [10])


def test_negative_times_are_times_like_others() -> None:
    result = covered([0, 1], [-5, -9], [-3, -8])
    assert result.length_s(2).tolist() == [2, 1]


@given(rows)
def test_union_covers_each_cell_once(raw: list[tuple[int, int, int]]) -> None:
    found = cells_of(of(raw))
    assert sorted(found) == sorted(cells(raw))
    lengths = of(raw).length_s(NUM_GROUPS).tolist()
    assert lengths == [sum(g == k for g, _ in cells(raw)) for k in range(NUM_GROUPS)]


@given(rows, rows)
def test_subtract_is_set_difference(whole: list[tuple[int, int, int]], cover: list[tuple[int, int, int]]) -> None:
    assert sorted(cells_of(subtract(of(whole), of(cover)))) == sorted(cells(whole) - cells(cover))


@given(rows)
def test_many_groups_sort_like_few(raw: list[tuple[int, int, int]]) -> None:
    far = [(g + 70_000, s, n) for g, s, n in raw]
    assert of(far).start_s.tolist() == of(raw).start_s.tolist()
