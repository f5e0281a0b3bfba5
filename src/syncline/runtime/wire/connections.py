"""This process's TCP connections to other ranks, whoever made them: they go on soon after a cut, and end at a loss.

TCP waits twice as long after each packet that nobody acknowledges, up to two minutes: after a link was down for 20 s it
may stay silent for as long again. Between ranks it tries every second instead, while the patience with a silent rank
lasts. Data that cannot even leave this host, because its own interface is down, is tried 15 times and no more, whatever
the time: such connections rest while others are silent, and go on with the first heartbeat that is heard.

A thread that waits in a collective of gloo cannot be called back, and `abort` of torch 2.13 does nothing there. Where a
rank is lost its connections are shut down on this side, and the wait ends with an error at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

TCP_RTO_MAX_MS = 44
"""A socket's option since Linux 6.15; older kernels refuse it, and wait."""
LONGEST_MS, USUAL_MS = 1000, 120_000
SPARE_S = 30.0
"""Connections outlast patience by so much: who is lost, heartbeats say first."""
_WATCHED = re.compile(r"^tfd:\s+(\d+)", re.MULTILINE)


def resend_soon(addresses: Collection[str], patience_s: float) -> int:
    """Let this process's connections to these hosts try again every second while patience lasts; return how many do."""
    lasts_ms = round(1e3 * (patience_s + SPARE_S))
    return _set(addresses, {socket.TCP_USER_TIMEOUT: lasts_ms, TCP_RTO_MAX_MS: LONGEST_MS})


def rest(addresses: Collection[str]) -> int:
    """Let connections that have nothing in flight try rarely; return how many do. Lost packets are sent as before."""
    return _set(addresses, {TCP_RTO_MAX_MS: USUAL_MS}, idle=True)


def go_on(addresses: Collection[str]) -> int:
    """Send at once what waits on connections to these hosts, and try every second again; return how many do."""
    return _set(addresses, {TCP_RTO_MAX_MS: LONGEST_MS, socket.TCP_NODELAY: 1})  # the second pushes what is queued


def _set(addresses: Collection[str], options: Mapping[int, int], *, idle: bool = False) -> int:
    changed = 0
    for _, connection in _connections(addresses):
        with contextlib.suppress(OSError):
            if idle and _num_in_flight(connection):
                continue
            for option, value in options.items():
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            changed += 1
    return changed


def _num_in_flight(connection: socket.socket) -> int:
    """Return how many packets nobody has acknowledged: `tcpi_unacked` of the kernel."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)
    return int.from_bytes(info[24:28], sys.byteorder)


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
                # A socket of IPv6 that speaks IPv4, as the store's, writes addresses as ::ffff:10.0.0.1.
                is_stream = connection.type == socket.SOCK_STREAM
                if is_stream and connection.getpeername()[0].removeprefix("::ffff:") in addresses:
                    yield int(name), connection


def _served() -> set[int]:
    """Return the descriptors that any epoll of this process waits for."""
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                found |= {int(number) for number in _WATCHED.findall(Path(f"/proc/self/fdinfo/{name}").read_text())}
    return found
