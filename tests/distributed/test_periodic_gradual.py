"""Bounded staleness, parameter servers and 1-bit optimizers on four real processes, against plain arithmetic."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases.fsdp2 import HAS_FSDP2, WHY_NOT
from tests.distributed.cases.gradual_cases import SERVED, do_all
from tests.distributed.ranks import run_ranks

EXACT = 5e-6
WORST = {"fp32": 1e-4, "bf16": 2e-2, "int8": 5e-2, "int4": 0.3}


@cache
def everything() -> list[dict[str, Any]]:
    return run_ranks(4, do_all)


def found(case: str) -> list[Any]:
    return [results[case] for results in everything()]


@pytest.mark.parametrize("late", [0, 2])
def test_gradients_are_applied_k_steps_late_and_alike(late: int) -> None:
    for result in found("stale"):
        assert result[late]["same"]
        assert result[late]["error"] < EXACT
        assert result[late]["after"] < EXACT, "what was under way is applied at a synchronisation"


def test_stale_and_compressed_on_ddp_resumes() -> None:
    assert found("stale_codecs") == [{"equal": True, "same": True}] * 4


@pytest.mark.parametrize("codec", SERVED)
def test_a_synchronous_server_steps_as_ddp_does(codec: str) -> None:
    for rank, result in enumerate(found("synchronous_server")):
        assert result[codec]["same"]
        assert result[codec]["error"] <= WORST.get(codec, 1.0)
        if codec != "fp32":
            assert result[codec]["bytes"] < 0.7 * result["fp32"]["bytes"], f"rank {rank}"


def test_an_asynchronous_server_steps_for_each_push() -> None:
    results = found("asynchronous_server")
    assert [result["version"] for result in results] == [32, 32, None, None]
    assert all(result["same"] and result["fell"] for result in results)


def test_servers_come_back() -> None:
    assert found("served_state") == [{"equal": True}] * 4


def test_a_gradient_that_is_no_number_raises_on_workers_and_servers() -> None:
    for result in found("broken_server"):
        assert result["raised"] == 'NonFiniteError: the gradient of "4.bias" on rank 3 is not finite at step 0.'


def test_one_bit_adam_is_adam_while_it_warms_up_and_near_it_afterwards() -> None:
    for result in found("warm_up"):
        assert result["warm"] < EXACT
        assert result["saved"] > 0.94
        assert result["same"]
        start, adam, one_bit = result["losses"]
        assert one_bit < start
        assert one_bit == pytest.approx(adam, rel=0.15)


def test_one_bit_adam_in_float32_is_adam_with_a_frozen_variance() -> None:
    assert all(result["error"] < EXACT for result in found("frozen_exact"))


def test_one_bit_lamb_on_ddp_resumes_after_the_freeze() -> None:
    assert found("one_bit_state") == [{"equal": True, "same": True, "fell": True}] * 4


def test_ranks_that_disagree_all_raise() -> None:
    for result in found("disagreements"):
        agreement = "AgreementError: ranks do not agree on "
        assert result["staleness"] == agreement + "staleness: rank 0 has 1 and rank 1 has 2."
        assert result["mode"] == agreement + "mode: rank 0 has 'synchronous' and rank 1 has 'asynchronous'."
        assert result["warmup"] == agreement + "warmup: rank 0 has 8 and rank 1 has 9."
        assert result["method"] == agreement + "method: rank 0 has 'one-bit-adam' and rank 1 has 'one-bit-lamb'."


@pytest.mark.parametrize("method", ["stale", "served", "one-bit"])
@pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT)
def test_across_sites_that_shard_their_model_it_is_as_without_shards(method: str) -> None:
    for result in found("sharded"):
        assert result[method]["same"]
        assert result[method]["error"] < EXACT


@pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT)
def test_lamb_needs_whole_parameters() -> None:
    assert {result["lamb"] for result in found("sharded")} == {
        "1-bit LAMB needs the norms of whole parameters, and FSDP2 shards them."
    }
