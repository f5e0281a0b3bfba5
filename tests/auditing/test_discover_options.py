"""Options of discovery that were dropped or ended in a stack trace."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from syncline.cli.shell.app import run

XML = Path(__file__).parents[1] / "fabric" / "formats" / "fixtures" / "nccl" / "own-h100-nvswitch.xml"


def test_a_range_that_runs_backwards_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["discover", str(tmp_path / "cluster.yaml"), "--names", "gpu[64-1]"]) == 2
    said = capsys.readouterr().err
    assert 'cannot read "gpu[64-1]" as a list of hosts' in said
    assert "Traceback" not in said


@pytest.mark.skipif(not XML.exists(), reason=f"no {XML.name}")
def test_the_network_that_is_named_is_written_with_an_nccl_file(tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    command = ["discover", str(target), "--nccl", str(XML), "--names", "gpu[01-16]", "--gpu", "H100-SXM"]
    assert run([*command, "--network", "rail-optimized NDR"]) == 0
    written = yaml.safe_load(target.read_text("utf-8"))
    assert "rail" in str(written["network"])
