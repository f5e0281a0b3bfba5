"""The roll of ranks: where heartbeats do not pass, who does not hear whom is said at the start."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from syncline.errors import SynchronizationError
from syncline.runtime.alive import roll


def test_datagrams_that_do_not_pass_are_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        there: dict[str, Any] = {"host": "b", "address": deaf.getsockname(), "token": "t", "unheard": []}
        monkeypatch.setattr(roll, "exchange_json", lambda own, team: [{**own, "token": "t"}, there])
        monkeypatch.setattr(roll, "HELLO_S", 0.2)
        monkeypatch.setenv("SYNCLINE_LAB_HOST", "a")
        team: Any = SimpleNamespace(rank=0, size=2, names=(0, 1))
        message = r"rank 0 on a hears no heartbeat of rank 1 on b: datagrams do not pass\.\n.*watch_s=0"
        with pytest.raises(SynchronizationError, match=message):
            roll.meet(team, 1.0)
