"""A meeting port is free, outside what the system hands out, and has a way out where nothing lies outside it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from syncline.host import ports


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "range"
    monkeypatch.setattr(ports, "_RANGE", path)
    return path


def test_no_connection_can_take_it(given: Path) -> None:
    given.write_text("20000\t60999\n")
    assert all(ports.LEAST <= ports.meeting_port() < 20_000 for _ in range(200))


def test_one_in_use_is_passed_over(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given.write_text("32768\t60999\n")
    taken, free = ports.meeting_port(), ports.meeting_port()
    drawn = iter([taken - ports.LEAST, free - ports.LEAST])
    monkeypatch.setattr("syncline.host.ports.secrets.randbelow", lambda _: next(drawn))
    with socket.create_server(("127.0.0.1", taken)):
        assert ports.meeting_port() == free


@pytest.mark.parametrize("text", ["1024\t65535\n", "10240 60999"])
def test_where_the_system_hands_out_all_it_is_asked_for_one(given: Path, text: str) -> None:
    given.write_text(text)
    port = ports.meeting_port()
    with socket.create_server(("127.0.0.1", port)):
        assert port >= 1024


@pytest.mark.parametrize("text", [None, "", "none at all"])
def test_a_system_that_does_not_tell_is_taken_as_usual(given: Path, text: str | None) -> None:
    if text is not None:
        given.write_text(text)
    assert ports.LEAST <= ports.meeting_port() < 32_768
