"""The default, codec="auto", on real processes: it settles alike everywhere, falls back, pays what is owed, guards."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases.auto_cases import do_all
from tests.distributed.ranks import run_ranks


@cache
def everything() -> list[dict[str, Any]]:
    return run_ranks(2, do_all)


def found(case: str) -> list[Any]:
    return [results[case] for results in everything()]


def test_it_settles_alike_on_every_rank_and_says_why() -> None:
    one, other = found("settles")
    assert one["phase"] == other["phase"] == "hold"
    assert one["codec"] == other["codec"]
    assert one["why"] == other["why"]
    for result in (one, other):
        assert max(result["errors"] + result["more"]) < 2e-2, "safe: int8 at the worst"
        assert result["same"]
        assert result["why"] in result["summary"]
        assert "\n" not in result["summary"]
        assert result["predicted"] == ["bf16", "int8", "plain"]
        if result["codec"] != "plain":
            assert "plain" in result["tried"] or "plain not tried (" in result["why"]
        assert result["resumed"] == result["codec"]
        assert result["step"] == len(result["errors"])


def test_a_codec_that_is_slower_than_it_should_be_loses_to_plain() -> None:
    for result in found("falls_back"):
        assert result["wanted"] != "plain", "the model was told that the codec costs nothing"
        assert result["phase"] == "hold"
        assert result["codec"] == "plain"
        assert "fell back to plain DDP" in result["why"]


def test_what_is_owed_is_paid_when_a_codec_without_error_feedback_follows() -> None:
    for result in found("pays"):
        assert result["error"] < 1e-5
        assert result["left"] == 0.0


def test_the_guard_takes_a_class_away() -> None:
    for result in found("guards"):
        assert result["accuracy"] == result["resumed"] == "safe"
        assert result["notes"].endswith("(at most 1e-12): accuracy is now safe, not aggressive")
        assert result["used"][:9] == ["sign"] * 8 + ["plain"], "the last of a turn is dense"
        assert max(result["errors"]) < 2e-2


def test_what_cannot_be_measured_is_a_codec_by_name_and_says_so() -> None:
    assert found("answers")[0] == {
        "levels": 'int8: codec="auto" does not measure levels; give a codec for another',
        "sent": 'int8: codec="auto" does not measure send_Bps; give a codec for another',
        "named": "int4: as given",
        "some": 'accuracy="some" is unknown.',
    }


def test_a_warm_up_loses_little_and_comes_before_the_measurement() -> None:
    for result in found("warms_up"):
        assert max(result["errors"]) < 2e-2
        assert result["before"][0] == 0
        assert result["after"] == 1
