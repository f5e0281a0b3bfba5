from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.cli.shell.app import run


def test_a_cluster_alone_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nccl", "h100-64-rail", "--ranks", "16"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("h100-64-rail: 2 hosts x 8 GPUs, NCCL 2.27")
    assert "(fill in: no host was read)" in out and "why: " in out and "expected: " in out


def test_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["nccl", "llama3-24k-roce", "--ranks", "64", "--nccl", "2.18", "--out", str(tmp_path / "o"), "--json"]) == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["nccl"] == "2.18"
    assert (tmp_path / "o" / "nccl.env").read_text().count("export NCCL_IB_GID_INDEX=3") == 1
    assert len(answer["written"]) == len(answer["files"])


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, env = tmp_path / "nccl.log", tmp_path / "nccl.env"
    log.write_text(
        "n1:1:2 [0] NCCL INFO comm 0x5 rank 0 nranks 16 cudaDev 0\n"
        "n2:1:2 [0] NCCL INFO comm 0x5 rank 8 nranks 16 cudaDev 0\n"
        "n1:1:2 [0] NCCL INFO Using network Socket\nn1:1:2 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 20.\n"
    )
    env.write_text("# why\nexport NCCL_IB_TIMEOUT=22\n")
    assert run(["nccl", "check", str(log), "--cluster", "h100-64-rail", "--env", str(env)]) == 0
    out = capsys.readouterr().out
    assert "NO      network in use: n1 on Socket (expected IB)" in out
    assert "NO      NCCL_IB_TIMEOUT: 20 (expected 22)" in out
    assert run(["nccl", "check", str(log), "--cluster", "h100-64-rail", "--json"]) == 0
    states = {row["what"]: row["state"] for row in json.loads(capsys.readouterr().out)["effects"]}
    assert states["network in use"] == "no" and states["NICs in use"] == "unknown"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tpu-v4-pod"], "do not run NCCL"),
        (["no-such-cluster"], "no-such-cluster"),
        (["h100-64-rail", "--out", "/dev/null/x"], "is a file, not a folder"),
        (["check", "x.log"], "Missing option"),
    ],
)
def test_mistakes(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nccl", *arguments]) == 2
    assert text in capsys.readouterr().err
