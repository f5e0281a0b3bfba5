"""What nccl-tests and rccl-tests print, read as people keep it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.bench.nccl_log import parse, read_log
from syncline.describe.own_data import parsed
from syncline.errors import BenchError, FileError, SynclineError
from syncline.schedule import Kind

LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("name", "kind", "ranks", "hosts", "rows", "library"),
    [
        ("h100_16_efa_mpirun.log", Kind.ALL_REDUCE, 16, 2, 12, "nccl"),
        ("a100_8_old_release.log", Kind.ALL_REDUCE, 8, 1, 12, "nccl"),
        ("mi300x_16_rccl.log", Kind.ALL_REDUCE, 16, 2, 8, "rccl"),
        ("all_gather_wrong_srun.log", Kind.ALL_GATHER, 16, 2, 6, "nccl"),
        ("h200_8.json", Kind.ALL_REDUCE, 8, 1, 8, "nccl"),
    ],
)
def test_kept_logs(name: str, kind: Kind, ranks: int, hosts: int, rows: int, library: str) -> None:
    log = read_log(LOGS / name)
    assert (log.kind, log.num_ranks, log.num_hosts, len(log.rows), log.library) == (kind, ranks, hosts, rows, library)


def test_times_and_bandwidths_are_those_printed() -> None:
    log = read_log(LOGS / "h100_16_efa_mpirun.log")
    first, second = log.rows[0], log.rows[1]
    assert (first.size_bytes, first.num_elements, first.dtype, first.redop, first.root) == (
        1 << 20,
        262144,
        "float",
        "sum",
        -1,
    )
    assert (first.in_place, second.in_place) == (False, True)
    assert first.timing.median_s == pytest.approx(123.5e-6)
    assert first.algbw_Bps == pytest.approx(8.49e9, rel=1e-3) and first.busbw_Bps == pytest.approx(15.92e9, rel=1e-3)
    assert {row.num_wrong for row in log.rows} == {0}


def test_json_has_a_spread_where_iterations_were_timed() -> None:
    log = read_log(LOGS / "h200_8.json")
    out, inside = log.rows[0].timing, log.rows[1].timing
    assert log.version == "2.27.7" and out.num_repeats == 20
    assert out.p10_s < out.median_s < out.p90_s and inside.p10_s == inside.median_s == inside.p90_s


def test_wrong_data_and_a_run_that_did_not_end_are_seen() -> None:
    log = read_log(LOGS / "all_gather_wrong_srun.log")
    assert [row.num_wrong for row in log.rows] == [0, 0, 0, 0, 128, 128]
    assert log.notes == ("the run did not end: there is no average at the end of the log",)


DAMAGED = {
    "a cell is lost": "2097152 524288 float sum -1 150.0 13.98 26.21 0 150.0",
    "the type is lost": "2097152 524288",
    "only the size": "2097152",
    "the size is broken": "20x7152 524288 float sum -1 150.0 13.98 26.21 0 150.0 13.98 26.21 0",
}
SOUND = "1048576 262144 float sum -1 118.0 8.89 16.67 0 118.2 8.87 16.63 0"


@pytest.mark.parametrize("line", DAMAGED.values(), ids=list(DAMAGED))
@pytest.mark.parametrize("first", [True, False])
def test_a_damaged_line_is_counted_and_named(line: str, first: bool) -> None:
    rows = [line, SOUND] if first else [SOUND, line]
    log = parse(
        "\n".join(["# all_reduce_perf", "# size count type", *rows, "# Avg bus bandwidth : 1"]), "x", num_ranks=16
    )
    assert log.notes == (f"1 damaged result line left out: line {3 if first else 4}",)
    assert {row.size_bytes for row in log.rows} == {1 << 20}


def test_many_damaged_lines_are_counted_and_the_first_are_named() -> None:
    text = "\n".join(["# all_reduce_perf", SOUND, *["2097152 524288 float"] * 11, "# Avg bus bandwidth : 1"])
    assert parse(text, "x", num_ranks=16).notes == (
        "11 damaged result lines left out: line 3, 4, 5, 6, 7, 8, 9, 10 and 3 more",
    )


def test_lines_of_others_are_not_damaged_results() -> None:
    others = [
        "8 GPUs found",
        "2026-01-01 12:00:00 n1 NCCL INFO x",
        "n1:1:9 [0] NCCL INFO 3 4",
        "0 0 float sum -1 5.1 0 0",
    ]
    text = "\n".join(["# all_reduce_perf", SOUND, *others, SOUND, "# Avg bus bandwidth : 1"])
    assert parse(text, "x", num_ranks=16).notes == ()


def test_ranks_and_collective_are_told_from_the_bandwidths_where_nothing_else_says_them() -> None:
    text = "   67108864   16777216   float   sum   -1   600.5  111.75  209.54   0   607.3  110.50  207.19   0\n"
    log = parse(text, "paste")
    assert (log.kind, log.num_ranks) == (Kind.ALL_REDUCE, 16)
    assert parse(text, "paste", num_ranks=32).num_ranks == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "no result line of nccl-tests was found"),
        ("all_reduce_perf\nnothing", "no result line of nccl-tests was found"),
        ('{"results": 3, "args": ["all_reduce_perf"]}', "this is not the JSON of nccl-tests -J"),
        ('{"results": [], "args": ["x/all_reduce_perf"]}', "no result with a time, or no devices"),
    ],
)
def test_what_is_no_log_is_refused(text: str, message: str) -> None:
    with pytest.raises(BenchError, match=message) as caught:
        parse(text, "x.log")
    assert caught.value.where == "x.log"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        read_log(tmp_path / "no.log")


@given(st.text(max_size=400) | st.binary(max_size=400).map(lambda b: "all_reduce_perf\n" + b.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text, "x")
    except SynclineError as error:
        assert error.message


PUBLISHED = parsed((Path(__file__).parent / "published.yaml").read_text("utf-8"))


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one["name"])
def test_published_outputs_of_every_release_are_read(one: dict[str, Any]) -> None:
    given, expect = one.get("given", {}), one["expect"]
    kind = Kind[given["kind"].upper()] if "kind" in given else None
    log = parse(one["text"], one["source"], kind=kind, num_ranks=given.get("ranks", 0))
    assert (log.kind, log.num_ranks, log.num_hosts) == (Kind[expect["kind"].upper()], expect["ranks"], expect["hosts"])
    assert (len(log.rows), log.version, log.library) == (
        expect["rows"],
        expect["version"],
        expect.get("library", "nccl"),
    )
    assert sum(row.num_wrong or 0 for row in log.rows) == expect.get("wrong", 0)
    size, *printed = one["row"]
    out, inside = [row for row in log.rows if row.size_bytes == size]
    assert (out.in_place, inside.in_place) == (False, True)
    told = [out.timing.median_s * 1e6, out.busbw_Bps / 1e9, inside.timing.median_s * 1e6, inside.busbw_Bps / 1e9]
    assert told == pytest.approx(printed, rel=0.01, abs=0.006)


def test_published_outputs_come_from_many_places() -> None:
    assert len({one["source"] for one in PUBLISHED}) == len(PUBLISHED) >= 18
    assert all(one["source"].startswith("https://") for one in PUBLISHED)


def test_what_an_excerpt_does_not_say_is_asked_for() -> None:
    by_name = {one["name"]: one["text"] for one in PUBLISHED}
    with pytest.raises(BenchError, match="does not say which collective ran"):
        parse(by_name["2020-all-gather-without-redop"], "x.log")
    with pytest.raises(BenchError, match="does not say how many ranks ran"):
        parse(by_name["2019-p3dn-error-column"], "x.log", kind=Kind.ALL_REDUCE)


MARKS = (" 0: ", "[pod/nccl-test-h100-worker-0/nccl] ", "(head, rank=0, pid=38) [1,0]<stdout>:",
         "10.0.8.1: 10.0.8.1: ", "2025-05-16T16:39:51.208Z stdout F ")  # fmt: skip


@pytest.mark.parametrize("prefix", MARKS)
def test_lines_that_a_launcher_marks_are_read(prefix: str) -> None:
    line = "   67108864   16777216   float   sum   -1   600.5  111.75  209.54   0   607.3  110.50  207.19   0"
    assert [row.size_bytes for row in parse(f"{prefix}{line}\n", "x").rows] == [67108864] * 2


def test_columns_that_options_add_are_read() -> None:
    """-S adds the time of day, -I the spread of the repetitions; columns as src/util.cu of nccl-tests prints them."""
    line = "   67108864   16777216   float   sum   -1   600.5  111.75  209.54   0"
    when = parse(f"{line}   607.3  110.50  207.19   0  2025-10-14 09:12:33\n", "x").rows
    each = parse(
        f"{line}  590.1  640.2  630.0  1.25   607.3  110.50  207.19   3  590.1  640.2  630.0  1.25\n", "x"
    ).rows
    assert [row.timing.median_s for row in (*when, *each)] == pytest.approx([600.5e-6, 607.3e-6] * 2)
    assert [row.num_wrong for row in each] == [0, 3]


def test_the_document_as_the_program_writes_it() -> None:
    """Devices stand inside config, the first of each process only; numbers of versions and roots as text."""
    results = [{"size": 1024, "count": 256, "type": "float", "redop": "sum", "root": "    -1",
                "out_of_place": {"cpu_time": 30.0, "alg_bw": 0.03, "bus_bw": 0.06, "nwrong": 0.0},
                "in_place": {"cpu_time": 31.0, "alg_bw": 0.03, "bus_bw": 0.06, "nwrong": None}}]  # fmt: skip
    devices = [{"rank": rank, "hostname": f"n{rank}", "device": 0, "device_info": "NVIDIA H100"} for rank in (0, 8)]
    config = {"nthreads": 1, "ngpus": 8, "iterations": 20, "validation": 1, "devices": devices}
    document = {"version": 2, "args": ["./all_reduce_perf_mpi"], "nccl_version": 22703, "config": config}
    log = parse(json.dumps(document | {"results": results}), "x.json")
    assert (log.kind, log.num_ranks, log.num_hosts, log.version) == (Kind.ALL_REDUCE, 16, 2, "2.27.3")
    assert [row.timing.median_s for row in log.rows] == pytest.approx([30e-6, 31e-6])
    assert [(row.root, row.num_wrong) for row in log.rows] == [(-1, 0), (-1, None)]
    alone = config | {"devices": devices[:1]}
    assert parse(json.dumps(document | {"config": alone, "results": results}), "x.json").num_ranks == 8


LONE = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#  Rank  0 Group  0 Pid  10 on  node1 device  0 [0x1a] NVIDIA H100
     1048576        262144     float     sum      -1    5.90  177.72    0.00      0    0.30  3495.2    0.00      0
     8388608       2097152     float     sum      -1    9.20  911.80    0.00      0    0.30  27962.    0.00      0
# Avg bus bandwidth    : 0
"""


def test_records_of_newer_rccl_tests_stand_in_a_list() -> None:
    row = ('{"numCycle":0, "name":"AllReduce", "nodes":1, "ranks":8, "ranksPerNode":8, "gpusPerRank":1, "size":1048576,'
           ' "type":"float", "redop":"sum", "inPlace":%d, "time":76.260000, "algBw":13.750000, "busBw":24.060000, '
           '"wrong":"%s"}')  # fmt: skip
    text = "[\n" + ",\n".join((row % (0, "0"), row % (1, "3"))) + "\n]\n"
    log = parse(text, "list")
    assert (log.kind, log.num_ranks, log.library) == (Kind.ALL_REDUCE, 8, "rccl")
    assert [(one.in_place, one.num_wrong) for one in log.rows] == [(False, 0), (True, 3)]
    assert log.rows[0].timing.median_s == pytest.approx(76.26e-6)
    for broken in (text[:-4], text.replace("76.260000", "inf"), "[\n]\n", '[{"inPlace":0}]'):
        with pytest.raises(BenchError):
            parse(broken, "list")


def test_a_build_without_mpi_is_refused() -> None:
    with pytest.raises(BenchError, match=r"every process ran alone: busbw is 0\.00") as caught:
        parse(LONE, "lone.log", num_ranks=2)
    assert "MPI=1" in caught.value.hint
