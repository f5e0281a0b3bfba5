"""`syncline watch` and `syncline watch --terminal` as their users meet them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.watch import trees
from tests.watch.test_replay import simulated

from syncline.cli.shell import app
from syncline.timeline import save


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = app.run(list(arguments))
    got = capsys.readouterr()
    return status, got.out, got.err


def test_a_short_look_at_a_captured_host(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trees.proc_net_dev(tmp_path, eth0=(10, 20))
    trees.interface(tmp_path, "eth0", 25_000)
    status, out, err = run(capsys, "watch", "--for", "600ms", "--root", str(tmp_path), "--host", "h")
    assert (status, err) == (0, "")
    assert re.match(r"\d looks?, 2 links, 0 alerts\n", out)
    assert "h/eth0 tx" in out
    assert "0.0% of 25 Gb/s" in out
    wrong = ("--interfaces", "ib0", "--spans-socket", str(tmp_path / "socket"))
    _, out, _ = run(capsys, "watch", "--for", "1ms", "--root", str(tmp_path), "--host", "h", *wrong)
    assert 'no interface matches "ib0"' in out
    below = str(tmp_path / "proc" / "net" / "dev" / "socket")
    status, _, err = run(capsys, "watch", "--for", "1ms", "--root", str(tmp_path), "--spans-socket", below)
    assert status == 2 and "cannot listen for spans: Not a directory" in err


def test_json_is_one_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trees.proc_net_dev(tmp_path, eth0=(10, 20))
    status, out, _ = run(capsys, "watch", "--for", "300ms", "--root", str(tmp_path), "--host", "h", "--json")
    data = json.loads(out)
    assert status == 0
    assert [row["link"] for row in data["links"]] == ["h/eth0 tx", "h/eth0 rx"]
    assert data["alerts"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--serve", "--address", "0.0.0.0"], "WatchError: listening on 0.0.0.0 without a token"),
        (
            ["--replay", "a", "--agent", "b"],
            "UsageError: --replay and --agent cannot be combined: each shows something other",
        ),
        (["--replay", "a", "--ras", "here"], "UsageError: --ras is for watching this host; --replay shows"),
        (["--agent", "http://a:1", "--expect", "b"], "UsageError: --expect is for watching this host; --agent shows"),
        (["--replay", "/no/such/file"], "no/such/file"),
        (["--for", "soon"], 'UnitError: cannot read time "soon"'),
        (["--agent", "host-00"], 'WatchError: "host-00" is not an address'),
        (["--interfaces", "("], "is not a pattern"),
        (["--token-file", "/no/such/token"], "cannot read the token"),
        (["--gpus", "-3"], "--gpus must be positive, got -3"),
        (["--price", "nan"], "--price must be positive, got nan"),
        (["--nics", "eth0"], "Give --cluster too"),
        (["--history", "h.db", "--history-size", "1"], "a history of 1 bytes is too small"),
        (["--otel", "collector", "--for", "0s"], '--otel "collector" is not an address'),
        (["--tls-cert", __file__, "--tls-key", __file__], "no certificate with its key"),
    ],
)
def test_what_cannot_be_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    status, out, err = run(capsys, "watch", *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_a_replay_without_a_page_ends_with_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save(simulated(), tmp_path / "run.timeline")
    (tmp_path / "expected.yaml").write_text("step: 200us\ncollectives: {AllReduce: 100us}\n")
    expect = ["--expect", str(tmp_path / "expected.yaml")]
    status, out, err = run(capsys, "watch", "--replay", str(tmp_path / "run.timeline"), "--speed", "100", *expect)
    assert (status, err) == (0, "")
    assert out.startswith("240 looks, 2 links, 0 alerts")
    assert "p50 125 us, p99 125 us, predicted 100 us" in out


def test_top_without_a_terminal_says_what_to_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _, err = run(capsys, "watch", "--terminal")
    assert (status, err) == (
        2,
        "UsageError: --terminal needs a terminal.\n  Leave it out, or add --json.\n",
    )


def test_sigterm_ends_a_watch_and_takes_its_socket_along(tmp_path: Path) -> None:
    trees.proc_net_dev(tmp_path, eth0=(10, 20))
    socket = tmp_path / "spans.sock"
    command = [sys.executable, "-m", "syncline", "watch", "--root", str(tmp_path), "--spans-socket", str(socket)]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not socket.exists() and time.monotonic() < end and agent.poll() is None:
        time.sleep(0.1)
    assert socket.exists()
    time.sleep(1.0)  # until the watch has begun and listens to signals
    agent.terminate()
    _, err = agent.communicate(timeout=120)
    assert agent.returncode in (0, 143), err  # 143: it came before the first look
    assert not socket.exists()


def test_a_watch_that_breaks_says_so_by_its_exit_status(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syncline.watch.agent import Agent

    def broken(self: Agent, stop: object) -> None:
        raise RuntimeError("a defect of ours")

    trees.proc_net_dev(tmp_path, eth0=(10, 20))
    monkeypatch.setattr(Agent, "run", broken)
    status, _, err = run(capsys, "watch", "--for", "5s", "--root", str(tmp_path))
    assert status not in (0, 2)
    assert "a defect of ours" in err


@contextmanager
def served(root: Path, sigint: signal.Handlers) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield an agent that serves, with its address; it does not outlive the test."""
    command = [sys.executable, "-m", "syncline", "watch", "--serve", "--port", "0", "--root", str(root),
               "--history", str(root / "h.db")]  # fmt: skip
    # A background shell has its children ignore SIGINT, so whoever means SIGINT says so.
    with subprocess.Popen(
        command, stdout=PIPE, stderr=PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, sigint)
    ) as agent:
        try:
            assert agent.stderr is not None
            line = agent.stderr.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert url is not None, line
            yield agent, url[0]
        finally:
            agent.kill()


@pytest.mark.parametrize(
    ("number", "sigint"),
    [(signal.SIGINT, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_IGN)],
    ids=["interrupted", "terminated"],
)
def test_a_served_agent_answers_and_ends_when_told(
    tmp_path: Path, number: signal.Signals, sigint: signal.Handlers
) -> None:
    trees.proc_net_dev(tmp_path, eth0=(10, 20))
    with served(tmp_path, sigint) as (agent, url):
        text, end = "", time.monotonic() + 60
        while "syncline_network_receive_bytes_total" not in text and time.monotonic() < end:
            time.sleep(0.1)
            text = urllib.request.urlopen(url + "metrics", timeout=60).read().decode()
        assert 'syncline_network_receive_bytes_total{device="eth0"} 10.0' in text
        agent.send_signal(number)
        if number == signal.SIGTERM:
            agent.send_signal(number)  # told twice, it still ends in order
        out, err = agent.communicate(timeout=60)
        assert agent.returncode == 0, err
        assert "2 links, 0 alerts" in out
