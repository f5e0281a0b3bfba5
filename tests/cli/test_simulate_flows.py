"""`syncline simulate flows` from the outside: files and loads in, tables, captures and pages out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.cli.shell.app import run as run_cli

CLUSTER = """
name: small
hosts: 8
host: {gpu: H100, gpus: 1, nics: 1}
network: {topology: fat-tree, tiers: 2, link: NDR, hosts_per_leaf: 2}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(CLUSTER)
    return str(path)


Capture = pytest.CaptureFixture[str]


def call(capsys: Capture, *words: str) -> tuple[int, str]:
    code = run_cli(list(words))
    said = capsys.readouterr()
    return code, said.out + said.err


def run(capsys: Capture, *words: str) -> tuple[int, str]:
    return call(capsys, "simulate", "flows", *words)


def test_a_file_in_and_everything_out(capsys: Capture, cluster: str, tmp_path: Path) -> None:
    flows = tmp_path / "flows.csv"
    flows.write_text("start,source,destination,bytes\n0,0,7,1MB\n0,1,7,1MB\n5us,2,7,20kB\n")
    out, page, capture = tmp_path / "done.csv", tmp_path / "page.html", tmp_path / "a.pcap"
    code, text = run(
        capsys, str(flows), "-c", cluster, "--transport", "hpcc", "--against", "dctcp", "--out", str(out), "--html",
        str(page), "--pcap", f"host-00/nic-0->leaf-00={capture}", "--json",
    )  # fmt: skip
    assert code == 0, text
    found = json.loads(text)
    assert [row["transport"] for row in found["runs"]] == ["hpcc", "dctcp"]
    assert found["runs"][0]["slowdown"][-1]["count"] == 3
    assert out.read_text().count("\n") == 4
    assert "Slowdown by size" in page.read_text() and "dctcp" in page.read_text()
    assert capture.stat().st_size > 24 and found["pcap"][str(capture)] > 200


def test_a_load_in(capsys: Capture, cluster: str) -> None:
    code, text = run(
        capsys, "-c", cluster, "--load", "0.3", "--sizes", "storage", "--duration", "100us", "--transport", "ndp"
    )
    assert code == 0, text
    assert "slowdown mean" in text and "storage at load 0.3" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "one of the two"), (("--load", "0.3", "--sizes", "mail"), "no distribution of sizes"),
     (("--load", "1.5"), "must be between"), (("--load", "0.3", "--connections", "some"), "own, shared"),
     (("--load", "0.3", "--pcap", "a->b=c.pcap"), "no link from a to b"),
     (("--load", "0.3", "--out", "x.txt"), ".parquet")],
)  # fmt: skip
def test_mistakes_are_said_in_a_line(capsys: Capture, cluster: str, words: tuple[str, ...], said: str) -> None:
    code, text = run(capsys, "-c", cluster, *words)
    assert code == 2
    assert said in text.replace("\n", " ")


def test_a_size_is_shown_as_it_was_given(capsys: Capture, cluster: str) -> None:
    code, text = call(capsys, "simulate", "incast", "-c", cluster, "--size", "1MB", "--senders", "4")
    assert code == 0, text
    assert "messages of 1MB" in text


def test_an_all_to_all_scenario_needs_no_algorithm(capsys: Capture, cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("jobs:\n  - {name: experts, collective: alltoall, size: 1MiB}\n")
    code, text = call(capsys, "scenario", str(path), "--cluster", cluster, "--json")
    assert code == 0, text
    path.write_text("jobs:\n  - {name: experts, collective: alltoall, size: 1MiB, algorithm: ring}\n")
    code, text = call(capsys, "scenario", str(path), "--cluster", cluster)
    assert code == 2
    assert "One of: " in text and "ring does no" in text


def test_slots_say_the_guard_and_both_ends(capsys: Capture, cluster: str) -> None:
    words = ("simulate", "slots", cluster, "incast:3:100KB", "--clock-error")
    code, text = call(capsys, *words, "1us", "--json")
    found = json.loads(text)
    assert code == 0 and found["guard_s"] == pytest.approx(2e-6) and found["num_messages"] == 3
    assert [row["real_error_s"] for row in found["scheduled"]] == pytest.approx([1e-6, 3e-6, 1e-5, 3e-5])
    assert "a guard of 2 us between two" in call(capsys, *words, "1us")[1]
    code, text = call(capsys, *words, "0s")
    assert code == 2 and "no clock is exact" in text
