"""`syncline share` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.cli.shell.app import run

CLUSTER = """
hosts: 4
host: 8 x H100
network: {topology: leaf-spine, link: 100GbE, oversubscription: "8:1", hosts_per_leaf: 2}
"""
JOBS = """
jobs:
  - {name: a, hosts: "0,2", step: {compute: 10ms, exchange: 100MB}}
  - {name: b, hosts: "1,3", step: {compute: 10ms, exchange: 100MB}}
"""


def test_text_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    (tmp_path / "jobs.yaml").write_text(JOBS)
    words = ["share", str(tmp_path / "c.yaml"), str(tmp_path / "jobs.yaml")]
    assert run([*words, "--html", str(tmp_path / "p.html")]) == 0
    assert "interleaved in slots" in capsys.readouterr().out
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    assert run([*words, "--json"]) == 0
    (epoch,) = json.loads(capsys.readouterr().out)["epochs"]
    assert epoch["jobs"][1]["slots"].count(",") == 1


def test_a_wrong_key_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs.yaml").write_text(JOBS + "    colour: red\n")
    assert run(["share", "h100-64-rail", str(tmp_path / "jobs.yaml")]) == 2
    assert "jobs.yaml" in capsys.readouterr().err
