"""Estimates, bounds and sweeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from syncline.codec.codec import Codec
from syncline.errors import SimulationError
from syncline.fabric import ClusterSpec, Fabric, build
from syncline.program import lower, packed
from syncline.schedule import Kind, ring, verify
from syncline.schedule import build as family
from syncline.sim.analytic import bounds
from syncline.sim.candidates import candidates, find, proved, rail_rings
from syncline.sim.flow.estimate import bus_factor, estimate
from syncline.sim.flow.maxplus import max_plus_end_s
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.flow.wired import traffic_matrix, wire
from syncline.sim.sweep import Contest, crossovers, sizes_between


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": 8, "host": "8 x H100", "network": "rail-optimized NDR"}))


@pytest.fixture(scope="module")
def network(fabric: Fabric) -> FlowNetwork:
    return FlowNetwork(fabric, NetworkOptions("static"))


def test_bandwidths_are_those_of_nccl_tests(fabric: Fabric, network: FlowNetwork) -> None:
    found = estimate(lower(verify(ring(64)), packed(fabric)), network, 1 << 30)
    assert found.algbw_Bps == pytest.approx((1 << 30) / found.time_s)
    assert found.busbw_Bps == pytest.approx(found.algbw_Bps * 2 * 63 / 64)
    assert bus_factor(Kind.ALL_GATHER, 4) == 0.75
    assert bus_factor(Kind.BROADCAST, 4) == 1


def test_an_estimate_names_its_limit(fabric: Fabric, network: FlowNetwork) -> None:
    found = estimate(lower(verify(ring(64)), packed(fabric)), network, 1 << 30)
    assert "nic" in found.limiting_link_name
    assert 0.9 < found.utilisation <= 0.95  # a payload share of 0.95 of the line


def test_the_analytic_level_is_a_lower_bound_and_says_so(fabric: Fabric) -> None:
    network = FlowNetwork(fabric, NetworkOptions("ecmp", 2))
    for name in ("ring", "tree", "halving-doubling", "double-tree"):
        program = lower(verify(family(name, 64)), packed(fabric))
        low, flow = (estimate(program, network, 1 << 26, level=level) for level in ("analytic", "flow"))
        assert low.time_s <= flow.time_s * (1 + 1e-9)
        assert low.method == "bound" and "contention but on the busiest link" in low.ignores
        assert "contention but on the busiest link" not in flow.ignores
    with pytest.raises(SimulationError, match='no level of simulation is called "packet"'):
        estimate(program, network, 1, level="packet")


def test_bounds_of_a_ring_are_its_closed_form(fabric: Fabric, network: FlowNetwork) -> None:
    program = wire(lower(verify(ring(64)), packed(fabric)), network)
    found = bounds(program, 1 << 30)
    rate, slowest = float(program.solo_Bps.min()), float(program.latency_s.max())
    assert found.bandwidth_s == pytest.approx(2 * 63 / 64 * (1 << 30) / rate)
    assert found.chain_s == pytest.approx(126 * slowest + 2 * 63 / 64 * (1 << 30) / rate, rel=1e-9)


def test_a_codec_shrinks_the_wire_and_charges_the_host(fabric: Fabric, network: FlowNetwork) -> None:
    raw, half, dear = (
        estimate(lower(verify(ring(64)), packed(fabric), codec), network, 1 << 30).time_s
        for codec in (Codec("raw"), Codec("half", 0.5), Codec("dear", 0.5, encode_Bps=5e9, decode_Bps=5e9))
    )
    assert half == pytest.approx(raw / 2, rel=0.05)
    assert dear > raw


def test_rail_rings_keep_every_nic_busy(fabric: Fabric, network: FlowNetwork) -> None:
    one, many = (estimate(lower(verify(s), packed(fabric)), network, 1 << 30) for s in (ring(64), rail_rings(8, 8)))
    assert many.time_s == pytest.approx(one.time_s / 8, rel=0.1)


def test_candidates_fit_the_collective_and_can_be_found_by_name(fabric: Fabric) -> None:
    assert {"ring", "hierarchical", "rail-rings", "tree", "in-network"} <= set(candidates(fabric, Kind.ALL_REDUCE, 64))
    assert {"direct", "pairwise", "bruck"} <= set(candidates(fabric, Kind.ALL_TO_ALL, 64))
    assert find(fabric, Kind.ALL_REDUCE, 64, "ring").schedule.num_ranks == 64
    assert "in-network" not in proved(fabric, Kind.ALL_REDUCE, 16)
    with pytest.raises(SimulationError, match='no algorithm is called "teleport"'):
        find(fabric, Kind.ALL_REDUCE, 64, "teleport")


def test_the_best_of_a_contest_is_the_fastest_of_all(fabric: Fabric, network: FlowNetwork) -> None:
    contest = Contest.of(proved(fabric, Kind.ALL_REDUCE, 64), packed(fabric), network)
    for size in (1 << 12, 1 << 20, 1 << 28):
        everyone = contest.all(size)
        assert contest.best(size).time_s == pytest.approx(everyone[0].time_s)
        assert everyone[0].time_s <= everyone[-1].time_s


def test_crossovers_lie_where_both_are_equally_fast(fabric: Fabric, network: FlowNetwork) -> None:
    contest = Contest.of(proved(fabric, Kind.ALL_REDUCE, 64), packed(fabric), network)
    sizes = sizes_between(1 << 10, 1 << 30, 4)
    winners = [(size, contest.best(size).algorithm) for size in sizes]
    found = crossovers(winners, contest)
    assert len(found) >= 2
    for change in found:
        before, after = (contest.one(name, change.size_bytes).time_s for name in (change.before, change.after))
        assert before == pytest.approx(after, rel=0.03)


def test_sizes_double(fabric: Fabric) -> None:
    assert sizes_between(1, 9) == [1, 2, 4, 8]
    with pytest.raises(SimulationError, match="give them rising"):
        sizes_between(8, 4)


def test_traffic_by_rank_and_by_host(fabric: Fabric, network: FlowNetwork) -> None:
    program = wire(lower(verify(ring(64)), packed(fabric)), network)
    by_rank, names = traffic_matrix(program, 64)
    assert by_rank.shape == (64, 64) and names[1] == "rank 1"
    assert by_rank[0, 1] == pytest.approx(2 * 63 / 64 * 64)
    assert by_rank.sum() == pytest.approx(64 * by_rank[0, 1])


def test_the_bound_of_adaptive_routing_counts_links_that_none_can_go_round(fabric: Fabric) -> None:
    program = lower(verify(ring(fabric.num_gpus)), packed(fabric, fabric.num_gpus))
    bound = {
        name: estimate(program, FlowNetwork(fabric, NetworkOptions(routing=name)), 1 << 26, level="analytic")
        for name in ("adaptive", "spray")
    }
    flows = estimate(program, FlowNetwork(fabric, NetworkOptions(routing="adaptive")), 1 << 26)
    assert 0.9 * bound["spray"].time_s < bound["adaptive"].time_s <= flows.time_s * (1 + 1e-9)


def test_a_rank_alone_has_no_limiting_link(fabric: Fabric, network: FlowNetwork) -> None:
    assert estimate(lower(verify(ring(1)), packed(fabric, 1)), network, 1 << 20).limiting_link_name == ""


def test_a_crossover_is_bisected_to_two_parts_in_a_hundred() -> None:
    """Two straight lines that meet at 40,000 bytes, in so many prices as halving the gap takes."""
    priced: list[int] = []

    def one(name: str, size: int, level: str) -> SimpleNamespace:
        priced.append(size)
        return SimpleNamespace(time_s=1.0 + size / 1e5 if name == "early" else 1.2 + size / 2e5)

    contest: Any = SimpleNamespace(one=one)
    (change,) = crossovers([(1024, "early"), (1 << 20, "late")], contest)
    assert (change.before, change.after) == ("early", "late")
    assert 40_000 <= change.size_bytes <= 40_000 * 1.02
    assert len(priced) == 2 * 11  # (2^20 - 2^10) / 2^11 = 511 bytes are less than a fiftieth of 40,000
    (small,) = crossovers([(1, "early"), (2, "late")], contest)
    assert small.size_bytes == 2


def test_a_dear_codec_makes_a_ring_alone_slower_by_its_coding() -> None:
    """Max-plus: a ring of 8 sends an eighth in each of 14 rounds, encoded and decoded at 5 GB/s."""
    fabric = build(ClusterSpec.model_validate({"hosts": 8, "host": "1 x H100", "network": "leaf-spine NDR"}))
    network, size = FlowNetwork(fabric, NetworkOptions("static", transport="ideal")), 1 << 30
    plain, dear = (
        float(max_plus_end_s(wire(lower(verify(ring(8)), packed(fabric), codec), network), size).max())
        for codec in (Codec("half", 0.5), Codec("dear", 0.5, encode_Bps=5e9, decode_Bps=5e9))
    )
    assert dear - plain == pytest.approx(14 * size / 8 * Codec("dear", 0.5, 5e9, 5e9).host_s_per_byte(), rel=1e-6)
    assert dear - plain > 14 * size / 8 / 5e9
