"""Spans over a Unix datagram socket: one JSON object, or a list of them, in each datagram.

The kernel keeps only a few datagrams for a reader that is away (ten, unless told otherwise), and an agent looks a few
times a second: a thread takes them as they come. The writer's side is `syncline.runtime.span_writer`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
from collections import deque
from pathlib import Path

from syncline.errors import WatchError
from syncline.runtime.span_writer import socket_path
from syncline.watch.clock import Clock
from syncline.watch.spans.event import SpanEvent, event_of

DATAGRAM_BYTES = 1 << 16
MAX_DATAGRAMS = 4096
"""Kept between two looks; more are lost, so that a flood cannot fill the memory."""
MAX_PER_READ = 20_000


class SocketSpans:
    """Listens at a path; anyone who may write there can report spans, so its folder's permissions are the door."""

    def __init__(self, path: str | os.PathLike[str], clock: Clock) -> None:
        self.name = "socket"
        self.problem = ""
        self.num_bad = 0
        self.num_lost = 0
        self.path = Path(path)
        self._clock = clock
        self._closing = False
        self._came: deque[bytes] = deque(maxlen=MAX_DATAGRAMS)
        _clear(self.path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(str(self.path))
            os.chmod(self.path, 0o660)
        except OSError as error:
            self._socket.close()
            raise WatchError(f"cannot listen for spans: {error.strerror}.", where=str(path)) from None
        self._thread = threading.Thread(target=self._listen, name="syncline-spans", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        """Take datagrams until the socket is shut down."""
        while True:
            try:
                datagram = self._socket.recv(DATAGRAM_BYTES)
            except OSError:
                return
            if self._closing:
                return
            self.num_lost += len(self._came) == MAX_DATAGRAMS
            self._came.append(datagram)

    def read(self) -> list[SpanEvent]:
        """Return the spans that came in; stops at a bound, so that a flood cannot hold the agent."""
        events: list[SpanEvent] = []
        while self._came and len(events) < MAX_PER_READ:
            try:
                data = json.loads(self._came.popleft())
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
        """Stop listening and remove the socket."""
        self._closing = True
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        self.path.unlink(missing_ok=True)


def free_socket() -> str:
    """Return where a job of this user looks for its agent, if nobody listens there and it can be; else ""."""
    path = socket_path()
    if not path or _is_heard(Path(path)) or not os.access(Path(path).parent, os.W_OK):
        return ""
    return path


def _is_heard(path: Path) -> bool:
    """Tell whether another agent listens at a path."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ask:
        try:
            ask.connect(str(path))
        except OSError:
            return False
    return True


def _clear(path: Path) -> None:
    """Remove a socket that an agent killed earlier left behind; nothing else is removed."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise WatchError("this is not a socket, and will not be replaced.", where=str(path))
        if _is_heard(path):
            raise WatchError("another agent listens here.", where=str(path), hint="Give --spans-socket another path.")
        path.unlink()
