"""Spans to the agent that watches this host, as they happen: datagrams to its socket.

    writer = SpanWriter()                                        # where SYNCLINE_WATCH says, or the usual place
    if writer.is_heard():
        writer.send([{"rank": 0, "name": "all_reduce", "start_s": 1.0, "end_s": 1.2}])

A writer never waits and never fails: without an agent, or with one that is too slow, spans are lost and the job goes
on.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VARIABLE = "SYNCLINE_WATCH"
"""Names the socket at which agent and job meet; empty: nothing is told."""
PER_DATAGRAM = 64
MAX_SPANS = 512
"""More spans of one step are not told: a datagram costs time."""

Span = dict[str, Any]


def socket_path() -> str:
    """Return where agent and job of this user meet: SYNCLINE_WATCH, else the usual place; "" for nowhere."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return given
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return str(Path(folder, f"syncline-watch-{os.getuid()}.sock"))


class SpanWriter:
    """Tells an agent what this process did; `num_lost` counts what nobody took."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = socket_path() if path is None else os.fspath(path)
        self.num_lost = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def is_heard(self) -> bool:
        """Tell whether an agent of this user, or of root, listens: a look at a file, cheap enough for every step."""
        try:
            found = os.stat(self.path)
        except (OSError, ValueError):
            return False
        return stat.S_ISSOCK(found.st_mode) and found.st_uid in (0, os.getuid())

    def send(self, spans: Sequence[Span]) -> None:
        """Send spans, many to a datagram; never waits and never raises."""
        self.num_lost += max(0, len(spans) - MAX_SPANS)
        for first in range(0, min(len(spans), MAX_SPANS), PER_DATAGRAM):
            part = spans[first : min(first + PER_DATAGRAM, MAX_SPANS)]
            try:
                self._socket.sendto(json.dumps(part, separators=(",", ":")).encode(), self.path)
            except OSError:
                self.num_lost += len(part)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()
