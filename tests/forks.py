"""`pytest --forks N`: tests are collected once, and N forks of the process that has collected them run their files.

Workers that import for themselves would each collect ten thousand tests again. A file is one fork's from its first test
to its last, so that what it sets up once is set up once; forks take files in their order, each when it is free. A fork
that ends in the middle of a test (a crash, a time-out) fails that test, and another fork goes on behind it.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import random
import selectors
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, NoReturn

import pytest

CHECK_S = 5.0
"""How often silent forks are checked: a process that a fork started may hold its pipe open after the fork has ended."""


Places = dict[pytest.Item, int]


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@dataclass
class Fork:
    """A process that runs tests, the pipe that sends it files to run, and the tests it has not finished."""

    pid: int
    commands: IO[str]
    buffer: bytes = b""
    left: list[pytest.Item] = field(default_factory=list)


class Forks:
    """Runs the collected tests in forks of this process and passes their reports on."""

    def __init__(self, num: int) -> None:
        self.num = num
        self.forks: dict[int, Fork] = {}
        self.selector = selectors.DefaultSelector()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly:
            return None
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all forks
        places = {item: number for number, item in enumerate(session.items)}
        files = (list(items) for _, items in itertools.groupby(session.items, key=file_of))
        try:
            for items in itertools.islice(files, self.num):
                self._give(self._forked(session), items, places)
            while self.forks:
                ready = [key.fd for key, _ in self.selector.select(CHECK_S)]
                for reports_fd in ready or list(self.forks):
                    received = os.read(reports_fd, 1 << 16) if ready else b""
                    if received:
                        self._report(session, self.forks[reports_fd], received)
                    elif ready or os.waitid(os.P_PID, self.forks[reports_fd].pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                        self._end(session, reports_fd, files, places)
                        continue
                    if received and not self.forks[reports_fd].left and not self.forks[reports_fd].commands.closed:
                        self._give(reports_fd, next(files, []), places)
        finally:
            for fork in self.forks.values():
                os.kill(fork.pid, signal.SIGKILL)
                os.waitpid(fork.pid, 0)
        return True

    def _forked(self, session: pytest.Session) -> int:
        """Start a fork and return the pipe that its reports arrive on."""
        (reports_fd, reports_end), (commands_fd, commands_end) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            for fd in (reports_fd, commands_end, *self.forks, *(fork.commands.fileno() for fork in self._busy())):
                os.close(fd)
            self.selector.close()  # it knows the parent's pipes by numbers that the fork gives to others
            _be_a_fork(session, reports_end, commands_fd)
        os.close(reports_end)
        os.close(commands_fd)
        self.forks[reports_fd] = Fork(pid, os.fdopen(commands_end, "w"))
        self.selector.register(reports_fd, selectors.EVENT_READ)
        return reports_fd

    def _busy(self) -> list[Fork]:
        return [fork for fork in self.forks.values() if not fork.commands.closed]

    def _give(self, reports_fd: int, items: list[pytest.Item], places: Places) -> None:
        """Send a fork a file to run; without one the fork ends."""
        fork = self.forks[reports_fd]
        fork.left = items
        if not items:
            fork.commands.close()
            return
        fork.commands.write(f"{places[items[0]]} {len(items)}\n")
        fork.commands.flush()

    def _report(self, session: pytest.Session, fork: Fork, received: bytes) -> None:
        hook = session.config.hook
        *lines, fork.buffer = (fork.buffer + received).split(b"\n")
        for kind, data in map(json.loads, lines):
            item = fork.left[0]
            if kind == "starts":
                hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            elif kind == "report":
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            else:
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                fork.left.pop(0)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)

    def _end(
        self, session: pytest.Session, reports_fd: int, files: Iterator[list[pytest.Item]], places: Places
    ) -> None:
        """Reap a fork. A test that it ended in the middle of has failed; another fork runs the rest of the file."""
        fork = self.forks.pop(reports_fd)
        self.selector.unregister(reports_fd)
        os.close(reports_fd)
        status = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
        if fork.commands.closed:
            return
        fork.commands.close()
        for item in fork.left[:1]:
            reason = f"the fork that ran it ended with status {status}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, "call")
            session.config.hook.pytest_runtest_logreport(report=report)
        if items := fork.left[1:] or next(files, []):
            self._give(self._forked(session), items, places)


class SilentReporter:
    """Stands in for the terminal reporter in a fork: the parent reports."""

    def __init__(self, writer: Any) -> None:
        self._tw = writer  # a time-out is written there


class ReportSender:
    """Sends a fork's reports to the parent."""

    def __init__(self, config: pytest.Config, pipe: IO[str]) -> None:
        self.config, self.pipe = config, pipe

    def send(self, kind: str, data: Any = None) -> None:
        self.pipe.write(json.dumps([kind, data], default=str) + "\n")
        self.pipe.flush()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.send("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def _be_a_fork(session: pytest.Session, reports_end: int, commands_fd: int) -> NoReturn:
    """Run the files that the parent sends, until it closes the pipe."""
    status = 1
    try:
        _apart(session.config)
        sender = ReportSender(session.config, os.fdopen(reports_end, "w"))
        session.config.pluginmanager.register(sender)
        with os.fdopen(commands_fd) as commands:
            for line in commands:
                first, count = map(int, line.split())
                _run(session, session.items[first : first + count], sender)
        session._setupstate.teardown_exact(None)
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        atexit._run_exitfuncs()
        os._exit(status)


def _apart(config: pytest.Config) -> None:
    """Give the fork its own captured output, reporter, temporary folder and random numbers."""
    random.seed()
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    reporter: Any = config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(SilentReporter(reporter._tw), "terminalreporter")
    folders: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.getbasetemp() / f"fork-{os.getpid()}"
    folders._basetemp.mkdir()


def _run(session: pytest.Session, items: list[pytest.Item], sender: ReportSender) -> None:
    """Run the tests of a file; session fixtures stay for the next."""
    another = next((item for item in (session.items[0], session.items[-1]) if file_of(item) != file_of(items[0])), None)
    session._setupstate.teardown_exact(items[0])
    for item, following in zip(items, [*items[1:], another], strict=True):
        sender.send("starts")
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        sender.send("ended")
