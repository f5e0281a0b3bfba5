"""How sure a slowdown is, and that bandwidths, names and left-out lines are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.bench.certainty import certainty
from syncline.bench.expect import Expectation
from syncline.bench.measured import Measurement, Timing
from syncline.bench.nccl_log import parse
from syncline.bench.verdict import BenchVerdict, Judgement, findings, judge
from syncline.cli.shell.app import run
from syncline.schedule import Kind

LINE_BPS = 50e9
TABLE = "# Using devices\n" + "".join(
    f"#  Rank {rank:2d} Group 0 Pid 1 on gpu-{1 + rank // 8:02d} device {rank % 8} [0x1b] NVIDIA H100\n"
    for rank in range(16)
)


def row(size: int, factor: float) -> Judgement:
    """One size on a link of 50 GB/s with 50 us of latency, at a factor of its predicted time; good to +-20 %."""
    time_s = 50e-6 + size / LINE_BPS
    expected = Expectation(size, time_s, time_s / 1.2, time_s * 1.2, "host-00/nic-0 -> leaf-00", size, LINE_BPS, "m")
    return judge(Measurement(Kind.ALL_REDUCE, 8, size, Timing.single(factor * time_s)), expected)


def sure(rows: list[Judgement]) -> float:
    return certainty(pairs([one for one in rows if one.verdict is BenchVerdict.SLOW]), pairs(rows)).confidence


def pairs(rows: list[Judgement]) -> list[tuple[Measurement, Expectation]]:
    return [(one.measured, one.expected) for one in rows if one.expected]


SIZES = [8 << k for k in range(30)]
LARGE = [size for size in SIZES if size >= 4 << 20]


def test_large_sizes_at_half_rate_are_certain_however_many_small_ones_there_are() -> None:
    whole = [row(size, 2.0 if size in LARGE else 1.0) for size in SIZES]
    assert sure(whole) == sure([row(size, 2.0) for size in LARGE]) == 0.99
    assert sure([row(size, 2.0) for size in SIZES]) == 0.99


def test_fewer_nearer_and_contradicted_sizes_are_less_sure() -> None:
    one = sure([row(LARGE[-1], 2.0)])
    assert one == 0.75
    assert sure([row(size, 2.0) for size in LARGE[-2:]]) == pytest.approx(0.94)
    assert sure([row(size, 1.21) for size in LARGE]) == pytest.approx(0.96, abs=0.01)
    half = [row(size, 2.0 if k % 2 else 0.95) for k, size in enumerate(LARGE)]
    assert 0.4 < sure(half) < 0.6


def test_only_small_sizes_are_held_against_small_sizes() -> None:
    found = certainty(pairs([row(1024, 3.0)]), pairs([row(1024, 3.0), row(2048, 1.1), row(1 << 30, 1.0)]))
    assert (found.small, found.num_slow, found.num_slower, found.num_sizes) == (True, 1, 2, 2)
    assert found.line() == "1 of 2 small sizes above the interval, 2 above the prediction"


def test_a_finding_tells_bandwidths_measured_and_expected() -> None:
    (finding,) = findings([row(1 << 30, 2.0)])
    # 1.0737 GB at 50 GB/s and 50 us: 21.52 ms; algbw 49.9, busbw 49.9 * 2 * 7/8 = 87.3 GB/s; half of it was measured
    assert "busbw 43.65 GB/s, predicted 87.3 (72.75 to 104.8)" in finding.evidence[0]
    assert "algbw 24.94 GB/s, predicted 49.88 (41.57 to 59.86)" in finding.evidence[0]
    told = row(1 << 30, 2.0).to_json()["expected"]
    assert isinstance(told, dict) and told["busbw_Bps"] == pytest.approx(87.3e9, rel=1e-3)


@pytest.mark.parametrize("time", ["-10020", "0.00", "nan", "15o.0"])
def test_a_time_that_cannot_be_is_left_out_and_named(time: str) -> None:
    good = "1048576 262144 float sum -1 118.0 8.89 16.67 0 118.2 8.87 16.63 0"
    bad = f"2097152 524288 float sum -1 {time} 13.98 26.21 0 150.0 13.98 26.21 0"
    log = parse(f"{TABLE}{good}\n{bad}\n# Avg bus bandwidth : 1\n", "x", kind=Kind.ALL_REDUCE)
    assert log.notes == (f"line 19 left out: the time of 2 MiB out of place is {time}, not a number above 0",)
    assert [one.size_bytes for one in log.rows] == [1 << 20, 1 << 20, 2 << 20]


def test_a_log_is_told_by_its_own_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.log"
    rows = "1073741824 268435456 float sum -1 20000 53.69 100.66 0 20000 53.69 100.66 0\n"
    path.write_text(f"# all_reduce_perf\n{TABLE}{rows}# Avg bus bandwidth : 1\n")
    assert run(["bench", "--read", str(path), "--cluster", "h100-64-rail"]) == 0
    out = capsys.readouterr().out
    assert "gpu-01/nic-0 -> leaf-00" in out and "host-00" not in out
    assert "# predicted choice: NVLSTree/Simple at 1 GiB" in out
    assert run(["bench", "--read", str(path), "--cluster", "h100-64-rail", "--ranks", "1024"]) == 2
    assert "the log has 1024 ranks, h100-64-rail only 512 GPUs" in capsys.readouterr().err
