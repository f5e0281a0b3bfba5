"""A port of loopback where ranks can meet later: one that the system gives to nobody unasked."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

LEAST = 10_240  # below are the ports of well-known services
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_FIRST = 32_768  # Linux's; other systems begin higher
_TRIES = 64


def meeting_port() -> int:
    """Return a port of loopback that nobody uses now and that no outgoing connection can take before it is listened to.

    Port 0 would give one of those that the system hands to every connection: seconds pass until a rank that imports
    torch listens there, and on a busy host another connection has it by then.
    """
    first = _first_given()
    for _ in range(_TRIES if first > LEAST else 0):
        port = LEAST + secrets.randbelow(first - LEAST)
        if _is_free(port):
            return port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        given: int = listener.getsockname()[1]
        return given


def _first_given() -> int:
    """Return the lowest port that the system gives to those who ask for none."""
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_FIRST


def _is_free(port: int) -> bool:
    """Say whether every address of this host could listen there: torch's store takes all of them."""
    with socket.socket() as listener:
        try:
            listener.bind(("0.0.0.0", port))  # noqa: S104 - never listened to
        except OSError:
            return False
    return True
