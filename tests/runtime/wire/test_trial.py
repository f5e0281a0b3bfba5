"""The trial of transports: the same choice on every rank, the other wire closed, one that nobody opens left out."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.runtime.wire.test_native_wire import on_ranks, team

from syncline.errors import SynchronizationError
from syncline.runtime.sync.settings import Settings
from syncline.runtime.wire import trial
from syncline.runtime.wire.links import _candidates
from syncline.runtime.wire.trial import TransportChoice, choose, fastest
from syncline.runtime.wire.wire import Wire

SIZE = 2


@pytest.fixture
def gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks that are threads gather what each says."""
    said: list[Any] = [None] * SIZE
    met = threading.Barrier(SIZE, timeout=60)

    def gather(value: Mapping[str, object], among: Any) -> list[Any]:
        said[among.rank] = dict(value)
        met.wait()
        rows = list(said)
        met.wait()
        return rows

    monkeypatch.setattr(trial, "exchange_json", gather)


def tried(openers: list[dict[str, Any]], codec: str = "int8") -> list[Any]:
    def one(rank: int) -> TransportChoice:
        ours: Any = SimpleNamespace(rank=rank, size=SIZE)
        return fastest(openers[rank], torch.zeros(4096), codec, ours)

    return on_ranks(one, SIZE)


def refuse() -> Wire:
    raise SynchronizationError("nobody answers.")


@pytest.mark.parametrize("codec", ["int8", "powersgd:rank=2"])
def test_every_rank_keeps_the_same_wire(gathers: None, codec: str) -> None:
    with team(SIZE) as first, team(SIZE) as second:
        found = tried([{"one": lambda k=k: first[k], "other": lambda k=k: second[k]} for k in range(SIZE)], codec)
        assert len({one.name for one in found}) == 1
        kept, left = (first, second) if found[0].name == "one" else (second, first)
        assert [one.wire for one in found] == kept
        assert all(wire._last_lines for wire in left)  # they were closed
        assert not any(wire._last_lines for wire in kept)
        assert found[0].times_s == found[1].times_s
        assert str(found[0]).startswith(f"{found[0].name} carries it: 16 KiB took ")


def test_a_wire_that_one_rank_cannot_open_is_nobodys(gathers: None) -> None:
    with team(SIZE) as first, team(SIZE) as second:
        found = tried([{"one": lambda k=k: first[k], "other": refuse if k else lambda: second[0]} for k in range(SIZE)])
        assert [one.name for one in found] == ["one", "one"]
        assert math.isinf(found[0].times_s["other"])
        assert str(found[0]).endswith("for ever by other")


def test_where_nothing_reaches_the_others_every_rank_says_so(gathers: None) -> None:
    for error in tried([{"one": refuse, "other": refuse}] * SIZE):
        assert isinstance(error, SynchronizationError)
        assert "no transport reaches all 2 ranks: one, other were tried" in str(error)


def test_another_than_the_backends_own_must_be_clearly_faster() -> None:
    assert choose({"collectives": 1.0, "native": 0.95}) == "collectives"
    assert choose({"collectives": 1.0, "native": 0.8}) == "native"
    assert choose({"collectives": 1.0, "native": math.inf}) == "collectives"
    assert choose({"collectives": math.inf, "native": 1.0}) == "native"


def test_both_are_tried_for_tensors_on_a_gpu_and_only_there() -> None:
    gpu, cpu, auto = torch.device("cuda", 0), torch.device("cpu"), Settings()
    assert _candidates(auto, True, gpu) == ("collectives", "native")
    assert _candidates(auto, False, gpu) == ("point-to-point", "native")
    assert _candidates(auto, False, cpu) == ("point-to-point",)
    assert _candidates(Settings(send_Bps=1e6), False, gpu) == ("point-to-point",)
    assert _candidates(Settings(transport="native"), False, cpu) == ("native",)
