"""FSDP2 on four real processes: its reduce-scatter and its all-reduce hook, encoded."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases.fsdp2 import HAS_FSDP2, WHY_NOT
from tests.distributed.cases.fsdp_cases import do_all
from tests.distributed.ranks import run_ranks

pytestmark = pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT)
WORST = {"fp32": 1e-6, "bf16": 3e-3, "int8": 1e-2, "sign": 1.5}


@cache
def results() -> list[dict[str, Any]]:
    return run_ranks(4, do_all)


@pytest.mark.parametrize("codec", WORST)
def test_sharded_gradients_are_the_mean(codec: str) -> None:
    for got in results():
        assert got[codec] < WORST[codec]
        assert got[f"{codec} off"] < 1e-6, "turned off it is plain FSDP2"


def test_bytes_are_those_of_the_codec() -> None:
    for got in results():
        sent, dense, buckets = got["int8 bytes"]
        assert buckets == 3
        assert sent < 0.3 * dense


def test_nothing_is_lost_to_encoding() -> None:
    assert all(got["owes"] < 1e-5 for got in results())


def test_without_a_codec_it_is_int8_and_says_why() -> None:
    said = 'int8: codec="auto" does not measure FSDP2; give a codec for another'
    assert [got["unasked"] for got in results()] == [said] * 4


def test_low_rank_factors_of_shards_lose_nothing_either() -> None:
    assert all(got["owes low rank"] < 1e-5 for got in results())


def test_replicas_of_shards_are_averaged_across_hosts() -> None:
    for got in results():
        found, owes = got["replicas"]
        assert found < 2e-2
        assert not owes, "int8 keeps no residual"


def test_low_rank_averages_replicas_and_what_it_owes_is_saved() -> None:
    for got in results():
        found, owes = got["low rank"]
        assert found < 1.5, "what is missing is owed"
        assert owes


def test_accumulated_gradients_are_synchronised_once() -> None:
    for got in results():
        found, count = got["accumulate"]
        assert found < 1e-2
        assert count == 1


def test_the_first_steps_are_sent_in_int8() -> None:
    assert all(got["warm up"] == ["int8", "sign"] for got in results())


@pytest.mark.parametrize("case", ["skip", "skip across"])
def test_a_step_that_overflows_anywhere_is_skipped_everywhere(case: str) -> None:
    assert all(got[case] == [False, True, True, False, True] for got in results())


def test_a_scaler_is_followed() -> None:
    for got in results():
        scales, before, after = got["scaler"]
        assert scales == [1024.0, 512.0, 512.0]
        assert after == pytest.approx(before / 2, rel=1e-3)


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    for got in results():
        said = "Give fully_shard a mesh of two dimensions (replicas, shards): codec= averages over the first."
        assert got["refused"][1] == f"levels= belongs to DDP.\n  {said}"
        assert got["refused"][0].startswith('there is no option "replicas".')


def test_nan_raises_on_every_rank() -> None:
    assert all("on rank 3 is not finite at step 0" in got["nan"] for got in results())


def test_lanes_of_the_native_wire_give_the_same_bits() -> None:
    for got in results():
        for codec, (same, spans) in got["native"].items():
            assert same and spans > 0, codec
