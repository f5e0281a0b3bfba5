from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import TimelineError
from syncline.timeline import Source, SpanKind, Timeline, TimelineBuilder
from syncline.timeline.builder import BLOCK_ROWS


def test_rows_and_blocks_keep_their_order(source: Source) -> None:
    builder = TimelineBuilder(source, {"run": 1})
    builder.add_span(0, 0.0, 1.0, SpanKind.SEND, "a", step=3)
    builder.add_spans(rank=[1, 2], start_s=[1.0, 2.0], end_s=3.0, kind=SpanKind.RECV, name="b")
    builder.add_span(3, 4.0, 5.0, SpanKind.SEND, "a")
    timeline = builder.build()
    assert timeline.spans.rank.tolist() == [0, 1, 2, 3]
    assert [timeline.names[i] for i in timeline.spans.name] == ["a", "b", "b", "a"]
    assert timeline.spans.step.tolist() == [3, -1, -1, -1]
    assert timeline.metadata == {"run": 1}


def test_a_builder_can_go_on_after_build(source: Source) -> None:
    builder = TimelineBuilder(source)
    builder.add_span(0, 0.0, 1.0, SpanKind.SEND, "a")
    first = builder.build()
    builder.add_span(1, 0.0, 1.0, SpanKind.SEND, "a")
    assert (len(first.spans), len(builder.build().spans)) == (1, 2)


def test_a_block_is_copied_because_producers_reuse_buffers(source: Source) -> None:
    start = np.zeros(2)
    builder = TimelineBuilder(source)
    builder.add_spans(rank=[0, 1], start_s=start, end_s=1.0, name="a")
    start[:] = 9.0
    assert builder.build().spans.start_s.tolist() == [0.0, 0.0]


def test_single_rows_beyond_a_block_are_all_kept(source: Source) -> None:
    builder = TimelineBuilder(source)
    for i in range(BLOCK_ROWS + 1):
        builder.add_span(i, 0.0, 1.0, SpanKind.SEND, "a")
    assert builder.build().spans.rank.tolist() == list(range(BLOCK_ROWS + 1))


def test_an_empty_builder_builds_an_empty_timeline(source: Source) -> None:
    assert TimelineBuilder(source).build() == Timeline(source)


def test_links_are_entered_once_and_learn_their_capacity(source: Source) -> None:
    builder = TimelineBuilder(source)
    assert (builder.link("x"), builder.link("x", 5.0), builder.link("x")) == (0, 0, 0)
    builder.add_samples(link="x", start_s=[0.0], end_s=[2.0], size_bytes=[10])
    timeline = builder.build()
    assert timeline.links.capacity_Bps.tolist() == [5.0]
    assert timeline.samples.rate_Bps.tolist() == [5.0]
    with pytest.raises(TimelineError, match=r'link "x" has capacity 5.0 B/s and cannot become 6.0 B/s\.'):
        builder.link("x", 6.0)


def test_errors_name_the_column(source: Source) -> None:
    builder = TimelineBuilder(source)
    with pytest.raises(TimelineError, match='spans have no column "colour"'):
        builder.add_spans(rank=0, start_s=[0.0], end_s=[1.0], colour=3)
    with pytest.raises(TimelineError, match=r'spans column "end_s": has 2 rows; the table has 3\.'):
        builder.add_spans(rank=[0, 1, 2], start_s=0.0, end_s=[1.0, 2.0])
    with pytest.raises(TimelineError, match='samples column "size_bytes": is missing'):
        builder.add_samples(link=[0], start_s=[0.0], end_s=[1.0])
