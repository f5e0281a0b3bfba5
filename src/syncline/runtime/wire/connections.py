"""This process's TCP connections to other ranks, whoever made them: they go on soon after a cut, and end at a loss.

TCP waits twice as long after each packet that nobody acknowledges, up to two minutes: after a link was down for 20 s it
may stay silent for as long again. Between ranks it tries every second instead. After 15 tries, which then are over in
15 s, it would give the connection up: between ranks it lasts longer than the patience with a silent rank.

A thread that waits in a collective of gloo cannot be called back, and `abort` of torch 2.13 does nothing there. Where a
rank is lost its connections are shut down on this side, and the wait ends with an error at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

TCP_RTO_MAX_MS = 44
"""A socket's option since Linux 6.15; older kernels refuse it, and wait."""
LONGEST_MS = 1000
SPARE_S = 30.0
"""Connections outlast patience by so much: who is lost, heartbeats say first."""
_WATCHED = re.compile(r"^tfd:\s+(\d+)", re.MULTILINE)


def resend_soon(addresses: Collection[str], patience_s: float) -> int:
    """Let this process's connections to these hosts try again every second while patience lasts; return how many do."""
    changed = 0
    for _, connection in _connections(addresses):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1e3 * (patience_s + SPARE_S)))
            connection.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, LONGEST_MS)
            changed += 1
    return changed


def cut_off(addresses: Collection[str], spared_port: int) -> int:
    """Shut down the connections to these hosts that an event loop of this process serves; return how many there were.

    A backend's are among those; the job's store, whose port is spared, and connections of Python are not.
    """
    served = _served()
    cut = 0
    for number, connection in _connections(addresses):
        ports = {connection.getsockname()[1], connection.getpeername()[1]}
        if number in served and spared_port not in ports:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
                cut += 1
    return cut


def _connections(addresses: Collection[str]) -> Iterator[tuple[int, socket.socket]]:
    """Yield the number and a copy of every TCP connection of this process to one of these hosts."""
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):
            copy = os.dup(int(name))
            try:
                connection = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                continue
            with connection:
                if connection.type == socket.SOCK_STREAM and connection.getpeername()[0] in addresses:
                    yield int(name), connection


def _served() -> set[int]:
    """Return the descriptors that any epoll of this process waits for."""
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                found |= {int(number) for number in _WATCHED.findall(Path(f"/proc/self/fdinfo/{name}").read_text())}
    return found
