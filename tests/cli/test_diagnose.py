from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from syncline.cli.shell.app import run

LINE = "n1:1:2 [0] init.cc:795 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000\n"
RULE = (
    "- id: ours.thing\n  match: {text: our thing}\n  meaning: It is ours.\n  fix: Do it.\n  example: |\n    our thing\n"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_text(LINE)
    return path


def test_text(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(log)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("CRITICAL on n1: two ranks share a GPU (nccl.gpu.duplicate, 90% sure)\nnext: ssh n1 ")
    assert "fix: Start as many ranks as GPUs" in out


def test_a_paste_on_stdin_needs_no_dash(log: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    with log.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert run(["diagnose"]) == 0
    assert capsys.readouterr().out.startswith("CRITICAL on n1: two ranks share a GPU")


def test_a_table_of_nccl_tests_leads_to_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = "  1073741824  268435456  float  sum  -1  22000  48.80  91.51  0  22010  48.78  91.47  0"
    (tmp_path / "perf.log").write_text(row + "\n")
    assert run(["diagnose", str(tmp_path / "perf.log")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("OK: nccl-tests, and no line at error level or in words of failure")
    assert f"next: syncline bench --read {tmp_path / 'perf.log'} --cluster CLUSTER" in out


def test_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(log), str(log.parent / "missing"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["causes"][0]["rule"] == "nccl.gpu.duplicate"
    assert answer["unread"][0]["reason"] == "No such file or directory"


@pytest.mark.parametrize(("style", "status"), [("none", 0), ("nagios", 2)])
def test_exit_status(log: Path, style: str, status: int) -> None:
    assert run(["diagnose", str(log), "--exit", style]) == status


def test_rules_of_ones_own(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULE)
    log.write_text("here is our thing\n")
    assert run(["diagnose", str(log), "--rules", str(rules)]) == 0
    assert "ours.thing" in capsys.readouterr().out
    other = RULE.replace("ours.thing", "ours.other").replace("    our thing", "    another")
    rules.write_text(RULE + other)
    assert run(["diagnose", "--check-rules", "--rules", str(rules)]) == 2
    told = capsys.readouterr().err
    assert 'the example of rule "ours.other" is not matched by it.' in told and "ours.thing" not in told


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rules"]) > 60
    assert run(["diagnose", "--list"]) == 0
    assert "torch.watchdog.timeout" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rules", "/nowhere/x.yaml", "a.log"], "there is no file"),
        (["--exit", "odd", "a.log"], 'no exit style is called "odd"'),
        (["--cluster", "nothing-here", "a.log"], "nothing-here"),
    ],
)
def test_mistakes(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_standard_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "syncline", "diagnose", "-"], input=LINE, capture_output=True, text=True, check=True
    )
    assert "nccl.gpu.duplicate" in done.stdout and "line 1:" in done.stdout


def test_nothing_read_is_no_good_news(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(tmp_path / "missing")]) == 2
    assert "no log could be read" in capsys.readouterr().err
    assert run(["diagnose", str(tmp_path / "missing"), "--exit", "nagios"]) == 3
    assert capsys.readouterr().out.startswith("UNKNOWN: no log could be read.")
