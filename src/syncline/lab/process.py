"""Processes of a lab as seen from outside: one (`Process`) or one per rank (`Job`), their output and exit codes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syncline.errors import LabError

OnLine = Callable[["Process", str, str], None]
"""Called with the process, "stdout" or "stderr", and a line without its end."""
END_GRACE_S = 2.0


class Process:
    """One process in a host of the lab."""

    def __init__(self, host: str, rank: int | None, send_signal: Callable[[Process, int], None]) -> None:
        self.host = host
        self.rank = rank
        self.number = 0
        self.pid = 0
        """Its number inside the lab."""
        self.exit_code: int | None = None
        """None while it runs; negative: the signal that ended it."""
        self.ended_s: float | None = None
        """When it ended, on the monotonic clock."""
        self.lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self.changed = threading.Condition()
        self.pipes: tuple[int, ...] = ()
        """The ends to read of its stdout and stderr."""
        self.lost: str = ""
        self.line_error: Exception | None = None
        """What `on_line` raised, if it did."""
        self._send_signal = send_signal

    @property
    def label(self) -> str:
        """Rank and host, as output is marked with."""
        return self.host if self.rank is None else f"{self.rank} {self.host}"

    @property
    def stdout(self) -> str:
        """What it has written so far, where output is kept."""
        return "".join(f"{line}\n" for line in self.lines["stdout"])

    @property
    def stderr(self) -> str:
        """What it has written to stderr so far, where output is kept."""
        return "".join(f"{line}\n" for line in self.lines["stderr"])

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end and return the exit code; all its output has been read. TimeoutError if it takes longer."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.exit_code is not None or self.lost, timeout_s):
                raise TimeoutError(f"{self.label} still runs after {timeout_s} s")
        if self.exit_code is None:
            raise LabError(self.lost)
        return self.exit_code

    def pause(self, time_s: float) -> bool:
        """Wait for its end, at most so long; says whether it has ended."""
        with self.changed:
            return self.changed.wait_for(lambda: self.exit_code is not None or bool(self.lost), time_s)

    def signal(self, number: int) -> None:
        """Send a signal to the process and its children."""
        if self.exit_code is None:
            self._send_signal(self, number)

    def kill(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)


@dataclass(frozen=True)
class RankResult:
    """How one process ended, and what it wrote where output is kept."""

    host: str
    rank: int | None
    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class RunResult:
    """How a job ended: the exit code of the first rank that failed, 0 if none did, and every rank's own."""

    exit_code: int
    first_failure: RankResult | None
    ranks: tuple[RankResult, ...]
    elapsed_s: float

    @property
    def exit_status(self) -> int:
        """The exit code as a shell gives it: 128 + signal where a signal ended the rank."""
        return self.exit_code if self.exit_code >= 0 else 128 - self.exit_code


class LabJob:
    """The processes of one command, one per rank."""

    def __init__(self, processes: Sequence[Process], started_s: float) -> None:
        self.processes = tuple(processes)
        self.started_s = started_s

    def wait(self, timeout_s: float | None = None) -> RunResult:
        """Wait for all; the first that fails ends the others. TimeoutError (and all ended) if it takes longer."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        waiting = list(self.processes)
        while waiting:
            if any(process.lost for process in waiting):
                waiting[0].wait(0)
            waiting = [process for process in waiting if process.exit_code is None]
            for process in self.processes:
                if process.line_error is not None:
                    self.end()
                    raise process.line_error
            if waiting and any(p.exit_code for p in self.processes):
                self.end()
                break
            if deadline is not None and time.monotonic() > deadline and waiting:
                self.end()
                raise TimeoutError(f"{len(waiting)} of {len(self.processes)} ranks still ran after {timeout_s} s")
            if waiting:
                waiting[0].pause(0.02)
        return self._result()

    def end(self, grace_s: float = END_GRACE_S) -> None:
        """End all that still run: politely first, then not."""
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            running = [process for process in self.processes if process.exit_code is None and not process.lost]
            for process in running:
                process.signal(number)
                process.signal(signal.SIGCONT)  # a paused process cannot hear the rest
            until = time.monotonic() + patience_s
            for process in running:
                process.pause(max(0.0, until - time.monotonic()))

    def _result(self) -> RunResult:
        results = {
            process: RankResult(process.host, process.rank, process.wait(10.0), process.stdout, process.stderr)
            for process in self.processes
        }
        failed = [process for process in self.processes if results[process].exit_code]
        first = min(failed, key=lambda process: process.ended_s or 0.0) if failed else None
        elapsed_s = max((process.ended_s or 0.0 for process in self.processes), default=0.0) - self.started_s
        return RunResult(
            results[first].exit_code if first else 0,
            results[first] if first else None,
            tuple(results.values()),
            max(0.0, elapsed_s),
        )
