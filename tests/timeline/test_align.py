from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.timeline import Source, SpanKind, Timeline, TimelineBuilder
from syncline.timeline.align import align

# Whole timelines are slow to draw; the profile still decides how deep the search goes.
FEWER = settings(max_examples=settings().max_examples // 4)

SEND, RECV = SpanKind.SEND, SpanKind.RECV
Maker = Callable[..., Timeline]


def test_repeats_pair_in_order_of_start_whatever_the_row_order(of_rows: Maker) -> None:
    first = of_rows([(0, 0.0, 1.0, SEND, "a"), (0, 2.0, 3.0, SEND, "a")])
    second = of_rows([(0, 5.0, 6.0, SEND, "a"), (0, 4.0, 4.5, SEND, "a"), (0, 9.0, 9.5, SEND, "a")])
    pairs = align(first, second)
    assert dict(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == {0: 1, 1: 0}
    assert (pairs.only_first.tolist(), pairs.only_second.tolist()) == ([], [2])
    assert sorted(pairs.occurrence.tolist()) == [0, 1]


def test_names_are_matched_by_text_and_kinds_are_kept_apart(of_rows: Maker) -> None:
    first = of_rows([(0, 0.0, 1.0, SEND, "x"), (0, 0.0, 1.0, RECV, "y")])
    second = of_rows([(0, 0.0, 1.0, RECV, "y"), (0, 0.0, 1.0, RECV, "x")])
    pairs = align(first, second)
    assert (pairs.first.tolist(), pairs.second.tolist()) == ([1], [0])


def test_a_column_only_one_side_fills_is_left_out_of_the_key(source: Source) -> None:
    with_step, without = TimelineBuilder(source), TimelineBuilder(source)
    with_step.add_span(0, 0.0, 1.0, SEND, "a", step=4, round=2)
    without.add_span(0, 0.0, 1.0, SEND, "a", round=2)
    pairs = align(with_step.build(), without.build())
    assert (len(pairs.first), pairs.keys, pairs.dropped) == (
        1,
        ("rank", "kind", "name", "round", "occurrence"),
        ("step",),
    )


def test_peers_tell_apart_what_starts_in_another_order(source: Source) -> None:
    builders = [TimelineBuilder(source), TimelineBuilder(source)]
    for builder, starts in zip(builders, ((0.0, 0.1), (0.1, 0.0)), strict=True):
        for peer, start_s in enumerate(starts, 1):
            builder.add_span(0, start_s, 1.0, SEND, "a", peer=peer)
    pairs = align(builders[0].build(), builders[1].build())
    assert dict(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == {0: 0, 1: 1}


def test_huge_key_values_do_not_overflow(source: Source) -> None:
    top = 2**31 - 1
    builder = TimelineBuilder(source)
    builder.add_spans(rank=[0, top], start_s=0.0, end_s=1.0, step=[top, 0], round=[0, top], peer=[top, top], name="a")
    pairs = align(builder.build(), builder.build())
    assert sorted(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == [(0, 0), (1, 1)]


@given(st.data())
@settings(FEWER)
def test_a_timeline_pairs_wholly_with_itself_shuffled(
    timelines: st.SearchStrategy[Timeline], data: st.DataObject
) -> None:
    timeline = data.draw(timelines)
    order = np.array(data.draw(st.permutations(range(len(timeline.spans)))), np.int64)
    shuffled = timeline.where(order)
    pairs = align(timeline, shuffled)
    assert len(pairs.first) == len(timeline.spans)
    assert len(pairs.only_first) == len(pairs.only_second) == 0
    for key in ("rank", "kind", "name", "step", "round", "peer", "start_s", "end_s"):
        mine, theirs = timeline.spans.column(key)[pairs.first], shuffled.spans.column(key)[pairs.second]
        assert mine.tolist() == theirs.tolist()
