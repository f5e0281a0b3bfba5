"""`syncline scenario` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.cli.app import run

TEXT = """
cluster: small.yaml
jobs:
  - {name: a, size: 64MiB, hosts: 0-3, ranks: 4, placement: spread}
  - {name: b, size: 64MiB, hosts: 0-3, ranks: 4, placement: spread}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text("hosts: 4\nhost: 8 x H100\nnetwork: rail-optimized NDR\n")
    path = tmp_path / "shared.yaml"
    path.write_text(TEXT)
    return path


def test_the_cluster_beside_the_scenario_is_found(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = scenario.with_name("trace.json")
    assert run(["scenario", str(scenario), "--json", "--trace", str(trace)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [job["name"] for job in answer["jobs"]] == ["a", "b"]
    assert answer["jobs"][0]["slowdown"] == pytest.approx(2, rel=0.01)
    assert json.loads(trace.read_text())["traceEvents"]


def test_the_first_line_says_who_loses(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenario", str(scenario)]) == 0
    assert "a loses most, 1.99x its time alone" in capsys.readouterr().out.splitlines()[0]


def test_a_scenario_without_a_cluster_says_what_to_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("jobs: [{name: a, size: 1MiB}]\n")
    assert run(["scenario", str(path)]) == 2
    assert "names no cluster" in capsys.readouterr().err
