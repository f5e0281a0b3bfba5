"""`python -m syncline.previewing.capture DOOR`: import torch once; every rank that is asked for is a fork of this.

A message through DOOR, an open socket, names the spec of a rank and brings a socket. Through that go back the number of
the process and, when it has ended, how it did. A rank is ended when nobody waits for it: its socket was closed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from syncline.previewing.capture import apart

MOST_BYTES = 1 << 16
"""Of a message."""


class _Rank(NamedTuple):
    """A fork: `ends` becomes readable when it has ended, `answers` when nobody waits for it any more."""

    pid: int
    ends: int
    answers: socket.socket


def serve(door: socket.socket) -> None:
    """Fork a rank for each message and send on how each ends, until the door is closed and all have ended."""
    gc.disable()  # what torch makes when it is imported stays: a sixth of that time went into looking for rings
    with contextlib.suppress(Exception):  # a rank fails the same way, where its log is
        importlib.import_module("syncline.previewing.capture.rank")
    gc.freeze()
    gc.enable()
    with selectors.DefaultSelector() as waits:
        waits.register(door, selectors.EVENT_READ)
        while waits.get_map():
            for key, _ in waits.select():
                rank: _Rank | None = key.data
                if rank is None:
                    _fork(door, waits)
                elif key.fileobj is rank.answers:
                    waits.unregister(rank.answers)
                    for kill in (os.kill, os.killpg):  # it may not lead its group yet
                        with contextlib.suppress(ProcessLookupError):
                            kill(rank.pid, signal.SIGKILL)
                elif key.fileobj in waits.get_map():
                    _reap(rank, waits)


def _fork(door: socket.socket, waits: selectors.BaseSelector) -> None:
    """Take a message and make the rank that it asks for; a door that is closed is waited for no more."""
    message, files, _, _ = socket.recv_fds(door, MOST_BYTES, 1)
    if not message:
        waits.unregister(door)
        return
    answers = socket.socket(fileno=files[0])
    if (pid := os.fork()) == 0:
        for kept in (door, answers, *(key.data.answers for key in waits.get_map().values() if key.data)):
            kept.close()
        _be(json.loads(message))
    answers.send(str(pid).encode())
    rank = _Rank(pid, os.pidfd_open(pid), answers)
    for file in (rank.ends, rank.answers):
        waits.register(file, selectors.EVENT_READ, rank)


def _reap(rank: _Rank, waits: selectors.BaseSelector) -> None:
    """Send on how a rank has ended."""
    for file in (rank.ends, rank.answers):
        if file in waits.get_map():
            waits.unregister(file)
    status = os.waitstatus_to_exitcode(os.waitpid(rank.pid, 0)[1])
    os.close(rank.ends)
    with rank.answers, contextlib.suppress(BrokenPipeError):  # whoever asked has given up
        rank.answers.send(str(status).encode())


def _be(asked: dict[str, Any]) -> NoReturn:
    """Be the rank of a spec file, in a session of its own."""
    try:
        os.setsid()
        with open(asked["log"], "wb") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_AS, (asked["memory_bytes"], asked["memory_bytes"]))
        spec = json.loads(Path(asked["spec"]).read_text())
        os.environ.update({**asked["mark"], **spec["env"]})
        out = Path(spec["out"])
        Path("/proc/self/comm").write_text(apart.rank_name(out.parent))
        cut_off, layered = apart.alone(out.parent if spec["read_only"] else None)  # before anything starts a thread
        from syncline.previewing.capture.rank import run

        run(spec, cut_off=cut_off, layered=layered)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as opened:
        serve(opened)
