from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import TimelineError
from syncline.timeline import LinkSamples, NamedLinks, Source, SpanKind, Spans, Timeline, TimelineBuilder

# Whole timelines are slow to draw; the profile still decides how deep the search goes.
FEWER = settings(max_examples=settings().max_examples // 4)

COMPUTE, SEND, RECV, WAIT, REDUCE = SpanKind.COMPUTE, SpanKind.SEND, SpanKind.RECV, SpanKind.WAIT, SpanKind.REDUCE
Maker = Callable[..., Timeline]


@pytest.fixture
def overlapped(of_rows: Maker) -> Timeline:
    """Rank 0 hides 3 of its 5 s of communication behind computation; rank 3 hides none of its 2 s."""
    return of_rows(
        [
            (0, 0.0, 4.0, COMPUTE, "backward"),
            (0, 1.0, 3.0, SEND, "bucket 0"),
            (0, 2.0, 3.0, RECV, "bucket 0"),
            (0, 3.0, 5.0, SEND, "bucket 1"),
            (0, 5.0, 6.0, REDUCE, "bucket 1"),
            (3, 0.0, 2.0, COMPUTE, "backward"),
            (3, 2.0, 4.0, RECV, "bucket 1"),
            (3, 4.0, 6.0, WAIT, "barrier"),
        ]
    )


def test_makespan_runs_from_first_start_to_last_end(of_rows: Maker) -> None:
    timeline = of_rows([(0, 2.0, 3.0, SEND, "a"), (1, 1.5, 2.5, SEND, "a")])
    assert (timeline.start_s, timeline.end_s, timeline.makespan_s) == (1.5, 3.0, 1.5)


def test_busy_time_counts_overlap_once(overlapped: Timeline) -> None:
    busy = overlapped.busy_by_kind_s()
    assert overlapped.ranks.tolist() == [0, 3]
    assert busy[:, COMPUTE].tolist() == [4.0, 2.0]
    assert busy[:, SEND].tolist() == [4.0, 0.0]
    assert busy[:, RECV].tolist() == [1.0, 2.0]
    assert overlapped.busy_s((SEND, RECV)).tolist() == [4.0, 2.0]
    assert overlapped.busy_s().tolist() == [6.0, 4.0]


def test_waiting_is_idle(overlapped: Timeline) -> None:
    assert overlapped.idle_s().tolist() == [0.0, 2.0]


def test_exposed_communication_is_what_compute_does_not_cover(overlapped: Timeline) -> None:
    assert overlapped.exposed_s().tolist() == [2.0, 2.0]
    bare = overlapped.exposed()
    assert (bare.group.tolist(), bare.start_s.tolist(), bare.end_s.tolist()) == ([0, 1], [4.0, 2.0], [6.0, 4.0])
    assert overlapped.exposed_s(communication=(WAIT,)).tolist() == [0.0, 2.0]


def test_another_ranks_compute_hides_nothing(of_rows: Maker) -> None:
    timeline = of_rows([(0, 0.0, 1.0, SEND, "a"), (1, 0.0, 1.0, COMPUTE, "b")])
    assert timeline.exposed_s().tolist() == [1.0, 0.0]


def test_the_critical_rank_ends_last(of_rows: Maker) -> None:
    assert of_rows([(0, 0.0, 1.0, SEND, "a"), (5, 0.0, 2.0, SEND, "a")]).critical_rank == 5


def test_among_ranks_that_end_together_the_critical_one_idles_least(overlapped: Timeline) -> None:
    assert overlapped.critical_rank == 0


def test_sparse_rank_numbers_cost_nothing(of_rows: Maker) -> None:
    timeline = of_rows([(2**31 - 1, 0.0, 1.0, SEND, "a"), (7, 0.0, 2.0, SEND, "a")])
    assert timeline.ranks.tolist() == [7, 2**31 - 1]
    assert timeline.busy_s().tolist() == [2.0, 1.0]


def test_an_empty_timeline_answers_everything(source: Source) -> None:
    empty = Timeline(source)
    assert (empty.makespan_s, empty.num_ranks, empty.critical_rank) == (0.0, 0, None)
    assert empty.exposed_s().tolist() == []
    assert empty.link_use().size_bytes.tolist() == []


@pytest.fixture
def sampled(source: Source) -> Timeline:
    builder = TimelineBuilder(source)
    builder.link("a", 10.0)
    builder.link("b")
    builder.add_samples(link=[0, 0, 1], start_s=[0.0, 2.0, 0.0], end_s=[1.0, 4.0, 4.0], size_bytes=[10.0, 10.0, 4.0])
    return builder.build()


def test_link_use_is_over_the_whole_time(sampled: Timeline) -> None:
    use = sampled.link_use()
    assert use.size_bytes.tolist() == [20.0, 4.0]
    assert use.mean_rate_Bps.tolist() == [5.0, 1.0]
    assert use.peak_rate_Bps.tolist() == [10.0, 1.0]
    assert use.mean_utilisation[0] == 0.5
    assert use.peak_utilisation[0] == 1.0
    assert np.isnan(use.mean_utilisation[1])
    assert sampled.link_use(window_s=2.0).peak_rate_Bps.tolist() == [5.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"names": ()}, 'spans column "name", row 0: 0 is not in the table of 0 names.'),
        (
            {"names": ("a", "a")},
            'span name "a" stands twice in its table, at 0 and 1.\n'
            "  Make the names differ, or use the first index for both.",
        ),
        ({"metadata": [1]}, "metadata is list; it must be an object with text keys."),
        (
            {
                "samples": LinkSamples(np.array([0, 2]), np.zeros(2), np.ones(2), np.ones(2)),
                "links": NamedLinks(("a",)),
            },
            'samples column "link", row 1: 2 is not in the table of 1 links.\n  Indices into links run from 0 to 0.',
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(source: Source, fields: dict[str, Any], text: str) -> None:
    spans = Spans(np.array([0]), np.array([0.0]), np.array([1.0]))
    with pytest.raises(TimelineError) as caught:
        Timeline(**{"source": source, "spans": spans, "names": ("a",), **fields})
    assert str(caught.value) == text


def test_a_timeline_pickles_copies_and_compares(overlapped: Timeline, sampled: Timeline) -> None:
    for timeline in (overlapped, sampled):
        for twin in (pickle.loads(pickle.dumps(timeline)), copy.copy(timeline), copy.deepcopy(timeline)):
            assert twin == timeline
            assert not twin.spans.start_s.flags.writeable
    assert overlapped != sampled
    assert overlapped != overlapped.where(overlapped.spans.rank == 3)


def test_where_keeps_chosen_rows(overlapped: Timeline) -> None:
    kept = overlapped.where(overlapped.spans.rank == 3)
    assert (len(kept.spans), kept.ranks.tolist(), kept.names) == (3, [3], overlapped.names)


@given(st.data())
@settings(FEWER)
def test_every_question_has_a_sane_answer(timelines: st.SearchStrategy[Timeline], data: st.DataObject) -> None:
    timeline = data.draw(timelines)
    room = timeline.makespan_s * (1 + 1e-9) + 1e-6
    for answer in (timeline.busy_s(), timeline.exposed_s(), timeline.idle_s(), timeline.busy_by_kind_s().ravel()):
        assert ((answer >= 0) & (answer <= room)).all()
    assert (timeline.busy_s() <= timeline.busy_by_kind_s().sum(axis=1) + 1e-6).all()
    use = timeline.link_use()
    assert np.isfinite(use.peak_rate_Bps).all() and np.isfinite(use.size_bytes).all()


@pytest.mark.slow
def test_two_million_spans_are_workable(source: Source) -> None:
    num, num_ranks = 2_000_000, 512
    rng = np.random.default_rng(1)
    start = np.sort(rng.random(num)) * 100
    builder = TimelineBuilder(source)
    builder.name("op")
    builder.link("l", 1e9)
    builder.add_spans(
        rank=np.arange(num) % num_ranks,
        start_s=start,
        end_s=start + 1e-3,
        kind=rng.integers(0, 10, num),
        round=np.arange(num) // num_ranks,
        name="op",
    )
    builder.add_samples(link=0, start_s=start, end_s=start + 1e-4, size_bytes=1.0)
    timeline = builder.build()
    assert (len(timeline.spans), timeline.num_ranks) == (num, num_ranks)
    assert timeline.link_use().size_bytes.tolist() == [num]
    assert 0 < timeline.exposed_s().mean() < timeline.busy_by_kind_s().sum(axis=1).mean()
