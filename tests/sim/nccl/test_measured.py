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
    assert read_log(LOG.replace("all_reduce_perf", ""), "run.log", "alltoall").op == "all_to_all"
    with pytest.raises(FileError, match="no nccl-tests result line"):
        read_log("# all_reduce_perf\nnothing", "run.log")
    with pytest.raises(FileError, match="not the JSON of nccl-tests"):
        read_log('{"a": 1}', "run.json")


HEAD = "source,system,gpus,nodes,op,dtype,size_bytes,time_us,algbw_gbps,busbw_gbps,notes\n"


def test_a_file_that_is_no_such_csv_is_one_error() -> None:
    for text, words in (
        ("a,b\n1,2\n", "column system is missing"),
        ("", "column system is missing"),
        ("system,gpus,op,size_bytes\n", "column time_us is missing"),
        (HEAD + 's,"' + "x" * 200_000 + '",8,1,all_reduce,float,8,1,0,0,\n', "this is not a CSV"),
    ):
        with pytest.raises(FileError, match=words):
            read_rows(text, "x.csv")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("8,1,all_reduce,float,8,1.5,0,0", ("all_reduce", 8, 1.5)),
        ("8,1,AllReduce,float,1G,2ms,,", ("all_reduce", 2**30, 2000.0)),
        ('8,1,all_reduce_perf,half,8 MiB,"1,024.5",,', ("all_reduce", 2**23, 1024.5)),
        ("8,1,all-to-all,bfloat16,1073741824,,,160", ("all_to_all", 2**30, 2**30 * 7 / 8 / 160e3)),
        ("8,1,reduce_scatter,float,1073741824,N/A,200,", ("reduce_scatter", 2**30, 2**30 / 200e3)),
        ("8,1,bcast,float,256KB,nan,,100", ("broadcast", 2**18, 2**18 / 100e3)),
        ("8,1,all_gather,float,0,8.5,0,0", ("all_gather", 0, 8.5)),
        ("8,1,gather,float,8,8.5,0,0", ("gather", 8, 8.5)),
        ("8,,sendrecv,float,8,8.5,0,0", ("send_recv", 8, 8.5)),
    ],
)
def test_cells_as_people_write_them(cells: str, expected: tuple[str, float, float]) -> None:
    (row,) = read_rows(HEAD + f"s,sys,{cells},\n", "x.csv")
    assert row.problem == ""
    assert (row.op, row.size_bytes) == expected[:2]
    assert row.time_us == pytest.approx(expected[2])


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("eight,1,all_reduce,float,8,1,0,0", '"eight" is not a number'),
        ("8,1.5,all_reduce,float,8,1,0,0", 'nodes "1.5" is not a count'),
        ("8,1,all_reduce,float,8 parsecs,1,0,0", '"8 parsecs" is not a number'),
        ("8,1,all_reduce,float,1e999,1,0,0", "is not a finite number"),
        ("-8,1,all_reduce,float,8,1,0,0", 'gpus "-8" is not a count'),
    ],
)
def test_a_cell_that_cannot_be_read_is_the_rows_problem(cells: str, words: str) -> None:
    good = "s,sys,8,1,all_reduce,float,8,1,0,0,\n"
    bad, fine = read_rows(HEAD + f"s,sys,{cells},\n" + good, "x.csv")
    assert words in bad.problem
    assert fine.problem == ""


OLD = """
# nThread 1 nGpus 8 minBytes 1 maxBytes 8589934592 step: 2(factor) broadcast_perf
[1,0]<stdout>:           8             2   float       0    34.16    0.00    0.00    N/A    34.32    0.00    0.00    N/A
 0:   8589934592    2147483648   float       0    36896  232.81  232.81    N/A    36599  234.70  234.70    N/A
        4096           128   float    34.62    0.12    0.10    N/A    34.81    0.12    0.10    N/A
   134217728      33554432   float     sum   1162.2  115.49  202.11  2e-07   1162.5  115.46  202.05  2e-07
"""


def test_logs_of_older_releases_and_launchers() -> None:
    series = read_log(OLD, "old.log")
    assert series.sizes.tolist() == [8, 4096, 134217728, 8589934592]
    assert series.time_us.tolist() == [34.16, 34.62, 1162.2, 36896.0]


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot read"):
        read_text(tmp_path / "none.csv")
    (tmp_path / "bin").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(FileError, match="is not text"):
        read_text(tmp_path / "bin")
