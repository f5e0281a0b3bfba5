"""codec="auto" on real processes: it settles alike everywhere, falls back, pays what is owed, guards accuracy."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.auto_cases import do_all
from tests.distributed.ranks import run_ranks


@cache
def everything() -> list[dict[str, Any]]:
    return run_ranks(2, do_all, timeout_s=120)


def found(case: str) -> list[Any]:
    return [results[case] for results in everything()]


def test_it_settles_alike_on_every_rank_and_says_why() -> None:
    one, other = found("settles")
    assert one["phase"] == other["phase"] == "hold"
    assert one["codecs"] == other["codecs"]
    assert one["why"] == other["why"]
    for result in (one, other):
        assert max(result["errors"] + result["more"]) < 2e-2, "safe: int8 at the worst"
        assert result["same"]
        assert result["why"] in result["summary"]
        assert "\n" not in result["summary"]
        assert result["predicted"] == ["bf16", "fp32", "int8", "plain"]
        assert set(result["tried"]) & {"plain"} or "plain DDP was not tried" in result["why"]
        assert result["resumed"] == result["codecs"]
        assert result["step"] == 24


def test_a_codec_that_is_slower_than_it_should_be_loses_to_plain() -> None:
    for result in found("falls_back"):
        assert result["wanted"] != "plain", "the model was told that the codec costs nothing"
        assert result["phase"] == "hold"
        assert set(result["codecs"]) == {"plain"}
        assert "fell back to plain DDP" in result["why"]


def test_what_is_owed_is_paid_when_a_codec_without_error_feedback_follows() -> None:
    for result in found("pays"):
        assert result["error"] < 1e-5
        assert result["left"] == 0.0


def test_the_guard_takes_a_class_away() -> None:
    for result in found("guards"):
        assert result["accuracy"] == "exact"
        assert "accuracy is now exact, not safe" in result["notes"][0]
        assert max(result["errors"]) < 1e-5


def test_what_auto_cannot_have_is_refused() -> None:
    assert found("refuses")[0] == [
        'accuracy="some" is unknown.',
        'codec="auto" cannot be had with warmup.',
        'codec="auto" cannot be had with levels.',
    ]
