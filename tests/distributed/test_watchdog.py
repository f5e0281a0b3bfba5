"""A rank that stands still is named, with the line it is in, on every rank; one that stops for a moment is not."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases import watchdog_cases as cases
from tests.distributed.ranks import run_ranks


def test_a_hung_rank_is_named_by_all_and_a_short_stop_by_nobody() -> None:
    results = run_ranks(3, cases.stop_then_hang)
    for got in results:
        assert got["class"] == "LostRankError", got
        assert got["step"] == 6
        assert f"rank 2 on {socket.gethostname()} hangs: alive, but without progress" in got["text"]
        assert "in watchdog_cases.py line" in got["text"]
        assert "(stand_still)" in got["text"]
