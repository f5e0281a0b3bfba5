"""A flow between two hosts of a lab, for tests: real TCP, and what arrived when."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from syncline.lab import Lab, Process

_SERVER = """
import json, socket, sys, time
listener = socket.create_server(("", 5000))
print("up", flush=True)
stream, _ = listener.accept()
count, first, last, gap = 0, time.monotonic(), time.monotonic(), 0.0
while data := stream.recv(1 << 18):
    now = time.monotonic()
    gap, last, count = max(gap, now - last), now, count + len(data)
print(json.dumps({"bytes": count, "first_s": first, "last_s": last, "gap_s": gap}))
"""
_CLIENT = """
import socket, sys, time
patience = time.monotonic() + 120
while True:
    try:
        stream = socket.create_connection((sys.argv[1], 5000))
        break
    except OSError:  # nobody answered for that address within three seconds: a cut or lossy link
        if time.monotonic() > patience:
            raise
        time.sleep(0.05)
until, sent, most = time.monotonic() + float(sys.argv[2]), 0, float(sys.argv[3])
while time.monotonic() < until and sent < most:
    sent += stream.send(bytes(1 << 14))
stream.shutdown(socket.SHUT_WR)
stream.recv(1)
"""


@dataclass(frozen=True)
class Flow:
    """What the receiver saw."""

    size_bytes: int
    duration_s: float
    longest_gap_s: float

    @property
    def rate_Bps(self) -> float:
        return self.size_bytes / self.duration_s


class Transfer:
    """A flow that is under way."""

    def __init__(
        self,
        lab: Lab,
        source: str,
        target: str,
        *,
        interface: str = "eth0",
        seconds: float = 240.0,
        size_bytes: float = 1e12,
    ) -> None:
        self.server = lab.spawn(target, [sys.executable, "-c", _SERVER])
        wait_for_line(self.server, "up")
        words = [lab.address(target, interface), str(seconds), str(size_bytes)]
        self.client = lab.spawn(source, [sys.executable, "-c", _CLIENT, *words])

    def result(self, timeout_s: float = 120.0) -> Flow:
        """Wait for the end and return what arrived; a sender that failed says why at once."""
        assert self.client.wait(timeout_s) == 0, self.client.stderr
        assert self.server.wait(timeout_s) == 0, self.server.stderr
        seen = json.loads(self.server.lines["stdout"][-1])
        return Flow(seen["bytes"], seen["last_s"] - seen["first_s"], seen["gap_s"])


def wait_for_line(process: Process, line: str, timeout_s: float = 120.0) -> None:
    """Wait until a process has printed a line."""
    import time

    until = time.monotonic() + timeout_s
    while line not in process.lines["stdout"]:
        assert time.monotonic() < until, f"{process.label} did not print {line!r}: {process.stderr}"
        assert process.exit_code is None or line in process.lines["stdout"], process.stderr
        time.sleep(0.005)
