"""What nccl-tests and rccl-tests print, read as people keep it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.bench.nccl_log import parse, read_log
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


def test_ranks_and_collective_are_told_from_the_bandwidths_where_nothing_else_says_them() -> None:
    text = "   67108864   16777216   float   sum   -1   600.5  111.75  209.54   0   607.3  110.50  207.19   0\n"
    log = parse(text, "paste")
    assert (log.kind, log.num_ranks) == (Kind.ALL_REDUCE, 16)
    assert parse(text, "paste", num_ranks=32).num_ranks == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "the log does not say which collective ran"),
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
