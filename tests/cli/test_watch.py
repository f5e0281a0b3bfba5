"""`syncline watch` and `syncline top` as their users meet them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.watch import trees
from tests.watch.test_replay import simulated

from syncline.cli import app
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
    assert re.match(r"\d looks, 2 links, 0 alerts\n", out)
    assert "h/eth0 tx" in out
    assert "0.0% of 25 Gb/s" in out


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
        (["--serve", "--address", "0.0.0.0"], "WatchError: listening on 0.0.0.0 without a token or TLS"),
        (["--replay", "a", "--agent", "b"], "UsageError: --replay and --agent each show something else"),
        (["--replay", "a", "--bursts", "eth0"], "UsageError: --bursts is for watching this host; --replay shows"),
        (["--agent", "http://a:1", "--expect", "b"], "UsageError: --expect is for watching this host; --agent shows"),
        (["--replay", "/no/such/file"], "no/such/file"),
        (["--for", "soon"], 'UnitError: cannot read time "soon"'),
        (["--agent", "host-00"], 'WatchError: "host-00" is not an address'),
        (["--interfaces", "("], "is not a pattern"),
        (["--token-file", "/no/such/token"], "cannot read the token"),
        (["--gpus", "-3"], "--gpus -3 cannot be"),
        (["--price", "nan"], "--price nan cannot be"),
        (["--nics", "eth0"], "Give --cluster too"),
        (["--history", "h.db", "--history-size", "1"], "a history of 1 bytes holds nothing"),
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
    status, _, err = run(capsys, "top")
    assert (status, err) == (2, "UsageError: syncline top needs a terminal.\n  Use `syncline watch`, or add --json.\n")


def test_a_served_agent_answers_and_ends_when_interrupted(tmp_path: Path) -> None:
    trees.proc_net_dev(tmp_path, eth0=(10, 20))
    command = [
        sys.executable,
        "-m",
        "syncline",
        "watch",
        "--serve",
        "--port",
        "0",
        "--root",
        str(tmp_path),
        "--history",
        str(tmp_path / "h.db"),
    ]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert agent.stderr is not None
    try:
        line = agent.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert url is not None, line
        end = time.monotonic() + 10
        text = ""
        while "node_network_receive_bytes_total" not in text and time.monotonic() < end:
            time.sleep(0.1)
            text = urllib.request.urlopen(url[0] + "metrics", timeout=5).read().decode()
        assert 'node_network_receive_bytes_total{device="eth0"} 10.0' in text
    finally:
        os.kill(agent.pid, signal.SIGINT)
        out, err = agent.communicate(timeout=20)
    assert agent.returncode == 0, err
    assert "2 links, 0 alerts" in out
