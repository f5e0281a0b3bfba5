from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncline.timeline.lanes import MAX_LANES, lanes


def placed(rows: list[tuple[int, int, int]]) -> list[int]:
    group, start, end = (np.array(column) for column in zip(*rows, strict=True))
    return [int(lane) for lane in lanes(group.astype(np.int64), start.astype(float), end.astype(float))]


def test_spans_that_nest_or_follow_share_a_lane() -> None:
    assert placed([(0, 0, 10), (0, 1, 3), (0, 3, 5), (0, 10, 11)]) == [0, 0, 0, 0]


def test_spans_that_cross_get_another() -> None:
    assert placed([(0, 0, 4), (0, 2, 6), (0, 5, 7), (1, 2, 6)]) == [0, 1, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 9)), min_size=1, max_size=25))
def test_no_two_spans_of_a_lane_cross(raw: list[tuple[int, int, int]]) -> None:
    rows = [(g, s, s + n) for g, s, n in raw]
    found = placed(rows)
    for i, (g, s, e) in enumerate(rows):
        for j, (g2, s2, e2) in enumerate(rows):
            if g == g2 and found[i] == found[j]:
                assert not (s < s2 < e < e2)


def test_endless_crowds_share_the_last_lane() -> None:
    found = placed([(0, i, 1000 + i) for i in range(MAX_LANES + 10)])
    assert max(found) == MAX_LANES - 1
