"""`syncline explain`: one screen, JSON, a page, two traces subtracted, and what is no trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from syncline.cli.shell import app
from syncline.questions.explain import DifferenceAnswer, ExplainAnswer

GATHER = {"Collective name": "allgather", "Out msg nelems": 1 << 28, "dtype": "BFloat16", "Group size": 64}


def events(gather_us: float = 500) -> list[dict[str, Any]]:
    return [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 1000, "args": {"stream": 7}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL", "ts": 1000, "dur": gather_us,
         "args": {"stream": 9, **GATHER}},
    ]  # fmt: skip


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text(json.dumps({"traceEvents": rows}))
    return str(path)


def test_a_trace_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "profile.json", events())
    assert app.run(["explain", path]) == 0
    text = capsys.readouterr().out
    assert "the whole trace: 1.5 ms" in text and "all-gather" in text and "66.7%" in text
    assert "steps: the trace marks none and counts as one" in text
    page = tmp_path / "page.html"
    assert app.run(["explain", path, "--json", "--html", str(page)]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, ExplainAnswer.schema())
    assert sum(line["seconds"] for line in data["account"]["lines"]) == pytest.approx(data["account"]["step_s"])
    assert data["account"]["causes_s"]["network"] == pytest.approx(500e-6)
    assert "waiting for a collective" in page.read_text()


def test_with_a_cluster_transfers_are_judged_and_the_trace_runs_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "profile.json", events())
    assert app.run(["explain", path, "--cluster", "h100-64-rail", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    there = data["on_cluster"]
    assert there["recorded_s"] == pytest.approx(1.5e-3)
    assert there["exposed_comm_s"] == pytest.approx(data["collectives"][0]["expected_s"], rel=1e-6)
    assert data["collectives"][0]["expected_s"] > 0
    rows = events()
    del rows[1]["args"]["Out msg nelems"]
    write(tmp_path / "profile.json", rows)
    assert app.run(["explain", str(tmp_path), "--cluster", "h100-64-rail"]) == 0  # a folder: a file a rank
    assert "1 transfers whose size the trace does not tell keep their recorded time" in capsys.readouterr().out
    assert app.run(["explain", path, "--trace", str(tmp_path / "t.json")]) == 2
    assert "there is no timeline without a cluster" in capsys.readouterr().err


def test_two_traces_are_subtracted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write(tmp_path / "a.json", events()), write(tmp_path / "b.json", events(2500))
    assert app.run(["explain", after, "--against", before]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1.5 ms became 3.5 ms, 2 ms longer: waiting for a collective's data 2 ms.")
    assert app.run(["explain", before, "--json"]) == 0
    (tmp_path / "was.json").write_text(capsys.readouterr().out)
    assert app.run(["explain", after, "--against", str(tmp_path / "was.json"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, DifferenceAnswer.schema())
    assert data["account"]["change_s"] == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"hidden_size": 1}', "not a trace that is known"),
        ('{"traceEvents": []}', "no kernels and no operators"),
        ('{"traceEvents": [{"ph": "X"', "does not end"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, why: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    assert app.run(["explain", str(path)]) == 2
    assert why in capsys.readouterr().err
    assert app.run(["explain", str(tmp_path / "none.json")]) == 2
