"""Best known schedules: shares by hand, what they take when executed, and rules that hold on any cluster."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from syncline.fabric import Fabric
from syncline.fabric.build import build as build_fabric
from syncline.fabric.spec import ClusterSpec
from syncline.program import lower, place, spread
from syncline.schedule import Kind, verify
from syncline.schedule.schedule import pipelined
from syncline.sim.analytic import link_need_s
from syncline.sim.best.best import BestKnown, BestSearch
from syncline.sim.best.cells import cell_tree
from syncline.sim.best.pipeline import PipelineCosts
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.flow.wired import wire

HOST = {"model": "dgx-h100", "gpus": 4, "nics": 4}
SHARED = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.BROADCAST, Kind.REDUCE)


def cluster(**fields: object) -> Fabric:
    return build_fabric(ClusterSpec.model_validate(fields))


def rail(hosts: int = 4, **more: object) -> Fabric:
    return cluster(hosts=hosts, host=HOST, network="rail-optimized NDR", **more)


def sites(*hosts: int, latency: str = "20us") -> Fabric:
    each = [{"name": name, "hosts": num, "host": HOST, "network": "rail-optimized NDR"}
            for name, num in zip("abc", hosts, strict=False)]  # fmt: skip
    return cluster(sites=each, wan={"rate": "400Gbps", "latency": latency})


def slow_port(rate: str) -> list[dict[str, object]]:
    return [{"link": "leaf-03 <-> host-01/nic-3", "which": 0, "rate": rate}]


def best(fabric: Fabric, kind: Kind, size: int = 1 << 28) -> BestKnown:
    return BestSearch(kind, place("auto", fabric, None)).at(size)


def busiest_s(found: BestKnown) -> float:
    """What the busiest link of the schedule needs, on the fabric's own routes."""
    network = FlowNetwork(found.placement.fabric)
    assert found.make is not None
    wired = wire(lower(verify(found.make()), found.placement), network)
    return float(link_need_s(wired.link_bytes(found.size_bytes), network.capacity_Bps).max())


def test_sixteen_hosts_come_near_the_bound() -> None:
    """By hand: 2 x 127/128 of 1 GiB over 8 ports of 50 GB/s a host, of which 95 % carry data, is 5.30 ms."""
    fabric = cluster(hosts=16, host="dgx-h100", network="rail-optimized NDR")
    for kind in SHARED:
        found = best(fabric, kind, 1 << 30)
        assert found.bound_s < found.time_s < 1.1 * found.bound_s, kind
    assert best(fabric, Kind.ALL_REDUCE, 1 << 30).time_s == pytest.approx(2 * 15 / 16 / 8 * 2**30 / 47.5e9, rel=0.02)


@pytest.mark.parametrize("kind", SHARED)
def test_sites_of_different_size_reach_what_their_lines_allow(kind: Kind) -> None:
    found = best(sites(3, 2, 1), kind)
    assert found.name == "leaders by shares"
    assert found.bound_s < found.time_s < 1.15 * found.bound_s
    assert busiest_s(found) < 1.01 * found.time_s


def test_a_slow_port_carries_what_it_can() -> None:
    """The rail of a port with a quarter of the rate has the smallest share; equal shares would take four times."""
    sound, slow = best(rail(), Kind.ALL_REDUCE), best(rail(faults=slow_port("100Gbps")), Kind.ALL_REDUCE)
    assert sound.time_s < slow.time_s < 1.25 * sound.time_s
    assert slow.time_s > 0.99 * busiest_s(slow)


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("fault", [[], slow_port("100Gbps")])
def test_executed_it_takes_what_the_formula_says(kind: Kind, fault: list[dict[str, object]]) -> None:
    """At flow level, in 16 chunks: rounds there wait for each other, which costs up to a third."""
    fabric = rail(3, faults=fault)
    found = best(fabric, kind)
    assert found.make is not None
    program = lower(verify(pipelined(found.make(), 16)), found.placement)
    took = estimate(program, FlowNetwork(fabric), found.size_bytes).time_s
    assert 0.97 * found.time_s < took < 1.35 * found.time_s


def test_more_chunks_fill_sooner_until_posting_takes_longer() -> None:
    free = PipelineCosts(((0.0, 1.0, 0.0), (0.0, 1.0, 0.0)), 1.0, 0.0)
    assert free.best()[1] == 256 and free.time_s(1) == 2.0
    posted = PipelineCosts(((0.0, 1.0, 0.0), (0.0, 1.0, 0.0)), 1.0, 0.1)
    assert posted.best()[1] == 10 and posted.time_s(256) > 25


def test_hosts_that_nothing_tells_apart_are_one_kind() -> None:
    place_of = [place("auto", fabric, None) for fabric in (rail(), rail(faults=slow_port("100Gbps")), sites(3, 2, 1))]
    trees = [cell_tree(placed, FlowNetwork(placed.fabric)) for placed in place_of]
    assert [len(tree.insides) for tree in trees] == [1, 2, 3]
    assert [tree.shape for tree in trees] == [(4, 4), (4, 4), None]


def test_ranks_that_are_spread_keep_their_blocks() -> None:
    fabric = rail(2)
    found = BestSearch(Kind.ALL_GATHER, spread(fabric)).at(1 << 28)
    verify(found.schedule())
    assert found.time_s < 1.15 * found.bound_s


def test_a_rank_alone_takes_no_time() -> None:
    assert BestSearch(Kind.ALL_REDUCE, place("auto", rail(), 1)).at(1 << 20).time_s == 0


def draws() -> ModuleType:
    path = Path(__file__).parents[3] / "research" / "collectives" / "best_known.py"
    spec = importlib.util.spec_from_file_location("best_known", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(9))
def test_no_random_cluster_breaks_a_rule(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not below the bound, not behind NCCL, not slower with a better port, whatever the order of sites."""
    module = draws()
    monkeypatch.setattr(module, "SIZES", (1 << 30,))
    assert module.broken(seed, (module.KINDS[seed % len(module.KINDS)],)) == []
