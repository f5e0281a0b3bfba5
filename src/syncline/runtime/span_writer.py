"""Spans to the agent that watches this host, as they happen: datagrams to its socket.

    writer = SpanWriter()                                        # where SYNCLINE_WATCH says, or the usual place
    if writer.is_heard():
        writer.send([{"rank": 0, "name": "all_reduce", "start_s": 1.0, "end_s": 1.2}])

A writer never waits and never fails: without an agent, or with one that is too slow, spans are lost and the job goes
on.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "SYNCLINE_WATCH"
"""Names the socket at which agent and job meet; empty: no spans are sent."""
JOB_VARIABLES = ("SYNCLINE_JOB", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "TORCHELASTIC_RUN_ID")
"""The first of these that is set names a job; else the address at which its ranks meet."""
PER_DATAGRAM = 64
MAX_SPANS = 512
"""More spans of one step are dropped: a datagram costs time."""

Span = dict[str, object]


SYSTEM_SOCKET = "/run/syncline/watch.sock"
"""Where the agent of a whole host listens; it lets a group in (`syncline watch --spans-group`)."""
NAME = "syncline-watch.sock"


def private_folder() -> str:
    """Return a folder that only this user can write to: the runtime directory, else one in the home; "" for none.

    Never the shared folder for temporary files: there anyone may take the name first.
    """
    home = os.path.expanduser("~")
    for folder in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.getuid()}", f"{home}/.cache", home):
        if folder.startswith("/") and _is_private(folder):
            return folder
    return ""


def socket_path() -> str:
    """Return where an agent of this user listens: SYNCLINE_WATCH, else a private folder; "" for nowhere."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return given
    if os.getuid() == 0:
        return SYSTEM_SOCKET
    folder = private_folder()
    return str(Path(folder, NAME)) if folder else ""


def agent_path() -> str:
    """Return where a job finds its agent: its own user's where one listens, else that of the whole host."""
    own = socket_path()
    if VARIABLE in os.environ or os.getuid() == 0 or os.path.exists(own):
        return own
    return SYSTEM_SOCKET


def job_name() -> str:
    """Return what this process's job is called, so that an agent can tell two on one host apart; "" for no name."""
    for variable in JOB_VARIABLES:
        if (name := os.environ.get(variable, "")) not in ("", "none"):
            return name
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    return f"{address}:{port}" if port else ""


def _is_private(folder: str) -> bool:
    """Tell whether a folder is this user's (or root's) and nobody else can put anything there."""
    try:
        found = os.stat(folder)
    except OSError:
        return False
    mine = found.st_uid in (0, os.getuid()) and os.access(folder, os.W_OK)
    return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & 0o022


@contextmanager
def phase(name: str, rank: int | None = None) -> Iterator[None]:
    """Tell the agent that this rank evaluates or writes a checkpoint meanwhile, so that its silence is not a hang.

    with syncline.torch.phase("evaluation"):
        evaluate(model)
    """
    writer, own = SpanWriter(), _rank() if rank is None else rank
    writer.tell_phase(own, name)
    try:
        yield
    finally:
        writer.tell_phase(own, "train")
        writer.close()


def follow(rank: int) -> None:
    """Tell the agent that this rank starts, and, when its process ends by itself, that it ended, well or not."""
    if rank in _FOLLOWED:
        return
    _FOLLOWED.add(rank)
    writer = SpanWriter()
    writer.tell_phase(rank, "start")

    def end() -> None:
        # The interpreter keeps the exception that nobody caught.
        failed = getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None
        writer.tell_phase(rank, "failed" if failed else "end")
        writer.close()

    atexit.register(end)


_FOLLOWED: set[int] = set()


def _rank() -> int:
    given = os.environ.get("RANK", "0")
    return int(given) if given.isdigit() else 0


class SpanWriter:
    """Tells an agent what this process did; `num_lost` counts what nobody took."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else os.fspath(path)
        self.path = agent_path() if self._path is None else self._path
        self.num_lost = 0
        self._job: Span = {"job": name} if (name := job_name()) else {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def is_heard(self) -> bool:
        """Tell whether an agent of this user, or of root, listens: a look at a file, cheap enough for every step."""
        if self._path is None:
            self.path = agent_path()
        try:
            found = os.stat(self.path)
        except (OSError, ValueError):
            return False
        return stat.S_ISSOCK(found.st_mode) and found.st_uid in (0, os.getuid())

    def tell_phase(self, rank: int, phase: str) -> None:
        """Tell that a rank starts, trains, writes a checkpoint, evaluates or ends: its silence is then no hang."""
        if self.is_heard():
            self.send([{"phase": phase, "rank": rank, "at_s": time.monotonic()}])

    def send(self, spans: Sequence[Span]) -> None:
        """Send spans, many to a datagram; never waits and never raises."""
        self.num_lost += max(0, len(spans) - MAX_SPANS)
        for first in range(0, min(len(spans), MAX_SPANS), PER_DATAGRAM):
            part = [{**span, **self._job} for span in spans[first : min(first + PER_DATAGRAM, MAX_SPANS)]]
            try:
                self._socket.sendto(json.dumps(part, separators=(",", ":")).encode(), self.path)
            except OSError:
                self.num_lost += len(part)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()
