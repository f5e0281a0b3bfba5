"""Wrong things are loud, on every rank, with rank, parameter and step; and three levels, which need eight ranks."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases import failure_cases as cases
from tests.distributed.ranks import run_ranks


def test_nan_raises_on_every_rank_and_names_where() -> None:
    for rank, got in enumerate(run_ranks(4, partial(cases.not_finite, policy="raise"))):
        assert got["class"] == "NonFiniteError"
        expected = f'rank {rank}, step 1: the gradient of "2.weight" on rank 2 is not finite at step 1.'
        assert got["text"].split("\n")[0] == expected
        assert got["moved"] == [True]


def test_nan_skips_the_step_on_every_rank_and_training_goes_on() -> None:
    for got in run_ranks(4, partial(cases.not_finite, policy="skip")):
        assert got["class"] == ""
        assert got["moved"] == [True, False, True]
        assert got["skipped"] == [False, True, False]
        assert got["finite"]


def test_another_codec_on_one_rank_is_refused_by_all() -> None:
    for got in run_ranks(3, cases.other_codec):
        assert got["class"] == "AgreementError"
        assert got["text"].startswith("ranks do not agree on codec: rank 0 has 'int8' and rank 2 has 'int4'.")


def test_other_parameters_on_one_rank_are_refused_by_all() -> None:
    for got in run_ranks(3, cases.other_names):
        assert got["class"] == "AgreementError"
        assert 'rank 0 has "4.weight" of shape [7, 96] where rank 1 has "04.weight"' in got["text"]


def test_a_codec_that_changes_on_one_rank_stops_all() -> None:
    results = run_ranks(3, cases.codec_changed_later)
    assert {got["class"] for got in results} <= {"AgreementError", "SynchronizationError", "LostRankError"}
    assert any("codec or version" in got["text"] for got in results)
    assert all("step 2" in got["text"] for got in results)


def test_a_message_that_comes_short_stops_all() -> None:
    results = run_ranks(3, cases.cut_short)
    assert all(got["class"] in ("AgreementError", "SynchronizationError", "LostRankError") for got in results)
    assert any("payload bytes arrived" in got["text"] and "rank 1" in got["text"] for got in results)


def test_a_rank_that_is_gone_is_named() -> None:
    results = run_ranks(3, cases.dead)
    assert [got["class"] for got in results[:2]] == ["LostRankError"] * 2
    assert all(f"rank 2 on {socket.gethostname()} has ended at step 1 while" in got["text"] for got in results[:2])


def test_an_encoder_that_raises_on_one_rank_stops_all() -> None:
    results = run_ranks(3, cases.encoder_fails)
    assert results[0]["text"] == "this encoder is broken."
    assert all("rank 0" in got["text"] for got in results[1:])


def test_replicas_that_part_are_named_on_every_rank() -> None:
    for got in run_ranks(4, cases.apart):
        assert got["class"] == "ReplicaError"
        assert 'replicas of "2.weight" differ at step 4: rank 1 is not like the others' in got["text"]
        assert got["step"] == "3"


def test_three_levels() -> None:
    results: list[dict[str, Any]] = run_ranks(8, cases.three_levels)
    for got in results:
        assert all(codec["same"] for codec in got.values())
        assert got["fp32"]["conserved"] < 1e-6
        assert got["sign"]["conserved"] < 1e-6
        assert got["int8"]["conserved"] < 2e-2
        assert got["int8"]["across"] < 0.35 * got["fp32"]["across"]
