"""The default, codec="auto", on real processes: it settles alike everywhere and falls back."""

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
        assert result["tried"] == ["bf16", "int8", "plain"]
        assert result["resumed"] == result["codec"]
        assert result["step"] == len(result["errors"])


def test_where_codecs_are_slow_plain_is_held() -> None:
    for result in found("falls_back"):
        assert result["phase"] == "hold"
        assert result["codec"] == "plain"
        assert result["why"].endswith("no codec makes it 10% shorter")


def test_what_cannot_be_measured_is_a_codec_by_name_and_says_so() -> None:
    assert found("answers")[0] == {
        "levels": 'int8: codec="auto" does not measure levels; give a codec for another',
        "sent": 'int8: codec="auto" does not measure send_Bps; give a codec for another',
        "named": "int4: as given",
    }
