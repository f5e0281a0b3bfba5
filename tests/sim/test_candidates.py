"""`auto` is the fastest: levels from the fabric, chunks by size, and no family that beats it."""

from __future__ import annotations

import numpy as np
import pytest

from syncline import simulate
from syncline.fabric import Fabric, load
from syncline.fabric.build import build as build_fabric
from syncline.fabric.spec import ClusterSpec
from syncline.program import lower, packed, place, spread
from syncline.program.levels import nest
from syncline.schedule import Kind, build, hierarchical, verify
from syncline.schedule.schedule import pipelined
from syncline.sim.candidates import NAMES, proved
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.flow.wired import wire
from syncline.sim.pipeline import wired_in_pieces
from syncline.sim.sweep import Contest, contest_of, families


def contest(fabric: Fabric, kind: Kind, ranks: int | None = None, placement: str = "auto") -> Contest:
    placed = place(placement, fabric, ranks)
    schedules = proved(fabric, kind, placed.num_ranks, chunks=1, nested=nest(placed))
    return Contest.of(schedules, placed, FlowNetwork(fabric), chunks=0)


def cluster(**fields: object) -> Fabric:
    return build_fabric(ClusterSpec.model_validate(fields))


@pytest.fixture(scope="module")
def rail() -> Fabric:
    return load("h100-64-rail")


@pytest.fixture(scope="module")
def two_sites() -> Fabric:
    return load("two-sites-wan")


def test_levels_are_those_of_the_fabric(rail: Fabric, two_sites: Fabric) -> None:
    assert str(nest(packed(rail))) == "2 leafs x 32 hosts x 8 ranks"
    assert str(nest(packed(two_sites))) == "2 sites x 32 hosts x 8 ranks"
    assert nest(packed(rail, 24)).shape == (3, 8)
    assert nest(packed(rail, 12)).shape == (12,)  # one host of 8 and one of 4: no level that all share
    assert str(nest(packed(load("gb200-nvl72-pod")))) == "8 domains x 72 ranks"
    astride = cluster(hosts=36, host="gb200-nvl72", network="leaf-spine NDR")  # domains of 18 hosts, leaves of others
    assert str(nest(packed(astride))) == "2 domains x 72 ranks"


def test_ranks_that_are_spread_still_work_level_by_level(rail: Fabric) -> None:
    dealt = nest(spread(rail, 64 * 2))
    assert dealt.shape == (2, 32, 2) and not dealt.in_order
    with_levels = contest(rail, Kind.ALL_REDUCE, 128, "spread").best(1 << 24)
    flat = estimate(lower(verify(build("ring", 128)), spread(rail, 128)), FlowNetwork(rail), 1 << 24)
    assert with_levels.algorithm.startswith("hierarchical")
    assert with_levels.time_s < flat.time_s


def test_levels_work_at_once_when_cut_in_chunks(rail: Fabric) -> None:
    """All-reduce of 1 GiB over 128 GPUs: the rounds one after the other, and the busiest link's share of them."""
    network, placed = FlowNetwork(rail), packed(rail, 128)
    whole = wire(lower(verify(hierarchical((16, 8), families=("direct", "direct"))), placed), network)
    one, many = (estimate(w, network, 1 << 30).time_s for w in (whole, wired_in_pieces(whole, 32)))
    nic_s = 2 * 15 / 16 / 8 * (1 << 30) / 50e9
    assert many < 0.7 * one
    assert nic_s < many < 1.25 * nic_s


def test_cut_on_known_paths_is_what_routing_again_gives() -> None:
    fabric = cluster(hosts=4, host="4 x H100", network="rail-optimized NDR")
    network, placed = FlowNetwork(fabric), packed(fabric)
    unit = verify(hierarchical((4, 4), families=("halving-doubling", "direct")))
    quick = estimate(wired_in_pieces(wire(lower(unit, placed), network), 6), network, 1 << 24)
    again = estimate(lower(verify(pipelined(unit.schedule, 6)), placed), network, 1 << 24)
    assert quick.time_s == pytest.approx(again.time_s, rel=1e-9)
    assert np.allclose(quick.link_bytes, again.link_bytes)


def torus(**more: object) -> Fabric:
    host = {"model": "dgx-h100", "gpus": 4, "nics": 4}
    return cluster(
        hosts=4, host=host, network={"topology": "torus", "link": "HDR", "shape": [2, 2], "of": "hosts"}, **more
    )


@pytest.mark.parametrize("name", ["allreduce", "broadcast"])
def test_a_whole_torus_is_no_slower_than_one_with_a_broken_cable(name: str) -> None:
    whole, broken = torus(), torus(faults=[{"link": "host-02/nic-3 <-> router-02", "which": 0}])
    here, there = (contest_of("auto", NAMES[name], packed(fabric), FlowNetwork(fabric)) for fabric in (whole, broken))
    for size in (1 << 10, 1 << 20, 1 << 28):
        assert here.best(size).time_s <= there.best(size).time_s * 1.001


def test_equivalent_cables_of_a_torus_cost_the_same() -> None:
    host = {"model": "dgx-h100", "gpus": 1, "nics": 1}
    plain = {"hosts": 9, "host": host, "network": {"topology": "torus", "link": "NDR", "shape": [3, 3], "of": "hosts"}}
    whole = cluster(**plain)
    between = np.isin(whole.links.src, whole.switches) & np.isin(whole.links.dst, whole.switches)
    cables = [whole.link_name(int(link)).replace("->", "<->") for link in np.flatnonzero(between)[::2]]
    asked = [("alltoall", "direct", "spray"), ("allreduce", "auto", "spray"), ("allreduce", "nccl", "auto")]
    for name, algorithm, routing in asked:
        times = [simulate({**plain, "faults": [{"link": cable, "which": 0}]}, name, "64MiB", algorithm=algorithm,
                          routing=routing).time_s for cable in cables[::9]]  # fmt: skip
        assert times == pytest.approx([times[0]] * len(times), rel=1e-4)


def test_a_rank_alone_takes_no_time() -> None:
    fabric = cluster(hosts=2, host="dgx-h100", network="rail-optimized NDR")
    assert contest_of("auto", Kind.ALL_REDUCE, packed(fabric, 1), FlowNetwork(fabric)).best(1 << 20).time_s == 0


def test_a_gpu_whose_nic_failed_takes_one_of_its_socket() -> None:
    faults = [{"link": "leaf-00 <-> host-01/nic-4", "which": 0}]
    fabric = cluster(hosts=2, host="dgx-h100", network={"topology": "fat-tree", "link": "HDR"}, faults=faults)
    nic = FlowNetwork(fabric).routes.inside.nic_of_gpu[fabric.device("host-01/gpu-4")]
    assert fabric.device_name(int(nic)) == "host-01/nic-5"


def test_rails_that_only_hosts_join_are_crossed_inside_hosts() -> None:
    """What `design` may choose, `simulate` prices: as on a rail-optimized fabric with PXN, whose spines stay empty."""
    times = [simulate({"hosts": 2, "host": "dgx-h100", "network": f"{name} NDR"}, "alltoall", "16MiB",
                      algorithm="direct", cross_rail=way).time_s
             for name, way in (("rail-only", "fabric"), ("rail-optimized", "nvlink"))]  # fmt: skip
    assert times[0] == pytest.approx(times[1])


FAMILIES_TOO = [("h100-64-rail", 32, "allreduce"), ("h100-64-rail", 24, "broadcast"), ("h100-64-rail", 12, "allreduce"),
                ("old-10gbe", None, "allgather"), ("gb200-nvl72-pod", 144, "reduce")]  # fmt: skip


@pytest.mark.parametrize(("preset", "ranks", "collective"), FAMILIES_TOO)
def test_no_family_is_faster_than_the_best_known(preset: str, ranks: int | None, collective: str) -> None:
    """Families are executed at flow level, the best is priced by its pipeline; a small broadcast has one round more."""
    fabric, kind = load(preset), NAMES[collective]
    placed, network = place("auto", fabric, ranks), FlowNetwork(fabric)
    best = contest_of("auto", kind, placed, network)
    for size in (1 << 10, 1 << 28):
        within = 1.25 if size == 1 << 10 else 1.05
        assert best.best(size).time_s <= within * families(kind, placed, network).best(size).time_s


def test_the_best_known_is_executed_when_its_program_is_wanted(rail: Fabric) -> None:
    found = contest_of("auto", Kind.ALL_REDUCE, packed(rail, 32), FlowNetwork(rail))
    best = found.best(1 << 24)
    assert (best.method, best.exact) == ("pipeline", False) and best.limiting_link_name
    executed = found.executed(best)
    assert executed.time_s == pytest.approx(best.time_s, rel=0.25)
    assert found.utilisation(best).max() > 0.5
    assert found.at(best).pieces == best.chunks
