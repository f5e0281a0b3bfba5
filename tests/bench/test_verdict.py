"""Verdicts, what they cost, and the sizes and bandwidths they are made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.bench.expect import Expectation, Oracle, expectations
from syncline.bench.measured import Measurement, Timing, bus_factor
from syncline.bench.price import loss
from syncline.bench.sizes import between, nccl_size, sizes_of
from syncline.bench.sweep import program_of
from syncline.bench.verdict import BenchVerdict, findings, judge
from syncline.errors import BenchError, UsageError
from syncline.fabric import ClusterSpec, build, load
from syncline.finding import Severity
from syncline.program import packed
from syncline.schedule import Kind
from syncline.sim.flow.routing import NetworkOptions

EXPECTED = Expectation(1 << 20, 0.010, 0.009, 0.012, "leaf-0 -> spine-1", 1e6, 1e8, "flow model")


def measured(p10: float, median: float, p90: float, wrong: int | None = 0, size: int = 1 << 20) -> Measurement:
    return Measurement(Kind.ALL_REDUCE, 8, size, Timing(median, p10, p90, 10), "ring", num_wrong=wrong)


@pytest.mark.parametrize(
    ("times", "wrong", "verdict"),
    [
        ((0.0095, 0.010, 0.011), 0, BenchVerdict.OK),
        ((0.013, 0.014, 0.016), 0, BenchVerdict.SLOW),
        ((0.0115, 0.0125, 0.02), 0, BenchVerdict.MAYBE_SLOW),
        ((0.005, 0.006, 0.007), 0, BenchVerdict.FAST),
        ((0.005, 0.006, 0.0095), 0, BenchVerdict.OK),
        ((0.0095, 0.010, 0.011), 3, BenchVerdict.WRONG),
    ],
)
def test_the_interval_of_the_prediction_decides(
    times: tuple[float, float, float], wrong: int, verdict: BenchVerdict
) -> None:
    assert judge(measured(*times, wrong), EXPECTED).verdict is verdict


def test_without_a_prediction_nothing_is_said() -> None:
    row = judge(measured(1, 1, 1), None)
    assert (row.verdict, row.factor, row.wire_Bps, row.label) == (BenchVerdict.UNKNOWN, None, None, "-")
    assert findings([row]) == []


def test_a_slow_row_names_no_link_without_evidence_and_asks_for_the_measurement_that_decides() -> None:
    rows = [judge(measured(0.03, 0.03, 0.03), EXPECTED)]
    (finding,) = findings(rows)
    assert finding.rule == "bench.collective.slow" and finding.severity is Severity.CRITICAL
    assert finding.place == "the collective as a whole" and "nothing here tells which" in finding.meaning
    assert "3 times the predicted time" in finding.observed
    assert "syncline bench tournament" in finding.fix and "a pair below 640 Mb/s has the fault" in finding.fix


def test_what_the_model_cannot_tell_from_its_own_error_is_no_accusation() -> None:
    unsure = replace(EXPECTED, high_s=0.05, healthy_s=0.015)
    (finding,) = findings([judge(measured(0.03, 0.03, 0.03), unsure)])
    assert finding.rule == "bench.collective.slower-than-usual" and finding.severity is Severity.UNKNOWN
    assert finding.confidence <= 0.5
    assert judge(measured(0.014, 0.014, 0.014), unsure).verdict is BenchVerdict.OK


def test_in_place_and_out_of_place_are_both_compared() -> None:
    row = measured(0.009, 0.009, 0.009)
    apart = judge(replace(row, size_bytes=4 << 30, other_s=0.009 / 1.42), EXPECTED)
    assert apart.verdict is BenchVerdict.UNSTEADY
    (finding,) = findings([apart])
    assert finding.rule == "bench.collective.unsteady" and "42% longer" in finding.observed
    both = judge(replace(row, timing=Timing.single(0.03), other_s=0.009), EXPECTED)
    assert both.verdict is BenchVerdict.MAYBE_SLOW, "one of two places was in time"


def test_wrong_data_is_critical() -> None:
    (finding,) = findings([judge(measured(0.01, 0.01, 0.01, 7), EXPECTED)])
    assert finding.rule == "bench.data.wrong" and finding.observed == "7 elements came out wrong"


def test_faster_than_described_is_a_finding_too() -> None:
    (finding,) = findings([judge(measured(0.001, 0.001, 0.001), EXPECTED)])
    assert finding.rule == "bench.collective.faster-than-described"


def test_cost_counts_the_exposed_share_of_the_gap() -> None:
    rows = [judge(measured(0.02, 0.02, 0.02), EXPECTED)]
    lost = loss(rows, 64, 0.2, 3.0, "as given")
    assert lost is not None and lost.lost_share == pytest.approx(0.1)
    assert lost.gpu_hours_per_day == pytest.approx(64 * 24 * 0.1) and lost.usd_per_day == pytest.approx(460.8)
    assert loss([judge(measured(0.009, 0.009, 0.009), EXPECTED)], 64, 0.2, 3.0, "")  # nothing lost, still an answer
    assert loss([judge(measured(1, 1, 1), None)], 64, 0.2, None, "") is None
    with pytest.raises(BenchError, match="the exposed share 0 is not above 0"):
        loss(rows, 64, 0.0, None, "")


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor(Kind.ALL_REDUCE, 4) == 1.5
    assert {bus_factor(k, 4) for k in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.GATHER)} == {0.75}
    assert {bus_factor(k, 4) for k in (Kind.BROADCAST, Kind.REDUCE, Kind.SEND_RECV)} == {1.0}


def test_sizes_of_both_notations() -> None:
    assert sizes_of("1KiB..8KiB") == [1024, 2048, 4096, 8192]
    assert sizes_of("1KiB,3KiB") == [1024, 3072] and sizes_of("1KiB..9KiB", factor=3) == [1024, 3072, 9216]
    assert [nccl_size(t) for t in ("8", "32M", "1G", "1.5K")] == [8, 32 << 20, 1 << 30, 1536]
    assert between(8, 24, step=8) == [8, 16, 24]
    for bad in (lambda: nccl_size("1X"), lambda: between(8, 4), lambda: between(1, 8, factor=2, step=2)):
        with pytest.raises(UsageError):
            bad()


LS = {"topology": "leaf-spine", "link": "100GbE", "hosts_per_leaf": 4, "spines": 2}
FABRIC = build(ClusterSpec.model_validate({"hosts": 8, "host": "1 x H100", "network": LS}))


def test_a_program_is_expected_to_take_what_the_flow_model_says_within_an_interval() -> None:
    placed = packed(FABRIC, 8)
    ring = program_of("ring", Kind.ALL_REDUCE, placed, "gloo")
    plain = Oracle(FABRIC, placed, NetworkOptions(transport="ideal"))
    (one,) = plain.program(ring, [1 << 30])
    assert one.time_s == pytest.approx(2 * 7 / 8 * (1 << 30) / 12.5e9, rel=0.01)
    assert one.low_s < one.time_s < one.high_s and one.link
    assert one.wire_Bps(one.time_s) == pytest.approx(12.5e9, rel=0.01)


def test_a_calibrated_cluster_file_is_surer_and_knows_its_hosts() -> None:
    fitted: dict[str, object] = {
        "latency_s": 1e-3,
        "post_s": 1e-4,
        "add_s_per_byte": 0.0,
        "start_s": 0.0,
        "efficiency": 1.0,
        "ranks": 8,
    }
    fitted |= {"median_error": 0.01, "worst_error": 0.03, "measured": "here"}
    spec = ClusterSpec.model_validate({"hosts": 8, "host": "1 x H100", "network": LS, "calibration": fitted})
    options = NetworkOptions(transport="ideal")
    found = {}
    for name, fabric in (("described", FABRIC), ("calibrated", build(spec))):
        placed = packed(fabric, 8)
        (found[name],) = Oracle(fabric, placed, options).program(
            program_of("ring", Kind.ALL_REDUCE, placed, "gloo"), [1 << 30]
        )
    plain, sure = found["described"], found["calibrated"]
    assert sure.high_s / sure.low_s < plain.high_s / plain.low_s and sure.source.endswith("fitted here")
    assert sure.time_s - plain.time_s == pytest.approx(14 * 1.2e-3, rel=0.3)


def test_colliding_hashes_widen_the_interval() -> None:
    placed = packed(FABRIC, 8)
    direct = program_of("direct", Kind.ALL_TO_ALL, placed, "gloo")
    options = {
        routing: Oracle(FABRIC, placed, NetworkOptions(routing=routing, transport="ideal"))
        for routing in ("ecmp", "spray")
    }
    (hashed,), (even,) = (options[name].program(direct, [1 << 28]) for name in ("ecmp", "spray"))
    assert hashed.high_s / hashed.time_s > even.high_s / even.time_s


def test_the_model_of_nccl_judges_vendor_collectives_on_gpus() -> None:
    fabric = load("h100-64-rail")
    oracle = Oracle(fabric, packed(fabric, 16))
    (one,) = oracle.vendor(Kind.ALL_REDUCE, [1 << 30], backend="nccl")
    assert one.source.startswith("model of NCCL") and 0.003 < one.low_s < one.time_s < one.high_s < 0.007
    (uneven,) = Oracle(fabric, packed(fabric, 12)).nccl(Kind.ALL_REDUCE, [1 << 30])
    assert uneven.time_s > max(one.time_s, (1 << 30) / 200e9)  # four NICs of the second host, the first has eight


def test_gloo_is_predicted_as_a_ring_and_what_cannot_be_is_said() -> None:
    placed = packed(FABRIC, 8)
    oracle = Oracle(FABRIC, placed)
    found, why = expectations(oracle, None, Kind.ALL_REDUCE, [1 << 20], "gloo")
    assert found[0] is not None and not why
    assert expectations(None, None, Kind.ALL_REDUCE, [1], "gloo")[1].startswith("no cluster was given")
    nothing, why = expectations(oracle, None, Kind.GATHER, [1 << 20], "nccl")
    assert nothing == [None] and "that is modelled" in why


def test_hierarchical_uses_racks_where_hosts_have_one_rank() -> None:
    program = program_of("hierarchical", Kind.ALL_REDUCE, packed(FABRIC, 8), "gloo")
    assert program.num_ranks == 8
    with pytest.raises(BenchError, match="equally many ranks"):
        program_of("hierarchical", Kind.ALL_REDUCE, packed(FABRIC, 7), "gloo")


def test_a_codec_shrinks_the_prediction() -> None:
    placed = packed(FABRIC, 8)
    oracle = Oracle(FABRIC, placed, NetworkOptions(transport="ideal"))
    plain, small = (program_of("ring", Kind.ALL_REDUCE, placed, "gloo", codec) for codec in ("raw", "int8"))
    (a,), (b,) = oracle.program(plain, [1 << 28]), oracle.program(small, [1 << 28])
    assert np.isclose(b.link_bytes / a.link_bytes, 0.25, atol=0.02)
