"""`syncline step`, `volumes` and `validate training` as their users meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import syncline
from syncline.cli.shell import app
from syncline.timeline import load

JOB = "model: llama3-70b\nparallel: {tp: 8, pp: 4}\nbatch: {global: 512, micro: 1, sequence: 8192}\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_a_job_that_ships_is_known_by_name_as_to_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["step", "h100-64-rail", "llama3-70b", "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert asked["step_time_s"] == syncline.step("h100-64-rail", "llama3-70b").to_json()["step_time_s"]
    assert app.run(["step", "h100-64-rail", "lama3-70b"]) == 2
    assert "Jobs that ship: llama3-70b" in capsys.readouterr().err


def test_json_and_files(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, page = tmp_path / "step.json", tmp_path / "step.html"
    assert app.run(["step", "h100-64-rail", str(job), "--json", "--trace", str(trace), "--html", str(page)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["parallel"]["dp"] == 16 and data["memory_bytes"]["fits"] is True
    assert load(trace).metadata["step_time_s"] == pytest.approx(data["step_time_s"], rel=0.02)  # drawn by closed forms
    html = page.read_text()
    assert "<svg" in html and "http" not in html.split("<body>")[1]


def test_text_says_what_limits_and_what_was_assumed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["step", "h100-64-rail", str(job)]) == 0
    text = capsys.readouterr().out
    for words in ("tp 8 x pp 4 x dp 16", "MFU", "limit", "assumed: ", "attention cudnn", "ignores: "):
        assert words in text


def test_impossible_jobs_exit_with_2(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("tp: 8", "tp: 7"))
    assert app.run(["step", "h100-64-rail", str(job), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)
    assert error["error"] == "DescriptionError" and "tp: 8" in error["hint"] and error["where"].endswith("line 2")
    assert app.run(["step", "h100-64-rail", "none.yaml"]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_volumes(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["step", "volumes", str(job), "--gpus", "512", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [row["kind"] for row in data["volumes"]] == ["tensor", "pipeline", "data", "gather again"]
    assert data["total_bytes"] == pytest.approx(sum(row["size_bytes"] for row in data["volumes"]))
    assert app.run(["step", "volumes", "--models"]) == 0
    assert "llama3-405b" in capsys.readouterr().out
    assert app.run(["step", "volumes"]) == 2


def test_a_trace_is_explained_not_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    path.write_text("{}")
    assert app.run(["step", "h100-64-rail", str(path)]) == 2
    assert f"syncline explain {path} --cluster h100-64-rail" in capsys.readouterr().err


def test_validate_training_prints_its_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["validate", "training"]) == 0
    text = capsys.readouterr().out
    assert "of 346 rows predicted" in text and "left out" in text and "not predicted:" in text


def test_what_has_no_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decode = tmp_path / "decode.yaml"
    decode.write_text("kind: decode\nmodel: llama3-8b\nbatch: {global: 1}\n")
    assert app.run(["step", "h100-64-rail", str(decode), "--html", str(tmp_path / "page.html")]) == 2
    assert "cannot be written of this answer" in capsys.readouterr().err
    (tmp_path / "job.yaml").write_text("model: llama3-8b\nbatch: {global: 1000}\n")
    assert app.run(["step", "h100-64-rail", str(tmp_path / "job.yaml")]) == 2
    assert "job.yaml: a global batch of 1,000" in capsys.readouterr().err
