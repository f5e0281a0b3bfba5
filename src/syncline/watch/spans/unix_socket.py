"""Spans over a Unix datagram socket: one JSON object, or a list of them, in each datagram.

A writer never waits: when the agent is slow or gone, its datagrams are lost and its job goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from pathlib import Path

from syncline.errors import WatchError
from syncline.watch.clock import Clock
from syncline.watch.spans.event import SpanEvent, event_of

DATAGRAM_BYTES = 1 << 16
MAX_PER_READ = 20_000


class SocketSpans:
    """Listens at a path; anyone who may write there can report spans, so its folder's permissions are the door."""

    def __init__(self, path: str | os.PathLike[str], clock: Clock) -> None:
        self.name = "socket"
        self.problem = ""
        self.num_bad = 0
        self.path = Path(path)
        self._clock = clock
        _clear(self.path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(str(self.path))
            os.chmod(self.path, 0o660)
        except OSError as error:
            self._socket.close()
            raise WatchError(f"cannot listen for spans: {error.strerror}.", where=str(path)) from None
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)

    def read(self) -> list[SpanEvent]:
        """Return the spans that came in; stops at a bound, so that a flood cannot hold the agent."""
        events: list[SpanEvent] = []
        while len(events) < MAX_PER_READ:
            try:
                datagram = self._socket.recv(DATAGRAM_BYTES)
            except BlockingIOError:
                break
            try:
                data = json.loads(datagram)
            except (ValueError, RecursionError):
                self.num_bad += 1
                continue
            for item in data if isinstance(data, list) else [data]:
                event = event_of(item, self._clock)
                if event is None:
                    self.num_bad += 1
                else:
                    events.append(event)
        return events

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


class SpanWriter:
    """The other end: sends spans to an agent, and drops them when there is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self.num_lost = 0

    def send(self, spans: list[dict[str, object]]) -> None:
        """Send spans as one datagram; never waits and never raises."""
        try:
            self._socket.sendto(json.dumps(spans).encode(), self._path)
        except OSError:
            self.num_lost += len(spans)

    def close(self) -> None:
        self._socket.close()


def _clear(path: Path) -> None:
    """Remove a socket that an agent killed earlier left behind; nothing else is removed."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise WatchError("this is not a socket, and will not be replaced.", where=str(path))
        path.unlink()
