from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import TimelineError
from syncline.timeline import ClockAlignment, Source, SourceKind, SpanKind, Timeline, TimelineBuilder, compare

# Whole timelines are slow to draw; the profile still decides how deep the search goes.
FEWER = settings(max_examples=settings().max_examples // 4)

COMPUTE, SEND, WAIT = SpanKind.COMPUTE, SpanKind.SEND, SpanKind.WAIT
Maker = Callable[..., Timeline]
LAB = Source(SourceKind.LAB, "namespaces", ignores=("GPU time", "host jitter"))


@pytest.fixture
def predicted(of_rows: Maker) -> Timeline:
    return of_rows(
        [
            (0, 0.0, 1.0, COMPUTE, "forward"),
            (0, 1.0, 2.0, SEND, "grad"),
            (1, 0.0, 1.0, COMPUTE, "forward"),
            (1, 1.0, 2.0, SEND, "grad"),
        ]
    )


@pytest.fixture
def measured(of_rows: Maker) -> Timeline:
    """The lab, 100 s later: rank 1's forward runs 0.5 s long, so that everything of it after is late."""
    return of_rows(
        [
            (0, 100.0, 101.0, COMPUTE, "forward"),
            (0, 101.0, 102.25, SEND, "grad"),
            (1, 100.0, 101.5, COMPUTE, "forward"),
            (1, 101.5, 102.5, SEND, "grad"),
            (1, 102.5, 102.5, WAIT, "barrier"),
        ],
        source=LAB,
    )


def test_gaps_are_measured_minus_predicted(predicted: Timeline, measured: Timeline) -> None:
    result = compare(predicted, measured)
    assert (result.makespan.predicted_s, result.makespan.measured_s) == (2.0, 2.5)
    assert (result.makespan.gap_s, result.makespan.relative) == (0.5, 0.25)
    assert (result.kinds["COMPUTE"].predicted_s, result.kinds["COMPUTE"].gap_s) == (1.0, 0.25)
    assert (result.names["forward"].predicted_s, result.names["forward"].gap_s) == (2.0, 0.5)
    assert (result.names["grad"].gap_s, result.names["grad"].relative) == (0.25, 0.125)
    assert result.offset_s == 100.0
    assert result.alignment.only_second.tolist() == [4]


def test_the_parting_is_the_first_cause_and_not_what_follows(predicted: Timeline, measured: Timeline) -> None:
    parting = compare(predicted, measured).parting
    assert parting is not None
    assert (parting.rank, parting.name, parting.kind, parting.time_s) == (1, "forward", COMPUTE, 1.0)
    assert (parting.start_gap_s, parting.end_gap_s, parting.began_off) == (0.0, 0.5, False)
    assert (parting.predicted_row, parting.measured_row) == (2, 2)


def test_a_wider_tolerance_finds_a_later_parting_or_none(predicted: Timeline, measured: Timeline) -> None:
    assert compare(predicted, measured, tolerance_s=0.5).parting is None
    assert "no matched span is off by more than 500 ms" in compare(predicted, measured, tolerance_s=0.5).lines


def test_a_span_that_begins_late_is_said_to(of_rows: Maker) -> None:
    first = of_rows([(0, 0.0, 1.0, COMPUTE, "a"), (0, 1.0, 2.0, SEND, "b")], step=3)
    second = of_rows([(0, 0.0, 1.0, COMPUTE, "a"), (0, 1.5, 2.5, SEND, "b")], step=3)
    parting = compare(first, second).parting
    assert parting is not None
    assert parting.began_off
    assert parting.line() == 'they part at 1 s: rank 0 SEND "b", step 3 began 500 ms late'


def test_the_lines_tell_the_whole_story(predicted: Timeline, measured: Timeline) -> None:
    assert compare(predicted, measured).lines == (
        "predicted by simulated-flow: syncline flow 0.1, seed 7; ignores packet loss, host jitter",
        "measured by lab: namespaces; ignores GPU time, host jitter",
        "makespan: predicted 2 s, measured 2.5 s, gap +500 ms (+25.0%)",
        "COMPUTE: predicted 1 s, measured 1.25 s, gap +250 ms (+25.0%)",
        "SEND: predicted 1 s, measured 1.125 s, gap +125 ms (+12.5%)",
        "forward: predicted 2 s, measured 2.5 s, gap +500 ms (+25.0%)",
        "grad: predicted 2 s, measured 2.25 s, gap +250 ms (+12.5%)",
        'they part at 1 s: rank 1 COMPUTE "forward" ended 500 ms late',
        "only predicted ignores packet loss",
        "only measured ignores GPU time",
        '1 of 5 measured spans have no partner: "barrier" (1)',
    )


def test_an_early_extra_span_does_not_shift_the_clock(of_rows: Maker) -> None:
    first = of_rows([(0, 0.0, 1.0, COMPUTE, "a")])
    second = of_rows([(0, 0.0, 7.0, COMPUTE, "start up"), (0, 7.0, 8.0, COMPUTE, "a")])
    result = compare(first, second)
    assert (result.offset_s, result.parting) == (7.0, None)


def test_clocks(of_rows: Maker) -> None:
    first = of_rows([(0, 0.0, 1.0, SEND, "a"), (1, 0.5, 1.0, SEND, "a")])
    second = of_rows([(0, 10.0, 11.0, SEND, "a"), (1, 40.5, 41.0, SEND, "a")])
    assert compare(first, second, clock=ClockAlignment.NONE).start_gap_s.tolist() == [10.0, 40.0]
    assert compare(first, second).start_gap_s.tolist() == [0.0, 30.0]
    assert compare(first, second, clock="rank-start").start_gap_s.tolist() == [0.0, 0.0]


def test_scale_turns_an_emulated_run_into_real_time(of_rows: Maker) -> None:
    first = of_rows([(0, 0.0, 1.0, SEND, "a"), (0, 1.0, 3.0, SEND, "b")])
    second = of_rows([(0, 50.0, 150.0, SEND, "a"), (0, 150.0, 350.0, SEND, "b")])
    result = compare(first, second, scale=0.01)
    assert result.makespan.gap_s == pytest.approx(0.0)
    assert result.parting is None


def sampled(source: Source, sizes: dict[str, float], seconds: float) -> Timeline:
    builder = TimelineBuilder(source)
    for name, size in sizes.items():
        builder.add_samples(link=name, start_s=[0.0], end_s=[seconds], size_bytes=[size])
    return builder.build()


def test_links_are_compared_by_name(source: Source) -> None:
    first, second = sampled(source, {"x": 100.0, "y": 50.0}, 1.0), sampled(LAB, {"z": 1.0, "x": 110.0}, 2.0)
    links = compare(first, second).links
    assert (links.names, links.only_predicted, links.only_measured) == (("x",), ("y",), ("z",))
    assert (links.predicted_bytes.tolist(), links.measured_bytes.tolist()) == ([100.0], [110.0])
    assert (links.predicted_rate_Bps.tolist(), links.measured_rate_Bps.tolist()) == ([100.0], [55.0])
    assert links.lines() == (
        "largest difference in link bytes, x: predicted 100 B, measured 110 B (+10.0%)",
        "largest difference in link rate, x: predicted 800 b/s, measured 440 b/s (-45.0%)",
        "1 links carry traffic only as predicted: y",
        "1 links carry traffic only as measured: z",
    )


def test_a_note_says_which_column_could_not_be_used(of_rows: Maker) -> None:
    result = compare(of_rows([(0, 0.0, 1.0, SEND, "a")], step=1), of_rows([(0, 0.0, 1.0, SEND, "a")]))
    assert result.notes == ("not used for matching, only one side fills it: step",)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clock": "sundial"}, "clock 'sundial' is unknown.\n  Known: start, rank-start, none."),
        ({"scale": 0.0}, "scale is 0.0; it must be above 0."),
        ({"tolerance_s": -1.0}, "tolerance_s is -1.0; it must be 0 or above."),
    ],
)
def test_bad_options_are_refused(predicted: Timeline, options: dict[str, float], text: str) -> None:
    with pytest.raises(TimelineError) as caught:
        compare(predicted, predicted, **options)  # type: ignore[arg-type]
    assert str(caught.value) == text


@given(st.data())
@settings(FEWER)
def test_a_timeline_does_not_part_from_itself(timelines: st.SearchStrategy[Timeline], data: st.DataObject) -> None:
    timeline = data.draw(timelines)
    result = compare(timeline, timeline)
    assert result.parting is None
    assert result.makespan.gap_s == 0
    assert not np.any(result.start_gap_s) and not np.any(result.names.gap_s)
    assert result.notes == ()


@given(st.data())
@settings(FEWER)
def test_any_two_timelines_can_be_compared(timelines: st.SearchStrategy[Timeline], data: st.DataObject) -> None:
    first, second = data.draw(timelines), data.draw(timelines)
    result = compare(first, second, clock=data.draw(st.sampled_from(ClockAlignment)))
    assert len(result.alignment.first) + len(result.alignment.only_first) == len(first.spans)
    assert len(result.alignment.second) + len(result.alignment.only_second) == len(second.spans)
    assert all(isinstance(line, str) for line in result.lines)
