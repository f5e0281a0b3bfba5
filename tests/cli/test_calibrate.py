"""`syncline calibrate step` and `collective`: a profile that `step`, `plan` and `simulate` read; errors in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import syncline
from syncline.cli.shell.app import run

CLUSTER = "h100-64-rail"
JOB = "model: llama3-70b\nbatch: {global: 1024, sequence: 8192}\nparallel: {tp: 8, pp: 4}\n"
LOG = """# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824
# collective test starting: all_reduce_perf
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    180.0    5.83   11.64      0    180.0    5.83   11.64      0
    16777216       4194304     float     sum      -1    420.0   39.95   79.74      0    420.0   39.95   79.74      0
   268435456      67108864     float     sum      -1   2100.0  127.83  255.15      0   2100.0  127.83  255.15      0
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run([*words, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_one_profile_holds_a_step_and_a_collective(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    profile, log = str(tmp_path / "profile.yaml"), tmp_path / "all_reduce.log"
    log.write_text(LOG)
    shipped = asked(capsys, "step", CLUSTER, str(job))
    measured = 1.1 * float(str(shipped["step_time_s"]))
    found = asked(capsys, "calibrate", "step", CLUSTER, str(job), "--measured", f"{measured:.4f}s", "--out", profile)
    assert found["written"] == [profile]
    told = asked(capsys, "step", CLUSTER, str(job), "--profile", profile)
    assert float(str(told["step_time_s"])) == pytest.approx(measured, rel=0.02)
    assert isinstance(told["profile"], dict) and 0.005 < told["profile"]["log_sigma"] < 0.02
    assert run(["calibrate", "collective", CLUSTER, str(log), "--profile", profile, "--out", profile]) == 0
    assert "all_reduce on 512 ranks" in capsys.readouterr().out
    words = ("simulate", "allreduce", "--cluster", CLUSTER, "--algorithm", "nccl", "--size", "256MiB")
    rows = asked(capsys, *words, "--profile", profile)["rows"]
    assert isinstance(rows, list) and rows[0]["time_s"] == pytest.approx(2.1e-3, rel=0.02)
    again = asked(capsys, "step", CLUSTER, str(job), "--profile", profile)
    assert again["step_time_s"] == told["step_time_s"], "a sweep of a collective leaves the steps alone"
    plain, moved = (
        asked(capsys, "simulate", "alltoall", *words[2:], *more)["rows"] for more in ((), ("--profile", profile))
    )
    assert isinstance(plain, list) and isinstance(moved, list)
    own = rows[0]["time_s"] / asked(capsys, *words)["rows"][0]["time_s"]  # type: ignore[index]
    other = moved[0]["time_s"] / plain[0]["time_s"]
    assert abs(math.log(own)) > abs(math.log(other)) > 0, "a log of one operation moves the others, less"


def test_a_log_is_fitted_on_as_many_ranks_as_it_is_of(tmp_path: Path) -> None:
    log = Path(__file__).parents[2] / "examples" / "slow.log"  # two hosts: its bus bandwidth is 1.875 times the other
    assert syncline.calibrate_collective(CLUSTER, log).ranks == 16
    with pytest.raises(syncline.UsageError, match=r"slow\.log is of 16 ranks, not 512"):
        syncline.calibrate_collective(CLUSTER, log, ranks=512)


def test_a_log_of_other_gpus_is_no_calibration(tmp_path: Path) -> None:
    log = Path(__file__).parents[1] / "bench" / "logs" / "mi300x_16_rccl.log"
    with pytest.raises(syncline.UsageError, match="the log is of AMD Instinct MI300X, and h100-64-rail has H100"):
        syncline.calibrate_collective(CLUSTER, log)


def test_a_plan_moves_with_the_profile(job: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    syncline.calibrate_step(CLUSTER, job, measured="25s").save(profile)

    def planned(path: Path | None) -> float:
        fix = "tp=8,pp=4,micro=1,recompute=none"
        return syncline.plan(CLUSTER, job, fix=fix, workers=1, profile=path).step_time_s

    assert planned(profile) > 1.1 * planned(None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give one measurement: --measured, --trace or --log."),
        (("--measured", "4.6"), '--measured "4.6" has no unit.'),
        (("--measured", "0s"), "--measured must be above 0"),
        (("--measured", "14ms"), "Check the unit"),
        (("--measured", "14s", "--log", "a.log"), "give one measurement"),
        (("--log", "/no/such/file"), 'cannot read "/no/such/file"'),
        (("--trace", "/no/such/file.json"), 'there is no file "/no/such/file.json"'),
        (("--measured", "14s", "--profile", "/no/such.yaml"), "/no/such.yaml"),
    ],
)
def test_what_cannot_be_calibrated_is_one_error(
    job: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert run(["calibrate", "step", CLUSTER, str(job), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
