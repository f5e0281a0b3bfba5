"""Local SGD under codec="auto" on real processes: exact arithmetic, taken, guarded, left with equal replicas."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases.local_cases import do_all
from tests.distributed.ranks import run_ranks

EXACT = 2e-6
NAME = "local-sgd:every=2+topk:keep=0.01+int8"


@cache
def everything() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return run_ranks(2, partial(do_all, folder=folder))


def found(case: str) -> list[Any]:
    return [results[case] for results in everything()]


def test_ranks_step_alone_and_meet_as_local_sgd_says() -> None:
    for result in found("arithmetic"):
        assert result["alone"] < EXACT and result["together"] < EXACT
        assert result["apart"] and result["same"] and result["ddp_again"]
        assert result["sent_after"] == [4, 8], "seen one step later: they meet before the next forward"
        assert result["why"].startswith("local-sgd:every=4+fp32: as ")
        assert "local-sgd:every=4+fp32" in result["summary"] and "\n" not in result["summary"]


def test_what_codecs_keep_back_of_weights_is_paid_where_ranks_go_on_together() -> None:
    for result in found("conserves"):
        assert result["apart"] and result["saved_same"] and result["same"]
        assert result["saved"] > 0.1, "one change in a hundred was sent"
        assert result["closed"] < EXACT and result["resumed"] < EXACT
        assert result["step"] == 5


def test_on_a_very_slow_link_it_is_tried_after_the_best_of_the_others_and_held() -> None:
    for result in found("takes"):
        changed = result["used"].index(NAME)
        assert 6 <= changed <= 12  # a trial ends when every rank has told its times
        assert result["used"] == ["topk:keep=0.01+int8"] * changed + [NAME] * (24 - changed)
        assert result["phase"] == "hold"
        assert result["tried"] == ["topk:keep=0.01+int8", NAME]
        assert result["why"].startswith(f"{NAME}: at 8 kb/s, 2 ranks a step should take")
        assert "\n" not in result["why"]


def test_the_guard_takes_it_away_for_good_and_replicas_stay_equal() -> None:
    for result in found("takes"):
        assert "times as long as at weights that all have" in result["notes"]
        assert result["notes"].endswith("no more steps alone")
        assert result["left"] == "topk:keep=0.01+int8"
        assert result["same"], "the optimizers' momenta are the same too"
        assert not result["alone"] and not result["resumed_alone"]


def test_it_is_not_there_in_a_stricter_class_nor_with_a_scaler() -> None:
    assert found("safe_stays_together") == [["int8"]] * 2
    assert [result["with_scaler"] for result in found("takes")] == [False, False]


def test_accumulation_counts_steps_and_not_backwards() -> None:
    expected = {"no_sync": [3, 7], "no_sync_same": True, "accumulate": [3, 7], "accumulate_same": True}
    assert found("accumulates") == [expected] * 2


def test_parameters_that_a_rank_does_not_use_move_with_the_others() -> None:
    moved = ["always.bias", "always.weight", "sometimes.bias", "sometimes.weight"]
    assert found("unused") == [{"moved": moved, "same": True}] * 2


def test_inside_join_ranks_go_on_together() -> None:
    assert found("joins") == [{"apart": True, "same": True}] * 2


def test_a_checkpoint_between_two_averages_holds_the_average() -> None:
    for result in found("checkpoints"):
        assert result["apart"] and result["same"]
        assert result["mean"] < 2e-3, "sent in int8"
        assert (result["step"], result["met"]) == (6, [3, 5, 7])
        assert result["resumed_same"] and result["went_on"]


def test_what_is_no_number_raises_everywhere_and_what_cannot_be_had_is_refused() -> None:
    results = found("troubles")
    assert [result["skipped"] for result in results] == [False, True], "a rank skips its own steps"
    for result in results:
        assert result["raised"].startswith('NonFiniteError: the gradient of "2.bias (weights)" on rank 1 is not finite')
        assert "works neither with a GradScaler" in result["scaler"]
        assert result["levels"].endswith("local SGD and `syncline tune` are not there for levels.")
