"""`syncline scenario` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.cli.shell.app import run

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
    assert "a loses most, 2.00x its time alone" in capsys.readouterr().out.splitlines()[0]


def test_a_scenario_without_a_cluster_says_what_to_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("jobs: [{name: a, size: 1MiB}]\n")
    assert run(["scenario", str(path)]) == 2
    assert "names no cluster" in capsys.readouterr().err


FLAT = """
hosts: 8
host: {gpu: H100, gpus: 1, nics: 1}
network: {topology: fat-tree, tiers: 2, link: NDR, hosts_per_leaf: 4}
"""
BUSY = """
cluster: flat.yaml
jobs:
  - {name: train, size: 4MiB, repeat: 2, compute: 10us}
  - {name: backup, collective: alltoall, algorithm: direct, size: 8MiB, priority: 1}
  - {name: last, size: 1MiB, hosts: 0-3, after: [train], priority: 1}
events:
  - {at: 50us, link: leaf-00 <-> spine-00, which: 0, reroute: 20us}
  - {at: 200us, link: leaf-00 <-> spine-00, which: 0, rate: full}
traffic:
  - {from: "4", to: "0", rate: 100Gbps, start: 0s, for: 100us, priority: 1}
"""


def packets(folder: Path, text: str, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict:
    (folder / "flat.yaml").write_text(FLAT)
    (folder / "busy.yaml").write_text(text)
    assert run(["scenario", str(folder / "busy.yaml"), "--level", "packet", "--json", *words]) == status
    found: dict = json.loads(capsys.readouterr().out)
    return found


def test_jobs_failures_and_traffic_are_played_packet_by_packet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    words = ("--transport", "srd", "--background", "0.1:hadoop", "--seed", "3")
    got = packets(tmp_path, BUSY, capsys, *words, "--trace", str(trace))
    train, backup, last = got["jobs"]
    assert [job["traffic_class"] for job in got["jobs"]] == [0, 1, 1]
    assert train["completion"]["count"] == 2 * 14 * 8
    assert backup["slowdown"] > 1.5 and train["slowdown"] > 1.5  # one waits behind the other, which meets the cut link
    assert last["start_s"] == train["end_s"]
    assert train["alone_s"] == pytest.approx(train["flow_s"], rel=0.1)
    assert [other["name"] for other in got["others"]] == ["4 -> 0", "background"]
    for name, counter in (("resent", "resent_packets"), ("marks", "marks"), ("drops", "drops")):
        assert sum(row["tally"][name] for row in [*got["jobs"], *got["others"]]) == got["counters"][counter]
    assert 0 < sum(row["tally"]["lost"] for row in [*got["jobs"], *got["others"]]) <= got["counters"]["dead"]
    assert trace.stat().st_size > 100
    again = packets(tmp_path, BUSY, capsys, *words)
    assert again["jobs"] == got["jobs"]


def test_a_packet_scenario_speaks_to_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packets(tmp_path, BUSY, capsys)
    assert run(["scenario", str(tmp_path / "busy.yaml"), "--level", "packet"]) == 0
    text = capsys.readouterr().out
    assert "scenario on flat (infiniband, ecmp): done after" in text
    assert "class 1: priority 1, weight 1" in text


def test_weights_share_a_link_and_a_cap_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = "cluster: flat.yaml\njobs:\n  - {name: a, size: 8MiB, hosts: '0,4', weight: 3}\n"
    got = packets(tmp_path, pair + "  - {name: b, size: 8MiB, hosts: '0,4'}\n", capsys, "--transport", "roce")
    a, b = got["jobs"]
    assert got["classes"] == ["priority 0, weight 3", "priority 0, weight 1"]
    assert a["slowdown"] == pytest.approx(4 / 3, rel=0.1)
    assert b["slowdown"] == pytest.approx(2, rel=0.1)
    got = packets(tmp_path, pair + "  - {name: b, size: 8MiB, hosts: '2,3', cap: 100Gbps}\n", capsys)
    assert got["jobs"][1]["slowdown"] == pytest.approx(4, rel=0.05)
    got = packets(tmp_path, pair + "  - {name: b, size: 8MiB, hosts: '2,3', slow: {1: 2.0}}\n", capsys)
    assert got["jobs"][1]["slowdown"] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("tenants: {gold: 0.5}", "the packet level cannot guarantee tenant gold a part of every link."),
        ("network: {gpudirect: false}", "the packet level cannot send through host memory (gpudirect: false)."),
        ("network: {half_duplex: [wan]}", "the packet level cannot halve links that go one way at a time."),
        ("network: {routing: static}", 'routing "static" exists at the flow level only.'),
        (
            "events: [{at: 1us, device: host-00/nic-0, reroute: 1us}, {at: 2us, device: host-00/nic-0, rate: full}]",
            "the packet level cannot move traffic of host-00/nic-0 -> leaf-00 to another NIC.",
        ),
        (
            "traffic: [{from: '0', to: '1', rate: 1Gbps, for: 1us, priority: 1}]",
            "priority 0 has several weights; packets are weighted in the last priority only (1).",
        ),
        (
            "traffic: [{from: '0', to: '1', rate: 1Gbps, for: 1us, weight: 5000}]",
            "weights 5000, 2, 1 are no ratio of numbers up to 1000, which switches need.",
        ),
    ],
)
def test_what_packets_cannot_honour_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, message: str
) -> None:
    jobs = "jobs: [{name: a, size: 1MiB, tenant: gold, weight: 2}, {name: b, size: 1MiB}]\n"
    got = packets(tmp_path, f"cluster: flat.yaml\n{jobs}{more}\n", capsys, status=2)
    assert got["message"] == message


def test_a_slow_rank_inside_a_host_is_refused(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "cluster: small.yaml\njobs: [{name: a, size: 1MiB, hosts: 0-1, slow: {3: 2.0}}]\n"
    scenario.write_text(text)
    assert run(["scenario", str(scenario), "--level", "packet"]) == 2
    assert "a message that stays inside its host cannot be slowed or capped" in capsys.readouterr().err


def test_flow_level_scenarios_take_no_options_of_packets(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scenario", str(scenario), "--loss", "0.1"]) == 2
    assert "--loss is about packets; level flow has none." in capsys.readouterr().err
    assert run(["scenario", str(scenario), "--seed", "1"]) == 2
    assert "--seed needs the packet level." in capsys.readouterr().err
