from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.cli.shell.app import run

HEAD = "source,system,gpus,nodes,op,dtype,size_bytes,time_us,algbw_gbps,busbw_gbps,notes\n"
GOOD = 's,"4x8 H100, InfiniBand NDR",32,4,all_reduce,float,8589934592,44000,0,0,\n'
ROWS = HEAD + GOOD + "s,mystery,8,1,all_reduce,float,0,9,0,0,\n"


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return str(path)


def test_json_has_overall_and_systems(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "collectives", "--data", data, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    for row in (result["overall"], result["systems"]["4x8 H100, InfiniBand NDR"]):
        assert {"rows", "modelled", "median_error", "p90_error", "by_band", "calibrated", "left_out"} <= set(row)
    assert (result["overall"]["rows"], result["overall"]["modelled"]) == (2, 1)


def test_text_lists_what_was_not_modelled(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "collectives", "--data", data]) == 0
    text = capsys.readouterr().out
    assert "overall" in text
    assert "not modelled: 1 rows of mystery: size is 0" in text


def test_a_missing_file_is_the_users_to_put_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "collectives", "--data", "nowhere.csv"]) == 2
    assert 'FileError: cannot read "nowhere.csv"' in capsys.readouterr().err
