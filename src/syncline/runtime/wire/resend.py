"""Connections that go on soon after a link comes back.

TCP waits twice as long after each packet that nobody acknowledges, up to two minutes: after a link was down for 20 s it
may stay silent for as long again. Between ranks it tries every second instead, whoever made the connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection

TCP_RTO_MAX_MS = 44
"""A socket's option since Linux 6.15; older kernels refuse it, and wait."""
LONGEST_MS = 1000


def resend_soon(addresses: Collection[str]) -> int:
    """Let this process's connections to these hosts try again at least once a second; return how many took that."""
    if not os.path.isdir("/proc/self/fd"):
        return 0
    changed = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            copy = os.dup(int(name))
            try:
                connection = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                continue
            with connection:
                if connection.type == socket.SOCK_STREAM and connection.getpeername()[0] in addresses:
                    connection.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, LONGEST_MS)
                    changed += 1
    return changed
