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

LOOK_S = 5.0
"""How often silent forks are looked after: what they started may hold their pipe open when they have ended."""


Places = dict[pytest.Item, int]


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@dataclass
class Fork:
    """A process that runs tests, the pipe that tells it what to run, and the tests it has not ended."""

    pid: int
    words: IO[str]
    heard: bytes = b""
    left: list[pytest.Item] = field(default_factory=list)


class Forks:
    """Runs the collected tests in forks of this process, and reports what they say."""

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
                ready = [key.fd for key, _ in self.selector.select(LOOK_S)]
                for hear in ready or list(self.forks):
                    said = os.read(hear, 1 << 16) if ready else b""
                    if said:
                        self._report(session, self.forks[hear], said)
                    elif ready or os.waitid(os.P_PID, self.forks[hear].pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                        self._end(session, hear, files, places)
                        continue
                    if said and not self.forks[hear].left and not self.forks[hear].words.closed:
                        self._give(hear, next(files, []), places)
        finally:
            for fork in self.forks.values():
                os.kill(fork.pid, signal.SIGKILL)
                os.waitpid(fork.pid, 0)
        return True

    def _forked(self, session: pytest.Session) -> int:
        """Return the pipe on which a new fork is heard."""
        (hear, say), (listen, ask) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            for fd in (hear, ask, *self.forks, *(fork.words.fileno() for fork in self._asked())):
                os.close(fd)
            _be_a_fork(session, say, listen)
        os.close(say)
        os.close(listen)
        self.forks[hear] = Fork(pid, os.fdopen(ask, "w"))
        self.selector.register(hear, selectors.EVENT_READ)
        return hear

    def _asked(self) -> list[Fork]:
        return [fork for fork in self.forks.values() if not fork.words.closed]

    def _give(self, hear: int, items: list[pytest.Item], places: Places) -> None:
        """Have a fork run a file; without one it ends."""
        fork = self.forks[hear]
        fork.left = items
        if not items:
            fork.words.close()
            return
        fork.words.write(f"{places[items[0]]} {len(items)}\n")
        fork.words.flush()

    def _report(self, session: pytest.Session, fork: Fork, said: bytes) -> None:
        hook = session.config.hook
        *lines, fork.heard = (fork.heard + said).split(b"\n")
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

    def _end(self, session: pytest.Session, hear: int, files: Iterator[list[pytest.Item]], places: Places) -> None:
        """Bury a fork; where it ended in the middle of a test, fail that and let another go on behind it."""
        fork = self.forks.pop(hear)
        self.selector.unregister(hear)
        os.close(hear)
        status = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
        if fork.words.closed:
            return
        fork.words.close()
        for item in fork.left[:1]:
            words = f"the fork that ran it ended with status {status}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
            session.config.hook.pytest_runtest_logreport(report=report)
        if items := fork.left[1:] or next(files, []):
            self._give(self._forked(session), items, places)


class Mute:
    """In place of the reporter: forks say what they do to the process that reports."""

    def __init__(self, writer: Any) -> None:
        self._tw = writer  # a time-out is written there


class Said:
    """Passes a fork's reports on."""

    def __init__(self, config: pytest.Config, say: IO[str]) -> None:
        self.config, self.say = config, say

    def tell(self, kind: str, data: Any = None) -> None:
        self.say.write(json.dumps([kind, data], default=str) + "\n")
        self.say.flush()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tell("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def _be_a_fork(session: pytest.Session, say: int, listen: int) -> NoReturn:
    """Run the files that are asked for, until nothing more is."""
    status = 1
    try:
        _apart(session.config)
        said = Said(session.config, os.fdopen(say, "w"))
        session.config.pluginmanager.register(said)
        with os.fdopen(listen) as words:
            for line in words:
                first, count = map(int, line.split())
                _run(session, session.items[first : first + count], said)
        session._setupstate.teardown_exact(None)
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        atexit._run_exitfuncs()
        os._exit(status)


def _apart(config: pytest.Config) -> None:
    """Share nothing that is written: neither captured output, nor a screen, a folder or random numbers."""
    random.seed()
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    reporter: Any = config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(Mute(reporter._tw), "terminalreporter")
    folders: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.getbasetemp() / f"fork-{os.getpid()}"
    folders._basetemp.mkdir()


def _run(session: pytest.Session, items: list[pytest.Item], said: Said) -> None:
    """Run the tests of a file; what belongs to the whole session stays for the next."""
    another = next((item for item in (session.items[0], session.items[-1]) if file_of(item) != file_of(items[0])), None)
    session._setupstate.teardown_exact(items[0])
    for item, following in zip(items, [*items[1:], another], strict=True):
        said.tell("starts")
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        said.tell("ended")
