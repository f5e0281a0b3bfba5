"""`syncline simulate --level packet` and its traffic patterns."""

from __future__ import annotations

import json

import pytest

from syncline.cli.app import run

SMALL = """
hosts: 8
host: {gpu: H100, gpus: 1, nics: 1}
network: {topology: fat-tree, tiers: 2, link: NDR, hosts_per_leaf: 4}
"""


@pytest.fixture
def cluster(tmp_path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict:
    assert run([*words, "--json"]) == status
    found: dict = json.loads(capsys.readouterr().out)
    return found


def test_a_collective_is_simulated_at_both_levels(capsys: pytest.CaptureFixture[str], cluster: str, tmp_path) -> None:
    page = tmp_path / "page.html"
    got = answer(capsys, "simulate", "allreduce", "--cluster", cluster, "--size", "8MiB", "--level", "packet",
                 "--transport", "ndp", "--algorithm", "ring", "--html", str(page))  # fmt: skip
    row = got["rows"][0]
    assert got["level"] == "packet"
    assert got["transport"] == "ndp"
    assert row["time_s"] == pytest.approx(row["flow_time_s"], rel=0.05)
    assert row["packet"]["counters"]["delivered_bytes"] == 8 * 14 * (1 << 20)
    parts = {name: part["s"] for name, part in row["difference"].items()}
    assert sum(parts.values()) == pytest.approx(row["time_s"] - row["flow_time_s"])
    assert abs(parts["unexplained"]) < 0.01 * row["flow_time_s"]
    assert "Against the flow level" in page.read_text()
    assert row["why"][0] in page.read_text().replace("&#x27;", "'")


def test_it_speaks_to_people(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    assert run(["simulate", "allreduce", "--cluster", cluster, "--size", "1MiB", "--level", "packet"]) == 0
    text = capsys.readouterr().out
    assert "flow level" in text
    assert "packets x1." in text
    assert run(["simulate", "allreduce", "--cluster", cluster, "--level", "packet", "--size", "1MiB", "-n", "1"]) == 0
    assert "flow level 0 s" in capsys.readouterr().out
    assert run(["simulate", "incast", "--cluster", cluster, "--senders", "6", "--transport", "dctcp"]) == 0
    text = capsys.readouterr().out
    assert "incast on small: 6 messages" in text
    assert "queue of leaf-00 -> host-00/nic-0" in text


@pytest.mark.parametrize("pattern", ["incast", "permutation", "all-pairs"])
def test_traffic_patterns_end(capsys: pytest.CaptureFixture[str], cluster: str, pattern: str, tmp_path) -> None:
    trace = tmp_path / "trace.json"
    got = answer(
        capsys, "simulate", pattern, "--cluster", cluster, "--senders", "7", "--size", "100KB", "--trace", str(trace)
    )
    assert got["state"] == "finished"
    assert got["messages"] == {"incast": 7, "permutation": 8, "all-pairs": 56}[pattern]
    assert got["completion"]["count"] == got["messages"]
    assert trace.stat().st_size > 100


def test_what_it_cannot_do_it_says(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    got = answer(capsys, "simulate", "incast", "--cluster", cluster, "--transport", "magic", status=2)
    assert got["message"] == 'no packet transport is called "magic".'
    got = answer(capsys, "simulate", "incast", "--cluster", cluster, "--senders", "99", status=2)
    assert got["message"].startswith("99 senders;")
    got = answer(capsys, "simulate", "incast", "--cluster", cluster, "--level", "flow", status=2)
    assert got["message"] == "incast is simulated at packet level only, not at level flow."


def test_the_page_of_an_incast_is_written(capsys: pytest.CaptureFixture[str], cluster: str, tmp_path) -> None:
    path = tmp_path / "page.html"
    words = ("--senders", "7", "--size", "1MB", "--transport", "dctcp", "--level", "packet", "--html", str(path))
    got = answer(capsys, "simulate", "incast", "--cluster", cluster, *words)
    page = path.read_text()
    assert got["html"] == str(path)
    for text in ("7-to-1 incast of", "Queue, KB", "Marked packets per us", "Rate of connections, GB/s", "<polyline"):
        assert text in page
