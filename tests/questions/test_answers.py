"""A question asked from Python and from the command line has one answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import syncline
from syncline.cli.shell.app import run
from syncline.describe.plain import json_text
from syncline.questions.answer import Answer

JOB = {"model": "llama3-8b", "batch": {"global": 128, "sequence": 4096}, "parallel": {"tp": 4}}

CASES: dict[str, tuple[Callable[[Path], Answer], tuple[str, ...]]] = {
    "simulate": (
        lambda job: syncline.simulate("h100-64-rail", "allreduce", "1MiB..4MiB", ranks=32),
        ("simulate", "allreduce", "-c", "h100-64-rail", "--size", "1MiB..4MiB", "--ranks", "32"),
    ),
    "nccl": (
        lambda job: syncline.simulate("h100-64-rail", "allgather", "1GiB", algorithm="nccl"),
        ("simulate", "allgather", "-c", "h100-64-rail", "--size", "1GiB", "--algorithm", "nccl"),
    ),
    "compare": (
        lambda job: syncline.compare_algorithms("h100-64-rail", "allreduce", "1KiB..4KiB", ranks=16),
        ("simulate", "compare", "-c", "h100-64-rail", "--size", "1KiB..4KiB", "--ranks", "16"),
    ),
    "buffers": (
        lambda job: syncline.buffers("h100-64-rail", "incast:4:64KiB", transport="dctcp"),
        ("simulate", "buffers", "h100-64-rail", "incast:4:64KiB", "--transport", "dctcp"),
    ),
    "slots": (
        lambda job: syncline.slots("h100-64-rail", "incast:4:64KiB", clock_error="200ns"),
        ("simulate", "slots", "h100-64-rail", "incast:4:64KiB", "--clock-error", "200ns"),
    ),
    "step": (lambda job: syncline.step("h100-64-rail", job), ("step", "h100-64-rail", "JOB")),
    "volumes": (lambda job: syncline.volumes(job, gpus=64), ("volumes", "JOB", "--gpus", "64")),
    "cost": (lambda job: syncline.cost("h100-64-rail", budget="2M"), ("cost", "h100-64-rail", "--budget", "2M")),
    "inventory": (lambda job: syncline.inventory("h100-64-rail"), ("fabric", "show", "h100-64-rail")),
    "advise": (lambda job: syncline.advise("h100-64-rail", ranks=16), ("nccl", "h100-64-rail", "--ranks", "16")),
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(JOB))
    return path


@pytest.mark.parametrize("name", CASES)
def test_library_and_command_line_agree(name: str, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask, words = CASES[name]
    words = tuple(str(job) if word == "JOB" else word for word in words)
    answer = ask(job)
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json_text(answer.to_json()))
    assert run(list(words)) == 0
    assert capsys.readouterr().out.rstrip("\n") == str(answer)


def test_the_question_of_the_readme(tmp_path: Path) -> None:
    cluster = syncline.load("h100-64-rail")
    answer = syncline.simulate(cluster, "allreduce", "1GiB", ranks=32)
    assert 0 < answer.time_s < 1 and "->" in answer.limiting_link
    best = answer.rows[0].best
    assert best is not None and best.time_s < answer.time_s
    syncline.timeline.save(answer.timeline, tmp_path / "run.json.gz")
    # The best known schedule is priced by its pipeline; the timeline executes it.
    assert syncline.load_timeline(tmp_path / "run.json.gz").makespan_s == pytest.approx(best.time_s, rel=2e-3)
    page = syncline.plan(cluster, "llama3-70b", fix="tp=8,pp=4", workers=1).page(tmp_path / "plan.html")
    assert "<html" in page.read_text()


def test_a_cluster_is_a_mapping_too() -> None:
    cluster = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
    assert syncline.simulate(cluster, "allreduce", "1MiB").ranks == 32
    with pytest.raises(syncline.DescriptionError, match="unknown key"):
        syncline.load({"hosts": 4, "host": "dgx-h100", "networks": "rail-optimized NDR"})


def test_answers_have_a_picture_in_notebooks() -> None:
    assert "<svg" in syncline.inventory("h100-64-rail")._repr_html_()
    assert syncline.transfer(size="1GB", rate="8Gbps")._repr_html_().startswith("<pre>")


def test_an_answer_at_the_prompt_is_one_line_and_a_page_is_whole(tmp_path: Path) -> None:
    answer = syncline.step("h100-64-rail", JOB)
    assert repr(answer) == f"<StepPrediction: {str(answer).splitlines()[0]} ...>"
    assert answer._repr_html_().startswith('<iframe srcdoc="<!doctype html>')  # its style stays its own
    page = syncline.transfer(size="1GB", rate="8Gbps").page(tmp_path / "transfer.html").read_text()
    assert page.startswith("<!doctype html>") and 'charset="utf-8"' in page and "take 1 s</h1>" in page


def test_what_would_change_nothing_is_refused() -> None:
    with pytest.raises(syncline.UsageError, match=r"`gpus` is for fabrics"):
        syncline.compare("llama3-70b", clusters=["h100-64-rail"], gpus=64)


def test_a_models_name_is_a_job_with_its_assumptions_stated() -> None:
    answer = syncline.plan("h100-64-rail", "llama3-8b", fix="tp=1,pp=1,micro=1,zero=1", workers=1)
    assert '"llama3-8b" is a model: 512 sequences of 8,192 tokens a step' in answer.report.assumed_of_cluster[0]


def test_what_is_no_cluster_no_job_and_no_size_is_refused() -> None:
    for ask in (lambda: syncline.load(5), lambda: syncline.step("h100-64-rail", []),  # type: ignore[arg-type]
                lambda: syncline.simulate("h100-64-rail", "allreduce", []), lambda: syncline.design([], gpus=16),
                lambda: syncline.simulate("h100-64-rail", "allreduce", float("nan")),  # type: ignore[arg-type]
                lambda: syncline.traffic("h100-64-rail", "incast", float("nan"))):  # type: ignore[arg-type]  # fmt: skip
        with pytest.raises(syncline.SynclineError):
            ask()


def test_answers_are_frozen() -> None:
    answer = syncline.transfer(size="1GB", rate="8Gbps")
    with pytest.raises(AttributeError):
        answer.time_s = 2.0  # type: ignore[misc]
