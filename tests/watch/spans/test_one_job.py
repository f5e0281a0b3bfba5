"""Several jobs at one socket: one is followed, the others are told of and left out."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.watch.scenes import come

from syncline.runtime.span_writer import JOB_VARIABLES, SpanWriter, job_name
from syncline.watch.clock import Clock
from syncline.watch.spans import one_job
from syncline.watch.spans.one_job import SILENT_S, TOLD_S, OneJob, Reporter
from syncline.watch.spans.unix_socket import SocketSpans

SPAN = {"rank": 0, "kind": "collective", "name": "all_reduce", "start_s": 1.0, "end_s": 1.5, "step": 7}
WRITE = """
import sys
from syncline.runtime.span_writer import SpanWriter
SpanWriter(sys.argv[1]).send([{"rank": 0, "name": sys.argv[2], "start_s": 1.0, "end_s": 1.5}])
sys.stdin.read()
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits."""
    waits = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        yield waits
    finally:
        waits.kill()
        waits.communicate()


def test_the_first_job_is_followed_until_its_processes_are_gone(process: subprocess.Popen[bytes]) -> None:
    first, second = Reporter(0, process.pid, "4711"), Reporter(0, os.getpid(), "4712")
    with closing(OneJob()) as jobs:
        assert jobs.takes(first, 0.0)
        assert not jobs.takes(second, 1.0)
        assert jobs.takes(first._replace(pid=os.getppid()), 2.0)  # another process of the same job
        assert jobs.problem(2.0).startswith("shows job 4711 of root; job 4712 of root reports here too")
        jobs.close()
        jobs.takes(first, 3.0)
        assert not jobs.takes(second, 1e6)  # a hang is silent, and stays what is watched
        process.kill()
        process.wait()
        assert jobs.takes(second, 1e6)
        assert jobs.problem(1e6) == ""
        assert not jobs.takes(first, 1e6)


def test_users_are_told_apart_by_what_the_kernel_says() -> None:
    with closing(OneJob()) as jobs:
        assert jobs.takes(Reporter(0, os.getpid(), "4711"), 0.0)
        assert not jobs.takes(Reporter(54321, os.getppid(), "4711"), 0.0)
        assert "job 4711 of user 54321" in jobs.problem(0.0)
        assert jobs.problem(TOLD_S) == ""


def test_a_job_whose_processes_cannot_be_seen_is_over_when_it_is_silent_for_long() -> None:
    hidden, other = Reporter(0, 0, "a"), Reporter(0, os.getpid(), "b")
    with closing(OneJob()) as jobs:
        assert jobs.takes(hidden, 0.0)
        assert not jobs.takes(other, SILENT_S)
        assert jobs.takes(other, SILENT_S + 1.0)


def test_processes_that_cannot_be_watched_are_as_good_as_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int) -> int:
        raise PermissionError(1, "seccomp")

    one, other = Reporter(0, os.getpid(), "a"), Reporter(0, os.getppid(), "b")
    for what, value in (("MAX_PROCESSES", 0), ("os", SimpleNamespace(pidfd_open=refused, close=os.close))):
        monkeypatch.setattr(one_job, what, value)
        with closing(OneJob()) as jobs:
            assert jobs.takes(one, 0.0)
            assert not jobs.takes(other, SILENT_S)
            assert jobs.takes(other, SILENT_S + 1.0)
        monkeypatch.undo()


def test_ended_processes_make_room(process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_job, "MAX_PROCESSES", 1)
    with closing(OneJob()) as jobs:
        jobs.takes(Reporter(0, process.pid, "a"), 0.0)
        process.kill()
        process.wait()
        jobs.takes(Reporter(0, os.getpid(), "a"), 1.0)
        assert not jobs.takes(Reporter(0, os.getppid(), "b"), 1e6)  # the second process is known, and lives


def test_a_process_that_goes_on_under_another_name_is_still_followed() -> None:
    with closing(OneJob()) as jobs:
        assert jobs.takes(Reporter(0, os.getpid(), "localhost:29500"), 0.0)
        assert jobs.takes(Reporter(0, os.getpid(), "localhost:29501"), 1.0)


def test_the_job_that_was_asked_for_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_job, "MAX_JOBS", 2)
    with closing(OneJob("b")) as jobs:
        assert not any(jobs.takes(Reporter(0, os.getpid(), name), 0.0) for name in "acde")
        assert jobs.problem(0.0).startswith("shows job b; job a of root, job c of root reports here too")
        assert jobs.takes(Reporter(0, os.getpid(), "b"), 0.0)


def test_ranks_of_two_jobs_do_not_become_one(tmp_path: Path) -> None:
    with closing(SocketSpans(tmp_path / "s", Clock())) as source:
        command = [sys.executable, "-c", WRITE, str(tmp_path / "s")]
        ranks = []
        try:
            for name in ("first", "second"):
                environment = {**os.environ, "SYNCLINE_JOB": name}
                ranks.append(subprocess.Popen([*command, name], stdin=subprocess.PIPE, env=environment))
                come(source, len(ranks))
            assert [event.name for event in source.read()] == ["first"]  # type: ignore[union-attr]
            assert "job second of" in source.problem
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()


def test_what_a_job_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*JOB_VARIABLES, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(variable, raising=False)
    assert job_name() == ""
    monkeypatch.setenv("MASTER_ADDR", "gpu-00")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert job_name() == "gpu-00:29500"
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert job_name() == "4711"
    with (
        closing(SocketSpans(tmp_path / "s", Clock(), job="4711")) as source,
        closing(SpanWriter(source.path)) as writer,
    ):
        writer.send([SPAN, SPAN])
        come(source, 1)
        assert len(source.read()) == 2


def test_strange_names_are_shown_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    with (
        closing(SocketSpans(tmp_path / "s", Clock(), job="mine")) as source,
        closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as out,
    ):
        for job in ("\x1b[2J" + "x" * 500, ["no"], None, 7):
            out.sendto(json.dumps({**SPAN, "job": job}).encode(), str(source.path))
        come(source, 4)
        assert source.read() == []
        assert "\x1b" not in source.problem
        assert len(source.problem) < 400
