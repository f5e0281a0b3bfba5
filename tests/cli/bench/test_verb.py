"""`syncline bench`: logs judged, ranks started here, under torchrun and under mpirun."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from syncline.cli.shell.app import run

LOGS = Path(__file__).parents[2] / "bench" / "logs"
CLUSTER = """
name: four
hosts: 4
host: 1 x H100
network: leaf-spine 100GbE
"""
Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def call(*words: str) -> tuple[int, str]:
        status = run(list(words))
        seen = capsys.readouterr()
        return status, seen.out + seen.err

    return call


def test_a_good_log_is_what_the_topology_should_give(say: Say) -> None:
    status, text = say("bench", "--read", str(LOGS / "h100_16_efa_mpirun.log"), "--cluster", "p5-ultracluster")
    assert status == 0 and "slow" not in text.replace("slow?", "") and "WARNING" not in text
    assert "# all_reduce on p5-ultracluster: 16 ranks, 2 hosts, nccl" in text
    assert "# Avg bus bandwidth    :" in text and "# limiting link:" in text


def test_a_slow_log_is_told_with_its_price_and_accuses_no_link(say: Say) -> None:
    words = (
        "bench",
        "--read",
        str(LOGS / "h100_16_slow.log"),
        "--cluster",
        "h100-64-rail",
        "--cost",
        "--gpu-hour",
        "2",
    )
    status, text = say(*words)
    assert status == 0 and "CRITICAL bench.collective.slow: the collective as a whole" in text
    assert "GPU-hours a day" in text and "at $2.00 a GPU-hour (as given)" in text
    status, text = say(*words, "--check", "--json")
    payload = json.loads(text)
    assert status == 2 and payload["cost"]["gpus"] == 16
    assert payload["results"][-1]["verdict"] == "slow" and payload["results"][-1]["factor"] > 4
    assert payload["findings"][0]["cost_usd_per_day"] == pytest.approx(payload["cost"]["usd_per_day"])


def test_a_log_of_other_gpus_is_refused_and_wrong_data_is_critical(say: Say) -> None:
    status, text = say("bench", "--read", str(LOGS / "mi300x_16_rccl.log"), "--cluster", "h100-64-rail")
    assert status == 2 and "the log is of AMD Instinct MI300X, and h100-64-rail has H100-SXM5-80GB" in text
    status, text = say("bench", "--read", str(LOGS / "all_gather_wrong_srun.log"), "--check")
    assert status == 2 and "CRITICAL bench.data.wrong: all-gather (vendor)" in text
    assert "no cluster was given" in text


@pytest.mark.parametrize("op", ["all_reduce", "alltoall", "sendrecv"])
def test_a_sound_pair_of_b200_hosts_is_not_critical_and_no_link_is_blamed(say: Say, tmp_path: Path, op: str) -> None:
    cluster = tmp_path / "pair.yaml"
    cluster.write_text("hosts: 2\nhost: dgx-b200\nnetwork: rail-optimized NDR\n")
    status, text = say("bench", "--read", str(LOGS / f"b200_16_{op}.log"), "--cluster", str(cluster), "--json")
    findings = json.loads(text)["findings"]
    assert status == 0 and all(one["severity"] != "critical" for one in findings), findings
    assert {one["place"] for one in findings} <= {"the collective as a whole"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "--cluster", "h100-64-rail"), "say what to measure, or give a log with --read"),
        (("bench", "--read", "no.log"), 'cannot read "no.log"'),
        (("bench", "--read", "x", "--collective", "all"), 'no collective is called "all"'),
        (("bench", "allreduce"), "no launcher started this process"),
        (("bench", "allreduce", "--local", "1"), "1 ranks on this machine: from 2 to 64"),
        (("bench", "allreduce", "--size", "0"), "a size of 0 bytes cannot be measured"),
        (("bench", "allreduce", "-b", "8Q"), '"8Q" is not a size that nccl-tests takes'),
        (("bench", "-c", "x", "allreduce"), "Got unexpected extra argument(s) (allreduce)"),
        (("bench", "allreduce", "-a", "rings"), 'no algorithm is called "rings"'),
        (("bench", "allreduce", "--codec", "zip"), 'there is no codec "zip"'),
        (("bench", "tournament"), "no launcher started this process"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: tuple[str, ...], message: str, say: Say) -> None:
    status, text = say(*words)
    assert status == 2 and message in text and "Traceback" not in text


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


@cache
def launched(folder: str) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run all launchers side by side, once."""
    pytest.importorskip("torch", reason="measuring needs torch")
    cluster = Path(folder) / "four.yaml"
    cluster.write_text(CLUSTER)
    bench = [sys.executable, "-m", "syncline", "bench"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    commands = {
        "local": [*bench, "allreduce", "--local", "2", "-a", "vendor,ring", "--size", "64KiB", "-n", "2", "-w", "1"],
        "torchrun": [*torchrun, *bench[1:], "alltoall", "--cluster", str(cluster), "-a", "vendor,direct", "-b", "16K",
                     "-e", "64K", "-f", "4", "-n", "2", "-d", "int32", "--cost"],
    }  # fmt: skip
    if shutil.which("mpirun"):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        mpirun = ["mpirun", *root, "--oversubscribe", "-n", "2"]
        commands["mpirun"] = [*mpirun, *bench, "tournament", "--size", "64KiB", "-n", "1"]
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    running = {name: subprocess.Popen([*words, "--json"], **pipe) for name, words in commands.items()}
    done = {}
    for name, process in running.items():
        out, error = process.communicate(timeout=600)
        done[name] = subprocess.CompletedProcess(process.args, process.returncode, out, error)
    return done


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    return launched(str(tmp_path_factory.mktemp("bench")))


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ranks_started_here(ran: dict[str, subprocess.CompletedProcess[str]]) -> None:
    payload = answer(ran["local"])
    assert (payload["ranks"], payload["library"], payload["cluster"]) == (2, "gloo", None)
    assert [row["algorithm"] for row in payload["results"]] == ["vendor", "ring"]
    for row in payload["results"]:
        assert row["in_place"]["nwrong"] == 0 and row["actual_iterations"] == 2 and row["size"] == 65536
        assert row["busbw_Bps"] == pytest.approx(row["algbw_Bps"])
        assert row["in_place"]["time"] == pytest.approx(row["median_s"] * 1e6) and row["verdict"] == "-"
    assert len(payload["devices"]) == 2 and payload["out_of_bounds"]["okay"] == "true"


def test_under_torchrun_with_a_prediction_beside_each_row(ran: dict[str, subprocess.CompletedProcess[str]]) -> None:
    payload = answer(ran["torchrun"])
    assert [row["size"] for row in payload["results"]] == [16384, 65536] * 2
    for row in payload["results"]:
        expected = row["expected"]
        assert expected["low_s"] < expected["time_s"] < expected["high_s"] and expected["limiting_link"]
        assert row["verdict"] in ("ok", "slow", "slow?", "fast") and row["wire_Bps"] > 0
        assert row["in_place"]["nwrong"] == 0 and row["type"] == "int32"
    assert payload["cost"]["gpu_hours_per_day"] >= 0


def test_a_tournament_under_mpirun(ran: dict[str, subprocess.CompletedProcess[str]]) -> None:
    if "mpirun" not in ran:
        pytest.skip("mpirun is not installed")
    payload = answer(ran["mpirun"])
    first = [match for match in payload["matches"] if not match["second"]]
    assert len(first) == 2 and len(payload["live_hosts"]) == 2
    assert all(match["rate_Bps"] > 0 for match in payload["matches"])
