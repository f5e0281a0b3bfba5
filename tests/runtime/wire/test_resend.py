"""Connections to other ranks try again every second; others stay as they are."""

from __future__ import annotations

import os
import socket

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from syncline.runtime.wire.resend import LONGEST_MS, TCP_RTO_MAX_MS, resend_soon


def test_only_connections_to_ranks_are_told_to_try_again_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        try:
            usual = connection.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS)
        except OSError:
            pytest.skip(f"Linux {os.uname().release} does not have the option")
        assert resend_soon(["192.0.2.1"]) == 0
        assert connection.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS) == usual
        assert resend_soon(["127.0.0.1"]) >= 1
        assert connection.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS) == LONGEST_MS
        assert server.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS) == usual, "it is connected to nobody"
