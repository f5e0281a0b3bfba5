"""Programs on real processes over gloo: bit for bit what the replay on one process says."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the executor needs torch")
import torch
from tests.distributed.cases.executor_cases import (
    NUM_PROCESSES,
    Case,
    closed,
    coded,
    do_all,
    every_family,
    others,
    stalled,
    two_steps,
    vendors,
)
from tests.distributed.ranks import run_ranks
from tests.program.replay import replay

from syncline.codec.names import scheme
from syncline.schedule.collective import ALL, Kind, split_bytes
from syncline.timeline import SourceKind, SpanKind, Timeline


@cache
def results() -> list[dict[str, Any]]:
    return run_ranks(NUM_PROCESSES, do_all)


def after(case: Case) -> list[Any]:
    return [results()[rank][str(case)][0] for rank in range(case.ranks)]


@pytest.mark.parametrize("case", [*every_family(), *others()], ids=str)
def test_every_family_ends_with_the_bits_of_the_replay(case: Case) -> None:
    expected = replay(case.program(), {rank: case.buffer(rank) for rank in range(case.ranks)}, case.size)
    for rank, got in enumerate(after(case)):
        assert got.dtype == case.dtype
        np.testing.assert_array_equal(got, expected[rank], err_msg=f"rank {rank}")


def test_what_the_guide_shows_runs() -> None:
    assert [got["guide"] for got in results()] == [(28.0, 28.0)] * NUM_PROCESSES


@pytest.mark.parametrize("case", vendors(), ids=str)
def test_a_vendor_step_gives_every_taker_what_its_givers_gave(case: Case) -> None:
    goal = case.program().collective
    blocks = np.cumsum(np.asarray(goal.sizes or (1,) * goal.num_blocks))
    size = split_bytes(goal.total_bytes(case.size), blocks)
    first = np.cumsum(size) - size
    before = [case.buffer(rank) for rank in range(case.ranks)]
    got = after(case)
    if got[0] is None:
        pytest.skip(f"gloo of torch {torch.__version__} does not do this")
    for block, (giver, taker) in enumerate(
        zip(goal.givers(goal.num_blocks), goal.takers(goal.num_blocks), strict=True)
    ):
        place = slice(first[block], first[block] + size[block])
        expected = np.sum([b[place] for b in before], axis=0) if giver == ALL else before[giver][place]
        for rank in range(case.ranks) if taker == ALL else [taker]:
            np.testing.assert_array_equal(got[rank][place], expected, err_msg=f"rank {rank}, block {block}")


@pytest.mark.parametrize("case", coded(), ids=str)
def test_in_a_codec_all_ranks_end_with_the_same_bits_near_the_sum(case: Case) -> None:
    got = after(case)
    for rank in range(1, case.ranks):
        np.testing.assert_array_equal(got[rank], got[0], err_msg=f"rank {rank}")
    total = np.sum([case.buffer(rank) for rank in range(case.ranks)], axis=0, dtype=np.float64)
    error = np.abs(got[0] - total).max() / np.abs(total).max()
    # Each of at most 8 partial sums is off by half a step of its own largest value; a sparse codec drops half of all.
    worst = {"int8": 8 / 254, "bf16": 8 / 256, "int4": 8 / 7}[case.codec]
    assert 0 < error < worst


def test_a_codec_shrinks_what_is_sent_by_what_it_says() -> None:
    plain = Case("ring", Kind.ALL_REDUCE, 8, size=1000, dtype="int32")
    small = next(case for case in coded() if case.name == "ring" and case.codec == "int8")
    sent = {case.codec: results()[0][str(case)][1] for case in (plain, small)}
    assert sent["raw"] == 2 * 7 * 125 * 4
    assert sent["int8"] == 2 * 7 * scheme("int8").wire_bytes(125)


def test_buffers_are_made_once_and_the_result_of_every_run_is_right() -> None:
    case = Case("ring", Kind.ALL_REDUCE, NUM_PROCESSES, size=4096)
    expected = replay(case.program(), {rank: case.buffer(rank) for rank in range(case.ranks)}, case.size)
    for rank in range(NUM_PROCESSES):
        found = results()[rank]["repeats"]
        assert found["same"] and found["wires"]
        np.testing.assert_array_equal(found["sum"], expected[rank])


@pytest.mark.parametrize("own", [True, False], ids=["own", "vendor"])
def test_steps_follow_each_other_and_may_be_the_backends(own: bool) -> None:
    case = Case("ring", Kind.ALL_REDUCE, NUM_PROCESSES, size=4096)
    start = {rank: case.buffer(rank) for rank in range(NUM_PROCESSES)}
    expected = replay(two_steps(own=True), start, case.size)
    for rank in range(NUM_PROCESSES):
        got, collective = results()[rank][f"two steps, own {own}"]
        np.testing.assert_array_equal(got, expected[rank])
        assert collective is not own


def test_the_timeline_says_who_sent_what_to_whom_in_which_round() -> None:
    everyone: Timeline = results()[0]["repeats"]["everyone"]
    assert everyone.source.kind is SourceKind.RUNTIME
    assert everyone.num_ranks == NUM_PROCESSES and everyone.metadata["same_clock"] is True
    sends = everyone.where(everyone.spans.kind == SpanKind.SEND)
    assert len(sends.spans) == NUM_PROCESSES * 14
    assert (sends.spans.peer == (sends.spans.rank + 1) % NUM_PROCESSES).all()
    assert sends.spans.size_bytes.sum() == NUM_PROCESSES * 14 * 4096 // 8 * 4
    assert sorted(set(sends.spans.round.tolist())) == list(range(14))
    assert (everyone.spans.kind == SpanKind.REDUCE).sum() > 0
    assert 0 <= everyone.start_s <= everyone.end_s
    for rank in range(1, NUM_PROCESSES):
        assert results()[rank]["repeats"]["everyone"] == everyone


def test_a_closed_group_has_no_threads_left_to_abort_the_interpreters_end() -> None:
    for during, after, error in run_ranks(2, closed):
        assert during > 0 and after == 0 and "this group was closed" in error


def test_a_rank_that_does_not_answer_is_named_by_all_others() -> None:
    found = run_ranks(4, stalled)
    errors = [first for first, _ in found[:3]]
    assert "rank 0 got no answer from rank 3 in 1 s." in errors[0]
    for rank, text in enumerate(errors):
        assert f"rank {rank} " in text and "Silent: rank 3." in text and "Look at rank 3 first" in text
        assert "strand 0, round" in text
        assert "connections were lost in an earlier run" in found[rank][1]
