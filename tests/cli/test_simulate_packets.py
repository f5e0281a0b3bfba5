"""`syncline simulate --level packet` and its traffic patterns."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from syncline.cli.shell.app import run

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
    figures = found.get("figures", {})
    merged: dict = found | figures | figures.get("load", {})
    return merged


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
    assert "unexplained" not in parts and {"queues", "sharing", "rounds"} <= set(parts)
    assert row["why"][0] in re.sub("<[^>]+>", "", unescape(page.read_text()))


def test_it_speaks_to_people(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    assert run(["simulate", "allreduce", "--cluster", cluster, "--size", "1MiB", "--level", "packet"]) == 0
    text = capsys.readouterr().out
    assert "flow level" in text
    assert "packets x" in text
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
    assert got["written"] == [str(path)]
    for text in (
        "incast on small: 7 messages",
        "Queue, KB",
        "Marked packets per us",
        "Rate of connections, GB/s",
        "<polyline",
    ):
        assert text in page


def test_a_lossy_link_costs_go_back_n_more(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    words = ("simulate", "permutation", "--cluster", cluster, "--size", "4MB", "--transport", "roce", "--loss", "0.001")
    back = answer(capsys, *words, "--recovery", "go-back-n")
    kept = answer(capsys, *words, "--recovery", "selective")
    assert kept["tally"]["resent"] < back["tally"]["resent"]
    assert kept["time_s"] < back["time_s"]
    one = answer(capsys, "simulate", "permutation", "--cluster", cluster, "--size", "4MB", "--transport", "roce",
                 "--loss", "host-00/nic-0=0.01")  # fmt: skip
    assert 0 < one["tally"]["lost"] <= one["counters"]["errors"]  # acknowledgements are destroyed, too
    assert one["packets"]["loss"] == ["host-00/nic-0=0.01"]


def test_a_small_buffer_drops_and_pauses_keep_it_from_that(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    words = ("simulate", "incast", "--cluster", cluster, "--senders", "7", "--size", "1MB", "--transport", "cubic")
    small = answer(capsys, *words, "--buffer", "2us")
    assert small["tally"]["drops"] == small["counters"]["drops"] > 0
    assert answer(capsys, *words, "--buffer", "64MiB")["counters"]["drops"] == 0
    paused = answer(capsys, *words, "--buffer", "8us", "--transport", "roce")
    assert paused["counters"]["drops"] == paused["counters"]["lossless_drops"] == 0
    assert paused["tally"]["pauses"] > 0
    assert answer(capsys, *words, "--buffer", "8us", "--transport", "roce", "--no-pfc")["counters"]["drops"] > 0


def test_a_queue_marks_from_the_depth_asked_for(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    words = ("simulate", "incast", "--cluster", cluster, "--senders", "7", "--size", "1MB", "--transport", "dctcp")
    early, late = (answer(capsys, *words, "--ecn", depth) for depth in ("2us", "40us..50us:0.5"))
    assert early["peak_queue_bytes"] < late["peak_queue_bytes"]
    assert early["tally"]["marks"] > late["tally"]["marks"]


def test_frames_are_as_long_as_asked(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    words = ("simulate", "incast", "--cluster", cluster, "--senders", "1", "--size", "143400")
    assert answer(capsys, *words, "--mtu", "1500")["counters"]["data_packets"] == 100  # 66 bytes of headers
    assert answer(capsys, *words, "--mtu", "9000")["counters"]["data_packets"] == 17


def test_background_goes_on_until_the_collective_is_done(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    words = (
        "simulate",
        "allreduce",
        "--cluster",
        cluster,
        "--size",
        "4MiB",
        "--level",
        "packet",
        "--algorithm",
        "ring",
    )
    alone = answer(capsys, *words)["rows"][0]
    loaded = answer(capsys, *words, "--background", "0.4:storage")["rows"][0]
    assert loaded["time_s"] > 1.05 * alone["time_s"]
    assert loaded["flow_time_s"] == alone["flow_time_s"]
    assert loaded["packet"]["state"] == "finished"
    assert loaded["packet"]["background"]["completion"]["count"] > 10
    assert loaded["packet"]["load"]["completion"]["count"] == alone["packet"]["load"]["completion"]["count"]
    assert answer(capsys, *words, "--background", "0.4:storage")["rows"][0]["time_s"] == loaded["time_s"]


def test_a_link_fails_and_comes_back(capsys: pytest.CaptureFixture[str], cluster: str, tmp_path) -> None:
    words = ("simulate", "permutation", "--cluster", cluster, "--size", "4MB", "--transport", "srd")
    healthy = answer(capsys, *words)
    page = ("--html", str(tmp_path / "page.html"))
    failed = answer(capsys, *words, "--fail", "leaf-00<->spine-00#1@20us..1ms", "--reroute", "50us", *page)
    assert failed["counters"]["dead"] > 0
    assert failed["state"] == "finished"
    assert failed["time_s"] > healthy["time_s"]
    back = answer(capsys, *words, "--fail", "host-01/nic-0 @ 20us..200us")
    assert back["state"] == "finished"
    assert back["time_s"] > healthy["time_s"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--loss", "2"), '--loss "2" has no chance from 0 to 1.'),
        (("--loss", "leaf-00->spine-00=x"), '--loss "leaf-00->spine-00=x" has no chance from 0 to 1.'),
        (("--loss", "host-00/gpu-0=0.1"), '"host-00/gpu-0" has no network cable; inside hosts there are no packets.'),
        (("--buffer", "lots"), 'cannot read time "lots".'),
        (("--buffer", "0us"), "--buffer 0 leaves no packet a place to wait."),
        (("--ecn", "4us..2us"), '--ecn "4us..2us" marks from no depth on.'),
        (("--ecn", "4us:2"), '--ecn "4us:2" has no chance from 0 to 1.'),
        (("--mtu", "100"), "--mtu 100 is not from 130 to 65536 bytes."),
        (("--mtu", "1500", "--payload", "1KiB"), "--payload and --mtu both say how long packets are."),
        (("--recovery", "hope"), 'transport "dcqcn": recovery "hope" is not one of go-back-n, selective.'),
        (("--background", "1.5"), 'background "1.5" has no load between 0 and 1.'),
        (("--background", "0.5:mail"), 'no distribution of sizes is called "mail".'),
        (("--fail", "leaf-00"), '--fail "leaf-00" cannot be read.'),
        (("--fail", "leaf-00@5ms..2ms"), '--fail "leaf-00@5ms..2ms" cannot be read.'),
        (("--reroute", "1ms"), "--reroute says when switches route around a failure."),
        (
            ("--fail", "host-00/nic-0@1us"),
            "host-00/nic-0 -> leaf-00 fails and is never repaired; packets do not move to another NIC.",
        ),
    ],
)
def test_an_option_it_cannot_follow_is_one_error(
    capsys: pytest.CaptureFixture[str], cluster: str, words: tuple[str, ...], message: str
) -> None:
    assert answer(capsys, "simulate", "permutation", "--cluster", cluster, *words, status=2)["message"] == message


def test_flows_take_no_options_of_packets(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    words = ("simulate", "allreduce", "--cluster", cluster, "--size", "1MiB")
    for option, name in ((("--loss", "0.1"), "--loss"), (("--no-pfc",), "--pfc")):
        got = answer(capsys, *words, *option, status=2)
        assert got["message"] == f"{name} is about packets; level flow has none."


@pytest.mark.parametrize(
    ("options", "text"),
    [(["--size", "0"], "have no packets"), (["--html", "nowhere/page.html"], "there is no folder"),
     (["--trace", "nowhere/trace.json"], "there is no folder")],
)  # fmt: skip
def test_bad_patterns_are_one_error(
    capsys: pytest.CaptureFixture[str], cluster: str, options: list[str], text: str
) -> None:
    assert run(["simulate", "incast", "--cluster", cluster, "--senders", "2", *options]) == 2
    err = capsys.readouterr().err
    assert text in err and "Traceback" not in err


def test_a_run_that_stalls_says_how_many_arrived(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    assert run(["simulate", "incast", "--cluster", cluster, "--senders", "2", "--size", "64KiB", "--loss", "1"]) == 0
    out = capsys.readouterr().out
    assert "stalled" in out and "0 of 2 messages arrived" in out and "nan" not in out
