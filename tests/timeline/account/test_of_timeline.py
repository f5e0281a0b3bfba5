"""The account of a timeline: the mean over its ranks, every moment of each once."""

from __future__ import annotations

import pytest

from syncline.timeline import Source, SourceKind, SpanKind, TimelineBuilder
from syncline.timeline.account import StepCause, reported_account
from syncline.timeline.account.of_timeline import timeline_account


def test_every_moment_of_a_rank_has_one_cause_and_ranks_are_averaged() -> None:
    builder = TimelineBuilder(Source(SourceKind.LAB, "test", "1"))
    rows = [  # rank 1 computes 0-4, sends 3-6 (of it 1 hidden), encodes 6-7, waits 7-9, computes 10-12
        (0, SpanKind.COMPUTE, 0.0, 9.0), (0, SpanKind.SEND, 9.0, 10.0),
        (1, SpanKind.COMPUTE, 0.0, 4.0), (1, SpanKind.SEND, 3.0, 6.0), (1, SpanKind.ENCODE, 6.0, 7.0),
        (1, SpanKind.WAIT, 6.5, 9.0), (1, SpanKind.COMPUTE, 10.0, 12.0),
    ]  # fmt: skip
    for rank, kind, start, end in rows:
        builder.add_spans(rank=[rank], kind=[kind], start_s=[start], end_s=[end], name="x")
    account = timeline_account(builder.build(), "executed")
    assert account.step_s == 11 and account.source == "executed"  # of 10 and 12
    assert account.causes_s == {"kernels": (9 + 7) / 2, "network": 1 / 2, "late rank": 4 / 2, "idle": 1 / 2}
    assert account.hidden_s(StepCause.NETWORK) == 1.5 / 2


def test_a_step_of_which_two_parts_are_reported_has_the_rest_as_idle() -> None:
    account = reported_account("live", "step 3", 10.0, 7.0, 2.0)
    assert account.causes_s == {"kernels": 7.0, "network": 2.0, "idle": 1.0}
    # Medians over ranks may add up to more than the median step.
    assert reported_account("live", "step 4", 10.0, 9.0, 2.0).seconds(StepCause.NETWORK) == pytest.approx(1.0)
