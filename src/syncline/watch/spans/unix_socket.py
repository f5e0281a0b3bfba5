"""Spans over a Unix datagram socket: one JSON object, or a list of them, in each datagram.

The kernel keeps only ten datagrams (by default) for a reader that is away, and an agent looks a few times a second: a
thread takes datagrams as they come. The writer's side is `syncline.runtime.span_writer`.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import socket
import stat
import struct
import threading
from collections import deque
from pathlib import Path

from syncline.errors import WatchError
from syncline.runtime.span_writer import SYSTEM_SOCKET, socket_path
from syncline.watch.clock import Clock
from syncline.watch.spans.event import PhaseEvent, SpanEvent, SpanSource, event_of
from syncline.watch.spans.one_job import OneJob, Reporter, job_name

DATAGRAM_BYTES = 1 << 16
MAX_DATAGRAMS = 4096
"""Kept between two looks; more are lost, so that a flood cannot fill the memory."""
MAX_PER_READ = 20_000
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group of a sender, as the kernel says."""
DEFAULT_GROUP = "syncline"
"""Where the host has a group of this name, its members may report to an agent of root's."""


class SocketSpans(SpanSource):
    """Listens at a path: for this user's jobs, and for those of a group where one is given; follows one of them.

    A root agent without a group hears root's jobs alone, and says so.
    """

    name = "socket"

    def __init__(self, path: str | os.PathLike[str], clock: Clock, group: str = "", job: str = "") -> None:
        self._nobody = ""
        """Why nobody can report here, until somebody does."""
        self._job = OneJob(job)
        self.num_lost = 0
        self.path = Path(path)
        self._clock = clock
        self._closing = False
        self._came: deque[tuple[bytes, int, int]] = deque(maxlen=MAX_DATAGRAMS)
        gid = _group_id(group)
        _clear(self.path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        before = os.umask(0o177)  # nobody gets in between bind and chmod
        try:
            self._socket.bind(str(self.path))
            if gid is not None:
                os.chown(self.path, -1, gid)
                os.chmod(self.path, 0o660)
        except OSError as error:
            self._socket.close()
            raise WatchError(
                f"cannot listen for spans: {error.strerror or error}.", where=str(path),
                hint="Name a path of at most 107 bytes in a folder that you may write to (--spans-socket).",
            ) from None  # fmt: skip
        finally:
            os.umask(before)
        if os.getuid() == 0 and gid is None:
            self.problem = self._nobody = "only root's jobs can report here: name a group with --spans-group"
        self._thread = threading.Thread(target=self._listen, name="syncline-spans", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        """Take datagrams until the socket is shut down."""
        while True:
            try:
                datagram, credentials, _, _ = self._socket.recvmsg(DATAGRAM_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:
                return
            if self._closing:
                return
            self.num_lost += len(self._came) == MAX_DATAGRAMS
            pid, uid = _sender(credentials)
            self._came.append((datagram, pid, uid))

    def read(self) -> list[SpanEvent | PhaseEvent]:
        """Return what came in; stops at a bound, so that a flood cannot hold the agent."""
        events: list[SpanEvent | PhaseEvent] = []
        now_s = self._clock.now().mono_s
        num_seen = 0
        while self._came and num_seen < MAX_PER_READ:
            datagram, pid, uid = self._came.popleft()
            try:
                data = json.loads(datagram)
            except (ValueError, RecursionError):
                self.num_bad += 1
                continue
            for item in data if isinstance(data, list) else [data]:
                num_seen += 1
                event = event_of(item, self._clock, now_s)
                if event is None:
                    self.num_bad += 1
                elif self._job.takes(Reporter(uid, pid, job_name(item.get("job"))), now_s):
                    events.append(event)
        if events:
            self._nobody = ""  # whoever reports can report
        self.problem = self._nobody or self._job.problem(now_s)
        return events

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        self._job.close()
        self.path.unlink(missing_ok=True)


def _sender(credentials: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    """Return the process and the user that the kernel says sent a datagram; nobody (0, -1) where it says nothing."""
    for level, kind, data in credentials:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid, uid, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
            return pid, uid
    return 0, -1


def free_socket() -> str:
    """Return where a job of this user looks for its agent, if nobody listens there and it can be; else ""."""
    path = socket_path()
    if path == SYSTEM_SOCKET:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if not path or _is_heard(Path(path)) or not os.access(Path(path).parent, os.W_OK):
        return ""
    return path


def _group_id(group: str) -> int | None:
    """Return the number of a group; None for no group. Root's agent takes the group `syncline` where there is one."""
    try:
        return grp.getgrnam(group).gr_gid if group else grp.getgrnam(DEFAULT_GROUP).gr_gid if os.getuid() == 0 else None
    except KeyError:
        if group:
            raise WatchError(f'this host has no group "{group}".', hint="See `getent group`.") from None
        return None


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
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise WatchError("this is not a socket, and will not be replaced.", where=str(path))
        if _is_heard(path):
            raise WatchError("another agent listens here.", where=str(path), hint="Give --spans-socket another path.")
        path.unlink()
