from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.errors import FileError
from syncline.sim.nccl.measured import read_log, read_rows, read_text

LOG = """
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 33554432
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1    20.10    0.00    0.00      0    19.90    0.00    0.00      0
     1048576        262144     float     sum      -1    37.89   27.67   48.43      0    36.10   29.05   50.83      0
    33554432       8388608     float     sum      -1    377.6   88.86  155.51      0    375.0   89.48  156.59    N/A
# Avg bus bandwidth    : 68.0
"""


def test_text_log() -> None:
    series = read_log(LOG, "run.log")
    assert series.op == "all_reduce"
    assert series.sizes.tolist() == [8, 1048576, 33554432]
    assert series.time_us.tolist() == [20.10, 37.89, 377.6]


def test_json_log() -> None:
    results = [{"size": 2048, "out_of_place": {"time": 24.3}}, {"size": 0, "out_of_place": {"time": 8.0}}]
    data = {"args": ["./build/all_gather_perf", "-b", "8"], "results": results}
    series = read_log(json.dumps(data), "run.json")
    assert (series.op, series.sizes.tolist(), series.time_us.tolist()) == ("all_gather", [2048], [24.3])


def test_logs_that_cannot_be_used() -> None:
    with pytest.raises(FileError, match="does not say which operation"):
        read_log(LOG.replace("all_reduce_perf", ""), "run.log")
    assert read_log(LOG.replace("all_reduce_perf", ""), "run.log", "alltoall").op == "alltoall"
    with pytest.raises(FileError, match="no nccl-tests result line"):
        read_log("# all_reduce_perf\nnothing", "run.log")
    with pytest.raises(FileError, match="not the JSON of nccl-tests"):
        read_log('{"a": 1}', "run.json")


def test_csv_errors_have_a_line() -> None:
    with pytest.raises(FileError, match="column source is missing"):
        read_rows("a,b\n1,2\n", "x.csv")
    head = "source,system,gpus,nodes,op,dtype,size_bytes,time_us,algbw_gbps,busbw_gbps,notes\n"
    with pytest.raises(FileError, match=r"x\.csv line 2"):
        read_rows(head + "s,sys,eight,1,all_reduce,float,8,1,0,0,\n", "x.csv")


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot read"):
        read_text(tmp_path / "none.csv")
    (tmp_path / "bin").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(FileError, match="is not text"):
        read_text(tmp_path / "bin")
