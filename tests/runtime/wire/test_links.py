"""What carries messages: NCCL in its groups, the native wire where every rank can have it, else gloo."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

from syncline.errors import SynchronizationError
from syncline.runtime.wire import links
from syncline.runtime.wire.links import carrier
from syncline.runtime.wire.rails import are_there


def team(kind: str) -> Any:
    return SimpleNamespace(device=SimpleNamespace(type=kind))


@pytest.fixture(autouse=True)
def beside_another(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Another rank of the team, and whether it can have the wire."""
    other = {"can": True}

    def exchanged(own: Mapping[str, object], _: object) -> list[Mapping[str, object]]:
        return [own, other]

    monkeypatch.setattr(links, "exchange_json", exchanged)
    return other


def test_nccl_carries_in_its_groups_and_the_native_wire_elsewhere() -> None:
    assert carrier(team("cuda")) == "collectives"
    assert carrier(team("cpu")) == "native"


def test_gloo_carries_what_is_held_back_or_where_one_rank_cannot_have_the_wire(
    monkeypatch: pytest.MonkeyPatch, beside_another: dict[str, bool]
) -> None:
    assert carrier(team("cpu"), paced=True) == "point-to-point"
    beside_another["can"] = False
    assert carrier(team("cpu")) == "point-to-point"
    beside_another["can"] = True
    monkeypatch.setattr(links, "is_there", lambda: False)
    assert carrier(team("cpu")) == "point-to-point"


def test_nccl_holds_nothing_back() -> None:
    with pytest.raises(SynchronizationError, match="send_Bps does not work with NCCL"):
        carrier(team("cuda"), paced=True)


def test_rails_need_ipv4_towards_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    assert are_there({"MASTER_ADDR": "127.0.0.1"})
    assert not are_there({"MASTER_ADDR": "::1"})
    assert not are_there({"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "no-such-card"})
    assert are_there({"SYNCLINE_RAILS": "no-such-card"}), "what the user names is taken, and refused by its name"
    monkeypatch.setattr(socket, "gethostname", lambda: "no.such.host.invalid")
    assert not are_there({})
