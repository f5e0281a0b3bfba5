from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.cli.shell.app import run
from syncline.timeline import load

CLUSTER = """
hosts: 4
host: 8 x H100
network: rail-optimized NDR
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    assert run([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_rows_have_the_promised_fields(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    got = answer(capsys, "simulate", "allreduce", "--cluster", cluster, "--size", "1KiB..1MiB")
    assert [row["size_bytes"] for row in got["rows"]] == [1 << k for k in range(10, 21)]
    for row in got["rows"]:
        assert {
            "size_bytes",
            "time_s",
            "algbw_Bps",
            "busbw_Bps",
            "wire_Bps",
            "algorithm",
            "limiting_link",
            "utilisation",
        } <= set(row)
        assert row["busbw_Bps"] == pytest.approx(row["algbw_Bps"] * 2 * 31 / 32)
        assert row["library"] == "NCCL" and row["low_s"] <= row["time_s"] <= row["high_s"]
        assert row["bound_s"] <= min(row["time_s"], row["best"]["time_s"])
    assert got["ranks"] == 32 and "ECMP collisions" in got["ignores"]


def test_the_table_prints_what_the_level_ignores(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    assert (
        run(
            [
                "simulate",
                "allreduce",
                "--cluster",
                cluster,
                "--size",
                "1GiB",
                "--algorithm",
                "ring",
                "--routing",
                "static",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "limiting link" in out and "host-00" in out
    assert "flow level; ignores queues and packet loss" in out
    assert run(["simulate", "allreduce", "--cluster", cluster, "--size", "1GiB", "--level", "analytic"]) == 0
    assert "analytic level; ignores contention but on the busiest link" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["allgather", "reducescatter", "broadcast", "reduce", "alltoall"])
def test_every_collective_is_simulated(capsys: pytest.CaptureFixture[str], cluster: str, verb: str) -> None:
    got = answer(capsys, "simulate", verb, "--cluster", cluster, "--size", "16MiB")
    assert got["collective"] == verb and got["rows"][0]["time_s"] > 0


def test_nccl_says_what_it_chooses(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    got = answer(capsys, "simulate", "allreduce", "--cluster", cluster, "--size", "1MiB..1GiB", "--algorithm", "nccl")
    assert "/" in got["rows"][0]["algorithm"]


@pytest.mark.parametrize(
    "option",
    [("--seeds", "3"), ("--seed", "3"), ("--level", "packet"), ("--level", "analytic"), ("--routing", "ecmp"),
     ("--transport", "tcp"), ("--cross-rail", "nvlink")],
)  # fmt: skip
def test_what_is_about_flows_does_not_apply_to_nccl(
    capsys: pytest.CaptureFixture[str], cluster: str, option: tuple[str, str]
) -> None:
    ask = ("simulate", "allreduce", "--cluster", cluster, "--size", "1MiB", "--algorithm", "nccl")
    got = answer(capsys, *ask, *option, status=2)
    assert got["message"] == f"{option[0]} does not apply to nccl, which is a cost model without flows."
    assert answer(capsys, *ask, "--loss", "0.1", status=2)["hint"] == "Name a family, and ask for level packet."


@pytest.mark.parametrize("level", ["analytic", "packet"])
def test_seeds_are_of_flows(capsys: pytest.CaptureFixture[str], cluster: str, level: str) -> None:
    ask = ("simulate", "allreduce", "--cluster", cluster, "--size", "1MiB", "--level", level, "--seeds", "4")
    assert answer(capsys, *ask, status=2)["message"] == f"--seeds is about flows; level {level} has none."


@pytest.mark.parametrize(("verb", "shares"), [("allreduce", 14 / 8), ("allgather", 7 / 8), ("alltoall", 7 / 8)])
def test_nccl_is_asked_where_the_ranks_stand(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str, shares: float
) -> None:
    """One GPU a host sends all there is to send through its one NIC of 50 GB/s, and not over NVLink."""
    cluster = tmp_path / "eight.yaml"
    cluster.write_text("hosts: 8\nhost: dgx-h100\nnetwork: rail-optimized NDR\n")
    ask = ("simulate", verb, "--cluster", str(cluster), "-n", "8", "--size", "64MiB", "--algorithm", "nccl")
    got = answer(capsys, *ask, "--placement", "spread")
    (row,) = got["rows"]
    by_hand_s = shares * 2**26 / 50e9
    assert got["placement"] == "spread" and got["ranks"] == 8
    assert by_hand_s < row["time_s"] < 1.2 * by_hand_s
    assert row["limiting_link"].startswith("host-00/nic-0")
    packed = answer(capsys, *ask)
    assert packed["placement"] == "packed" and packed["rows"][0]["time_s"] < by_hand_s / 4
    uneven = answer(capsys, *ask[:-4], "--size", "64MiB", "--algorithm", "nccl", "-n", "12")
    assert uneven["rows"][0]["time_s"] > packed["rows"][0]["time_s"]


def test_seeds_give_a_spread(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    got = answer(
        capsys, "simulate", "allreduce", "--cluster", cluster, "--size", "64MiB", "--algorithm", "ring", "--seeds", "4"
    )
    spread = got["spread"]
    assert spread["num_seeds"] == 4
    assert spread["best_s"] <= spread["p10_s"] <= spread["median_s"] <= spread["p90_s"] <= spread["worst_s"]


def test_trace_and_page_are_written(capsys: pytest.CaptureFixture[str], cluster: str, tmp_path: Path) -> None:
    trace, page = tmp_path / "trace.json", tmp_path / "page.html"
    got = answer(
        capsys, "simulate", "allreduce", "--cluster", cluster, "--size", "1MiB..16MiB", "--algorithm", "hierarchical",
        "--trace", str(trace), "--html", str(page),
    )  # fmt: skip
    assert load(trace).makespan_s == pytest.approx(got["rows"][-1]["time_s"], rel=0.02)  # priced by its pipeline
    text = page.read_text()
    assert text.count("<svg") == 3
    assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text
    assert "rank 0 to rank 1" in text


FAR = """
sites:
  - {name: a, hosts: 1, host: {model: dgx-h100, gpus: 4, nics: 4}, network: rail-optimized HDR}
  - {name: b, hosts: 1, host: {model: dgx-h100, gpus: 4, nics: 4}, network: rail-optimized HDR}
wan: {rate: 400Gbps, latency: 2ms}
"""


@pytest.mark.parametrize("ending", ["json", "xml"])
def test_the_fastest_schedule_is_written_and_takes_as_long_when_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str
) -> None:
    cluster, file = tmp_path / "far.yaml", tmp_path / f"best.{ending}"
    cluster.write_text(FAR)
    ask = ("simulate", "allreduce", "--cluster", str(cluster), "--size", "256MiB")
    got = answer(capsys, *ask, "--schedule", str(file))
    assert got["written"] == [str(file)] and got["rows"][0]["best"]["name"] == "2x4 one-shot/direct"
    if ending == "json":  # an MSCCL file is read as rounds that wait for each other: it has no windows
        again = answer(capsys, *ask, "--algorithm", str(file))
        assert again["rows"][0]["time_s"] == pytest.approx(got["rows"][0]["best"]["time_s"], rel=0.02)
    assert run(["schedule", "verify", str(file)]) == 0


def test_a_schedule_that_cannot_be_written_is_refused_before_anything_is_simulated(
    capsys: pytest.CaptureFixture[str], cluster: str, tmp_path: Path
) -> None:
    ask = ["simulate", "allreduce", "--cluster", cluster, "--size", "1MiB", "--schedule"]
    assert run([*ask, str(tmp_path / "best.txt")]) == 2
    assert "neither .json nor .xml" in capsys.readouterr().err
    assert run([*ask, str(tmp_path / "best.xml"), "--algorithm", "nccl"]) == 2
    assert "it has no schedule" in capsys.readouterr().err
    assert not list(tmp_path.glob("best.*"))


def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    got = answer(capsys, "simulate", "allreduce", "--cluster", cluster, "--algorithm", "magic", status=2)
    assert got["message"] == 'no algorithm is called "magic".'
    got = answer(capsys, "simulate", "allreduce", "--cluster", cluster, "--level", "atomic", status=2)
    assert got["message"] == 'no level of simulation is called "atomic".'
    got = answer(capsys, "simulate", "allreduce", "--cluster", cluster, "--size", "4KiB..1KiB", status=2)
    assert "give them rising" in got["message"]


def test_compare_algorithms_names_winners_and_crossovers(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    got = answer(capsys, "simulate", "compare", "--cluster", cluster, "--size", "1KiB..1GiB")
    assert len(got["winners"]) == 21
    assert got["crossovers"] and {"size_bytes", "before", "after"} == set(got["crossovers"][0])
    best = {row["size_bytes"]: row["algorithm"] for row in reversed(got["rows"])}
    assert all(best[w["size_bytes"]] == w["algorithm"] for w in got["winners"])
    assert run(["simulate", "compare", "--cluster", cluster, "--size", "1MiB"]) == 0
    assert "* wins" in capsys.readouterr().out
    got = answer(capsys, "simulate", "compare", "--cluster", cluster, "--collective", "gossip", status=2)
    assert got["message"] == 'no collective is called "gossip".'


def test_a_log_calibrates_the_model_of_nccl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "allreduce", "--cluster", "h100-64-rail", "--algorithm", "nccl", "--json"]
    assert run([*command, "--size", "1KiB..1GiB"]) == 0
    plain = json.loads(capsys.readouterr().out)["rows"]
    log = tmp_path / "run.log"
    log.write_text(
        "\n".join(
            f"{r['size_bytes']} {r['size_bytes'] // 4} float sum -1 {r['time_s'] * 1.3e6:.3f} 1 1 0" for r in plain
        )
    )
    assert run([*command, "--size", "1KiB..1GiB", "--calibrate", str(log)]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["calibrated_on"] == str(log)
    for before, after in zip(plain, fitted["rows"], strict=True):
        assert after["time_s"] == pytest.approx(1.3 * before["time_s"], rel=0.03)


def test_only_the_model_of_nccl_is_calibrated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "allreduce", "--cluster", "h100-64-rail", "--calibrate", "run.log"]) == 2
    assert "--calibrate fits the model of NCCL." in capsys.readouterr().err


def test_a_torus_is_used_along_its_dimensions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """64 chips with six links each: ranks follow the grid, and the rings of all dimensions fill the links."""
    cluster = tmp_path / "torus.yaml"
    network = "{topology: torus, shape: [4, 4, 4], of: chips, host_shape: [2, 2, 1]}"
    cluster.write_text(f"hosts: 16\nhost: tpu-v4-host\nnetwork: {network}\n")
    words = ["--cluster", str(cluster), "--size", "256MiB", "--json"]
    assert run(["simulate", "allreduce", *words, "--routing", "static"]) == 0
    data = json.loads(capsys.readouterr().out)
    (row,) = data["rows"]
    assert data["placement"] == "grid" and row["algorithm"] == "torus"
    assert run(["schedule", "cost", "torus", *words]) == 0
    least = json.loads(capsys.readouterr().out)["cost"]["least_time_s"]
    assert least <= row["time_s"] < 1.3 * least


def test_the_page_of_nccl_has_the_curve_alone_and_says_where_it_cannot_be(
    capsys: pytest.CaptureFixture[str], cluster: str, tmp_path: Path
) -> None:
    ask = ("simulate", "allreduce", "--cluster", cluster, "--algorithm", "nccl", "--size", "1MiB..4MiB", "--html")
    page = tmp_path / "nccl.html"
    assert answer(capsys, *ask, str(page))["written"] == [str(page)]
    assert "Bus bandwidth by size" in page.read_text() and "Load of the links" not in page.read_text()
    assert run([*ask, str(tmp_path / "nowhere" / "nccl.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_page_has_the_load_that_the_table_has(
    capsys: pytest.CaptureFixture[str], cluster: str, tmp_path: Path
) -> None:
    page = tmp_path / "ring.html"
    ask = ("simulate", "allreduce", "--cluster", cluster, "--algorithm", "ring", "--size", "1MiB", "--html", str(page))
    row = answer(capsys, *ask)["rows"][0]
    busiest = page.read_text().partition("mean utilisation")[2]
    assert f"<td>{row['utilisation']:.1%}</td>" in busiest[:400]
