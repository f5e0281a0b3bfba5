"""`syncline plan` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline import plan
from syncline.cli.shell import app


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = app.run(["plan", *arguments])
    got = capsys.readouterr()
    return status, got.out, got.err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    status, out, _ = run(capsys, *arguments, "--json")
    assert status == 0, out
    data: dict[str, Any] = json.loads(out)
    return data


SMALL = "model: llama3-8b\nbatch: {global: 128, sequence: 8192}\ngpus: 64\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a job that is planned in a moment."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the plan of the small job, nothing fixed."""
    path = tmp_path_factory.mktemp("free") / "small.yaml"
    path.write_text(SMALL)
    found: dict[str, Any] = plan("h100-64-rail", path).to_json()
    return found


def test_one_screen_with_answer_limit_and_what_is_worth_doing(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "h100-64-rail", "llama3-70b")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "llama3-70b on h100-64-rail: 512 H100-SXM5-80GB, 8,388,608 tokens a step"
    assert len(lines) <= 16
    assert max(len(line) for line in lines) <= 120
    assert lines[2].startswith("  step       ")
    for words in (
        "  limit      arithmetic",
        "  fits       ",
        " per million tokens",
        "  do first   ",
        "  assumed    a spare",
    ):
        assert words in out
    status, more, err = run(capsys, "h100-64-rail", "llama3-70b", "--more")
    assert (status, err) == (0, "") and more.startswith(out[: out.index("  more ")])
    for words in ("  memory     ", "    1. ", "  ignores    "):
        assert words in more
    assert "    4. " not in more
    assert "10 % more network" not in more  # nobody sells it, and it is worth nothing here
    assert "buy nothing: the network between hosts is not your limit (without limits it would save " in more


def test_json_has_what_was_promised(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "h100-64-rail", "llama3-70b")
    assert set(data) >= {"best", "limit", "actions", "evaluated", "cpu_s"}
    best = data["best"]
    assert set(best) >= {
        "step_time_s", "tokens_per_s", "mfu", "memory_bytes", "parallel", "exposed_comm_s", "cost_per_token_usd",
    }  # fmt: skip
    assert 10 < best["step_time_s"] < 25
    assert 0.3 < best["mfu"] < 0.7
    assert best["memory_bytes"] < 80 * 2**30
    assert best["tokens_per_s"] == pytest.approx(1024 * 8192 / best["step_time_s"])
    split = best["parallel"]
    assert split["tp"] * split["pp"] * split["dp"] * split["cp"] == 512
    assert data["evaluated"] > data["fitting"] > 1000
    savings = [action["saving"] for action in data["actions"]]
    assert savings == sorted(savings, reverse=True)
    assert {"bandwidth", "latency", "link", "domain", "int8", "accumulation"} <= {a["name"] for a in data["actions"]}
    assert best["cost_per_token_usd"] == pytest.approx(best["usd_per_step"] / (1024 * 8192) / data["cost"]["goodput"])


def test_fixed_choices_hold(capsys: pytest.CaptureFixture[str], small: Path, free: dict[str, Any]) -> None:
    fixed = answer(capsys, "h100-64-rail", str(small), "--fix", "tp=8,pp=2,recompute=full,sp=off")
    split = fixed["best"]["parallel"]
    assert (split["tp"], split["pp"], split["recompute"], split["sp"]) == (8, 2, "full", False)
    assert fixed["best"]["step_time_s"] > free["best"]["step_time_s"]
    assert fixed["evaluated"] < free["evaluated"]


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        ("tp=3", ["tp = 3 is not possible for llama3-8b on 64 GPUs", "The nearest that works is tp=2."]),
        ("pp=64", ["pp = 64 is not possible", "The nearest that works is pp=32."]),
        ("colour=red", ['there is no choice "colour" to fix.', "Choices: tp, pp, dp"]),
        ("tp=", ['"tp=" gives no value for tp.']),
        ("tp=-8", ['tp is "-8"; it must be a whole number from 1.']),
        ("zero=9", ['zero is "9"; it is one of none, 1, 2, 3, fsdp, hsdp.']),
        ("sp=maybe", ['sp is "maybe"; it is on or off.']),
    ],
)
def test_an_impossible_fix_says_what_works(
    fix: str, words: list[str], capsys: pytest.CaptureFixture[str], small: Path
) -> None:
    status, out, err = run(capsys, "h100-64-rail", str(small), "--fix", fix)
    assert (status, out) == (2, "")
    for text in words:
        assert text in err


def test_a_model_that_fits_nowhere_says_what_would_work(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("model: gpt3-175b\nbatch: {global: 64, sequence: 2048}\ngpus: 8\n")
    status, _, err = run(capsys, "h100-64-rail", str(path))
    assert status == 2
    assert "gpt3-175b does not fit on 8 H100-SXM5-80GB." in err
    assert "GiB a GPU" in err
    assert "It fits on " in err


def test_fixed_choices_that_do_not_fit_say_what_does(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "h100-64-rail", "llama3-70b", "--fix", "tp=1,pp=1,zero=none")
    assert status == 2
    assert "does not fit on 512 H100-SXM5-80GB with these fixed choices." in err
    assert "Without `fix` the best is: tp " in err


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("host_price_usd=-1", "host_price_usd is -1; it must be at least 0."),
        ("power_usd_per_kWh=-0.1", "power_usd_per_kWh is -0.1"),
    ],
)
def test_a_negative_price_is_refused(option: str, words: str, capsys: pytest.CaptureFixture[str], small: Path) -> None:
    status, _, err = run(capsys, "h100-64-rail", str(small), "--set", option)
    assert status == 2
    assert words in err


def test_fabrics_without_a_number_of_gpus_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "compare", "llama3-70b", "--fabrics", "rail-optimized")
    assert status == 2 and "at a number of GPUs" in err and "syncline design" in err


def test_fewer_gpus_may_be_cheaper(capsys: pytest.CaptureFixture[str], small: Path, free: dict[str, Any]) -> None:
    cost = answer(capsys, "h100-64-rail", str(small), "--objective", "cost")
    front = answer(capsys, "h100-64-rail", str(small), "--objective", "pareto")["pareto"]
    assert cost["best"]["cost_per_token_usd"] <= free["best"]["cost_per_token_usd"]
    assert cost["best"]["gpus_used"] <= free["best"]["gpus_used"]
    steps = [point["step_time_s"] for point in front]
    prices = [point["cost_per_token_usd"] for point in front]
    assert steps == sorted(steps)
    assert prices == sorted(prices, reverse=True)


def test_files_are_written_and_read_back(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    saved, job, page = tmp_path / "plan.json", tmp_path / "job.yaml", tmp_path / "plan.html"
    data = answer(
        capsys, "h100-64-rail", str(small), "--save", str(saved), "--write-job", str(job), "--html", str(page)
    )
    assert data["written"] == [str(page), str(saved), str(job)]
    assert json.loads(saved.read_text())["predicted"]["step_time_s"] == data["best"]["step_time_s"]
    assert app.run(["step", "h100-64-rail", str(job), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["step_time_s"] == data["best"]["step_time_s"]
    assert again["memory_bytes"]["total"] == data["best"]["memory_bytes"]
    assert page.read_text().startswith("<!doctype html>")


def test_the_split_of_the_job_file_is_compared(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    small.write_text(small.read_text() + "parallel: {tp: 8, pp: 4, zero: none}\n")
    data = answer(capsys, "h100-64-rail", str(small))
    assert data["given"]["step_time_s"] > data["best"]["step_time_s"]
    assert data["actions"][0]["name"] == "layout" or data["actions"][1]["name"] == "layout"
    _, out, _ = run(capsys, "h100-64-rail", str(small))
    assert "  job file   its own split takes " in out


def test_fabrics_side_by_side(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    data = answer(capsys, "compare", str(small), "--gpus", "256", "--fabrics", "rail-optimized,fat-tree 4:1,torus")
    rows = {row["name"]: row for row in data["fabrics"]}
    assert set(rows) == {"rail-optimized", "fat-tree 4:1", "torus"}
    assert rows["fat-tree 4:1"]["network_usd"] < rows["rail-optimized"]["network_usd"]
    assert rows["fat-tree 4:1"]["scattered_step_time_s"] > rows["fat-tree 4:1"]["step_time_s"]
    assert all(row["num_gpus"] == 64 for row in rows.values()), "the number that the job file states"


def test_gpus_that_are_not_whole_hosts_are_refused(capsys: pytest.CaptureFixture[str], small: Path) -> None:
    status, _, err = run(capsys, "compare", str(small), "--gpus", "100", "--fabrics", "rail-only")
    assert status == 2
    assert "100 GPUs are not whole hosts of 8." in err


def test_ray_is_asked_for_by_name(
    capsys: pytest.CaptureFixture[str], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    status, _, err = run(capsys, "h100-64-rail", str(small), "--on", "ray")
    assert status == 2
    assert 'Install the extra: pip install "syncline[ray]".' in err
    status, _, err = run(capsys, "h100-64-rail", str(small), "--on", "slurm")
    assert '--on "slurm" is not known.' in err


def test_an_unknown_job_names_those_that_ship(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "h100-64-rail", "llama-70b")
    assert status == 2
    assert 'there is no job file "llama-70b".' in err
    assert "llama3-70b" in err
