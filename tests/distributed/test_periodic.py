"""DiLoCo on four real processes over gloo, against the textbook's arithmetic in one process."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases.fsdp2 import HAS_FSDP2, WHY_NOT
from tests.distributed.cases.periodic_cases import CODECS, do_all
from tests.distributed.ranks import run_ranks

EXACT = 2e-6
# How far the weights are from those of float32, over how far they moved.
WORST = {"fp32": 1e-4, "bf16": 5e-3, "int8": 2e-2, "int4": 0.3}


@cache
def everything() -> list[dict[str, Any]]:
    return run_ranks(4, do_all)


def found(case: str) -> list[Any]:
    return [results[case] for results in everything()]


def test_a_plain_average_every_step_is_ddp() -> None:
    assert found("every_step_is_ddp") == [{"error": pytest.approx(0, abs=EXACT), "same": True}] * 4


def test_diloco_is_the_textbooks() -> None:
    assert found("textbook") == [{"error": pytest.approx(0, abs=EXACT), "same": True}] * 4


def test_fragments_land_as_many_steps_late_as_documented_and_nothing_is_lost() -> None:
    for result in found("streamed"):
        assert result["launched"] == [[2, 8, 14], [4, 10], [6, 12]]
        assert result["landed"] == [[4, 10], [6, 12], [8, 14]]
        assert result["staleness"] == [2, 2, 2]
        assert result["agreed"] and result["apart"] and result["same"]
        assert result["mean"] < EXACT, "a synchronisation gives the mean of what the ranks had"


def test_without_a_delay_fragments_land_on_arrival() -> None:
    for result in found("on_arrival"):
        assert result["same"]
        assert all(0 <= steps <= 4 for steps in result["staleness"])


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_carries_outer_gradients_and_replicas_are_equal(codec: str) -> None:
    results = found("codecs")
    for result in results:
        assert result[codec]["same"]
        assert result[codec]["error"] <= WORST.get(codec, 3.0)
        if codec != "fp32":
            assert result[codec]["bytes"] < 0.7 * result["fp32"]["bytes"]


def test_state_comes_back_with_fragments_under_way() -> None:
    for result in found("resumed"):
        assert result["equal"]
        assert (result["step"], result["under_way"]) == (17, [0, 2])
        assert result["refused"].startswith("the saved state has version 1 and method 'local-sgd'")


def test_every_step_inside_a_site_and_every_third_across() -> None:
    for result in found("hierarchy"):
        assert result["error"] < EXACT
        assert result["same"] and result["sync_left_on"]


def test_over_the_ranks_of_ddp_it_takes_the_place_of_its_averaging() -> None:
    assert found("replaces_ddp") == [{"error": pytest.approx(0, abs=EXACT), "averages_again": True}] * 4


@pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT)
def test_fsdp_shards_are_averaged_across_sites() -> None:
    for result in found("sharded"):
        assert result["same"]
        assert result["moved"] > 1e-3
        assert result["refused"] == "an FSDP2 model needs the group of ranks that hold the same shard."


def test_ranks_that_disagree_all_raise() -> None:
    for result in found("disagreements"):
        agreement = "AgreementError: ranks do not agree on "
        assert result["momentum"] == agreement + "momentum: rank 0 has 0.9 and rank 2 has 0.5."
        assert result["every"] == agreement + "every: rank 0 has 4 and rank 2 has 5."
        assert result["codec"].startswith(agreement + "codec: rank 0 has 'int8")
        assert result["levels"] == agreement + "levels: rank 0 has [] and rank 2 has [2]."
        assert result["start"].startswith('ReplicaError: replicas of "0.weight" differ at step 0: rank 2 is not like')


def test_a_weight_that_is_no_number_raises_everywhere_by_name() -> None:
    for result in found("broken"):
        assert result["raised"].startswith('NonFiniteError: the gradient of "2.bias" on rank 1 is not finite')
