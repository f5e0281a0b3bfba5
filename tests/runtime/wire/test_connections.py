"""Connections to other ranks try again every second, and end where a rank is lost; others stay as they are."""

from __future__ import annotations

import os
import select
import socket

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from syncline.runtime.wire.connections import LONGEST_MS, TCP_RTO_MAX_MS, cut_off, go_on, resend_soon, rest


def test_only_connections_to_ranks_are_told_to_try_again_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        try:
            usual = connection.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS)
        except OSError:
            pytest.skip(f"Linux {os.uname().release} does not have the option")
        assert resend_soon(["192.0.2.1"], 300.0) == 0
        assert connection.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS) == usual
        assert resend_soon(["127.0.0.1"], 300.0) >= 1
        assert connection.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS) == LONGEST_MS
        # 15 tries, after which TCP gives up by itself, are over in 15 s now.
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 300_000
        assert server.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS) == usual, "it is connected to nobody"


def test_what_waits_rests_while_others_are_silent_and_goes_on_when_they_are_heard() -> None:
    with socket.create_server(("127.0.0.6", 0)) as server, socket.create_connection(server.getsockname()) as connection:

        def longest_ms() -> int:
            return connection.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS)

        try:
            usual_ms = longest_ms()
        except OSError:
            pytest.skip(f"Linux {os.uname().release} does not have the option")
        resend_soon(["127.0.0.6"], 300.0)
        assert rest(["192.0.2.1"]) == 0
        assert rest(["127.0.0.6"]) == 1
        assert longest_ms() == usual_ms
        assert go_on(["127.0.0.6"]) == 1
        assert longest_ms() == LONGEST_MS


def test_only_what_an_event_loop_serves_is_cut_and_the_store_is_spared() -> None:
    with socket.create_server(("127.0.0.5", 0)) as server, select.epoll() as loop:
        port = server.getsockname()[1]
        with (
            socket.create_connection(("127.0.0.5", port)) as ours,
            socket.create_connection(("127.0.0.5", port)) as other,
        ):
            loop.register(ours.fileno())
            assert cut_off(["192.0.2.1"], 0) == 0
            assert cut_off(["127.0.0.5"], port) == 0
            assert cut_off(["127.0.0.5"], 0) == 1
            assert ours.recv(1) == b"", "whoever waits for it is woken"
            other.send(b"still there")
