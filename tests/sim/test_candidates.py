"""`auto` is the fastest: levels from the fabric, chunks by size, and no family that beats it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline import simulate
from syncline.errors import ScheduleError
from syncline.fabric import Fabric, Tier, load
from syncline.fabric.build import build as build_fabric
from syncline.fabric.spec import ClusterSpec
from syncline.program import lower, packed, place, spread
from syncline.program.levels import nest
from syncline.schedule import FAMILIES, Kind, build, hierarchical, verify
from syncline.schedule.schedule import pipelined
from syncline.sim.analytic import link_need_s
from syncline.sim.candidates import NAMES, candidates, proved
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.flow import without
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.flow.wired import wire
from syncline.sim.pipeline import wired_in_pieces
from syncline.sim.sweep import Contest, contest_of
from syncline.sim.synthesis import shared, synthesized


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


SAMPLES = [
    ("h100-64-rail", 32, "allreduce"),
    ("h100-64-rail", 32, "broadcast"),
    ("h100-64-rail", 24, "reduce"),
    ("h100-64-rail", 32, "allgather"),
    ("h100-64-rail", 32, "reducescatter"),
    ("h100-64-rail", 16, "alltoall"),
    ("h100-64-rail", 12, "allreduce"),
    ("old-10gbe", None, "allreduce"),
    ("old-10gbe", None, "broadcast"),
    ("fat-tree-1024", 32, "allreduce"),
    ("gb200-nvl72-pod", 144, "broadcast"),
    ("alps", 32, "reduce"),
]


@pytest.mark.parametrize(("preset", "ranks", "collective"), SAMPLES)
def test_no_family_is_faster_than_auto(preset: str, ranks: int | None, collective: str) -> None:
    """Each family as it is made when nobody asks for anything, and each candidate on its own."""
    fabric, kind = load(preset), NAMES[collective]
    found = contest(fabric, kind, ranks)
    best = {size: found.best(size) for size in (1 << 10, 1 << 18, 1 << 28)}
    placed = place("auto", fabric, ranks)
    for name, family in FAMILIES.items():
        if kind not in family.kinds or name in ("in-network", "parameter-server"):
            continue
        try:
            schedule = build(name, placed.num_ranks, kind=kind)
        except ScheduleError:
            continue
        program = lower(verify(schedule), placed)
        for size, won in best.items():
            alone = estimate(program, found.network, size)
            assert won.time_s <= alone.time_s * (1 + 1e-9), (name, size, alone.time_s, won.algorithm, won.time_s)
    for size, won in best.items():
        for one in found.all(size):
            assert won.time_s <= one.time_s * (1 + 1e-9), (one.algorithm, one.chunks, size, one.time_s, won.time_s)


def test_a_broadcast_uses_every_nic(rail: Fabric) -> None:
    """1 GiB: NCCL needs about 4.8 ms; an eighth of the buffer over each 400G NIC needs 2.7, and it is posted."""
    best = contest(rail, Kind.BROADCAST, 256).best(1 << 30)
    assert best.algorithm.startswith("all-rails")
    assert 2.6e-3 < best.time_s < 5.2e-3
    assert best.chunks > 8


def test_levels_work_at_once_when_cut_in_chunks(rail: Fabric) -> None:
    """All-reduce of 1 GiB over 128 GPUs: the rounds one after the other, and the busiest link's share of them."""
    network, placed = FlowNetwork(rail), packed(rail, 128)
    whole = wire(lower(verify(hierarchical((16, 8), families=("direct", "direct"))), placed), network)
    one, many = (estimate(w, network, 1 << 30).time_s for w in (whole, wired_in_pieces(whole, 32)))
    nic_s = 2 * 15 / 16 / 8 * (1 << 30) / 50e9
    assert many < 0.7 * one
    assert nic_s < many < 1.25 * nic_s


def test_two_sites_cross_the_wan_once(two_sites: Fabric) -> None:
    """No slower than the levels by hand."""
    found = contest(two_sites, Kind.ALL_REDUCE)
    size = 1 << 26
    by_hand = estimate(lower(verify(hierarchical((2, 32, 8))), packed(two_sites)), found.network, size)
    assert found.best(size).time_s <= by_hand.time_s


def _sites(hosts: tuple[int, ...], wan: dict[str, object]) -> Fabric:
    site = {"host": "dgx-h100", "network": "rail-optimized NDR"}
    return cluster(
        sites=[{"name": name, "hosts": size, **site} for name, size in zip("abc", hosts, strict=True)], wan=wan
    )


def test_sites_of_different_size_exchange_as_if_they_were_alike() -> None:
    """By hand: 2/3 of 128 MiB between each pair at 95 % of 12.5 GB/s is 7.5 ms, twice 5 ms there, 1 ms inside."""
    wan: dict[str, object] = {"rate": "100Gbps", "latency": "5ms"}
    found = contest(_sites((2, 3, 4), wan), Kind.ALL_REDUCE).best(1 << 27)
    alike = contest(_sites((3, 3, 3), wan), Kind.ALL_REDUCE).best(1 << 27)
    assert found.algorithm == "hierarchical-uneven"
    assert found.time_s == pytest.approx(0.0186, rel=0.01) and found.time_s == pytest.approx(alike.time_s, rel=0.02)
    levels = nest(place("auto", _sites((2, 3, 4), wan), None))
    assert (levels.uneven, nest(place("auto", _sites((3, 3, 3), wan), None)).uneven) == ((4, 3, 2), ())


def test_sites_of_different_size_reduce_at_the_same_time() -> None:
    """Sites once reduced in turns: 16.8 ms. Three sites of four hosts take 14.4 (NCCL's model 14.3)."""
    wan: dict[str, object] = {"rate": "800Gbps", "latency": "1ms"}
    found = contest(_sites((2, 3, 4), wan), Kind.ALL_REDUCE)
    assert max(lane.num_rounds for lane in found.wired["hierarchical-uneven"].lanes) == 6
    assert found.best(1 << 30).time_s < 0.0148


def test_rounds_between_sites_alone_pay_their_latency() -> None:
    """Six rounds, two of them of 1 ms: with three chunks 14.4 ms, with one 18.0, which the guess once took."""
    found = contest(_sites((4, 4, 4), {"rate": "800Gbps", "latency": "1ms"}), Kind.ALL_REDUCE)
    best = found.best(1 << 30)
    assert best.chunks > 1 and best.time_s < 0.85 * found.one(best.algorithm, 1 << 30, most=1).time_s


def test_small_messages_take_few_rounds_on_a_star() -> None:
    """Eleven messages are posted one after the other by `direct` and `one-shot`; four rounds of one are sooner done."""
    star = cluster(hosts=12, host="1 x H100", network="fat-tree NDR")
    found = contest(star, Kind.ALL_REDUCE)
    best = found.best(1 << 10)
    direct = estimate(lower(verify(build("direct", 12, kind=Kind.ALL_REDUCE)), packed(star)), found.network, 1 << 10)
    assert best.algorithm in ("one-shot", "recursive-doubling")
    assert best.time_s <= min(direct.time_s, *(found.one(name, 1 << 10).time_s for name in found.wired))


def test_cut_on_known_paths_is_what_routing_again_gives() -> None:
    fabric = cluster(hosts=4, host="4 x H100", network="rail-optimized NDR")
    network, placed = FlowNetwork(fabric), packed(fabric)
    unit = verify(hierarchical((4, 4), families=("halving-doubling", "direct")))
    quick = estimate(wired_in_pieces(wire(lower(unit, placed), network), 6), network, 1 << 24)
    again = estimate(lower(verify(pipelined(unit.schedule, 6)), placed), network, 1 << 24)
    assert quick.time_s == pytest.approx(again.time_s, rel=1e-9)
    assert np.allclose(quick.link_bytes, again.link_bytes)


def test_more_chunks_than_suit_cost_more_and_the_choice_is_shown() -> None:
    fabric = cluster(hosts=4, host="8 x H100", network="rail-optimized NDR")
    found = contest(fabric, Kind.ALL_REDUCE)
    chosen = found.one("hierarchical-direct", 1 << 28)
    assert chosen.chunks > 1
    for chunks in (1, 8 * chosen.chunks):
        fixed = Contest(found.network, found.wired, chunks).one("hierarchical-direct", 1 << 28)
        assert fixed.chunks == chunks
        assert fixed.time_s > chosen.time_s


def without_nics(fabric: Fabric, *places: tuple[int, int]) -> Fabric:
    """Return the fabric with the cables of some NICs (host, number) down."""
    down = set()
    for host, number in places:
        nic = fabric.device(f"{fabric.host_names[host]}/nic-{number}")
        down |= {int(link) for link in fabric.out_links(nic) if fabric.links.tier[link] == Tier.ACCESS}
    return without(fabric, down | {link ^ 1 for link in down})


@pytest.mark.parametrize("failed", [((1, 5),), ((1, 5), (2, 6))])
def test_a_failed_nic_costs_its_share_and_not_half(failed: tuple[tuple[int, int], ...]) -> None:
    """7 of 8 NICs are left in the weakest host: 8/7 of the healthy time, where the regular levels need twice it."""
    healthy = cluster(hosts=4, host="8 x H100", network="rail-optimized NDR")
    broken = without_nics(healthy, *failed)
    size, placed = 1 << 30, packed(broken)
    network = FlowNetwork(broken)
    schedule = synthesized(placed, network)
    assert schedule is not None
    whole = wire(lower(verify(schedule), placed), network)
    made = estimate(wired_in_pieces(whole, 32), network, size).time_s
    regular = contest(healthy, Kind.ALL_REDUCE).best(size).time_s
    assert regular < made < 1.05 * 8 / 7 * regular
    assert made < 0.7 * contest(broken, Kind.ALL_REDUCE).best(size).time_s


def test_a_slow_nic_gets_less() -> None:
    fabric = cluster(hosts=4, host="8 x H100", network="rail-optimized NDR")
    nic = fabric.device(f"{fabric.host_names[2]}/nic-3")
    rate = fabric.links.rate_Bps.copy()
    for link in fabric.out_links(nic):
        if fabric.links.tier[link] == Tier.ACCESS:
            rate[[link, link ^ 1]] /= 4
    slow = replace(fabric, links=replace(fabric.links, rate_Bps=rate))
    schedule = synthesized(packed(slow), FlowNetwork(slow))
    assert schedule is not None
    shares = sorted(float(strand.share) for strand in schedule.strands)
    assert shares[0] == pytest.approx(0.25 / 7.25, rel=1e-3)
    assert shares[1:] == pytest.approx([1 / 7.25] * 7, rel=1e-3)
    verify(schedule, method="flat")


def test_hosts_of_different_size_are_a_case_for_synthesis(rail: Fabric) -> None:
    """12 ranks: a host of 8 and one of 4, which can use 4 NICs."""
    schedule = synthesized(packed(rail, 12), FlowNetwork(rail))
    assert schedule is not None and len(schedule.strands) == 4
    verify(schedule, method="flat")
    assert synthesized(packed(rail, 16), FlowNetwork(rail)) is None


def torus(**more: object) -> Fabric:
    host = {"model": "dgx-h100", "gpus": 4, "nics": 4}
    return cluster(
        hosts=4, host=host, network={"topology": "torus", "link": "HDR", "shape": [2, 2], "of": "hosts"}, **more
    )


@pytest.mark.parametrize("name", ["allreduce", "broadcast"])
def test_a_whole_torus_is_no_slower_than_one_with_a_broken_cable(name: str) -> None:
    whole, broken = torus(), torus(faults=[{"link": "host-02/nic-3 <-> router-02", "which": 0}])
    here, there = (contest_of("auto", NAMES[name], packed(fabric), FlowNetwork(fabric)) for fabric in (whole, broken))
    assert set(there.wired) - {"synthesized"} == set(here.wired)
    for size in (1 << 10, 1 << 20, 1 << 28):
        assert here.best(size).time_s <= there.best(size).time_s * 1.001


def test_a_large_torus_has_what_a_fault_would_have_made() -> None:
    """Beyond the ranks for which all families are tried, too: leaders of hosts exchange directly."""
    whole = cluster(hosts=36, host={"model": "dgx-h100", "gpus": 4, "nics": 4},
                    network={"topology": "torus", "link": "HDR", "shape": [6, 6], "of": "hosts"})  # fmt: skip
    assert {"hierarchical-direct", "torus"} <= set(candidates(whole, Kind.ALL_REDUCE, 144))


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


def test_rails_that_stay_at_one_switch_carry_more() -> None:
    """Two of eight rails stay at a switch, six share one link: shares of 1/3 and 1/18 by hand."""
    network = {"topology": "dragonfly", "link": "HDR", "routing": "minimal"}
    fabric = cluster(hosts=2, host="dgx-h100", network=network)
    schedule = shared(packed(fabric), FlowNetwork(fabric))["shared-rails"]
    shares = sorted(float(strand.share) for strand in schedule.strands)
    assert shares[-2:] == pytest.approx([1 / 3, 1 / 3], rel=1e-3) and sum(shares[:-2]) == pytest.approx(1 / 3, rel=1e-3)
    verify(schedule, method="flat")
    least_s = (1 << 28) / 3 / 25e9
    best = contest_of("auto", Kind.ALL_REDUCE, packed(fabric), FlowNetwork(fabric)).best(1 << 28)
    assert best.algorithm.startswith("shared-rails") and least_s < best.time_s < 1.15 * least_s


def test_a_faster_nic_does_not_slow_shares_that_the_busiest_link_leaves_open() -> None:
    """The link between switches needs 16.95 ms with many shares; in the corner the NIC that is faster needs it too."""
    host = {"model": "dgx-h100", "gpus": 4, "nics": 4}
    link, gone = "group-00/switch-00 <-> host-01/nic-2", {"link": "host-03/nic-2 <-> group-00/switch-01", "which": 0}
    best = []
    for rate in ("50Gbps", "100Gbps"):
        fabric = cluster(hosts=8, host=host, network={"topology": "dragonfly", "link": "HDR"},
                         faults=[{"link": link, "which": 0, "rate": rate}, gone])  # fmt: skip
        network = FlowNetwork(fabric, NetworkOptions(routing="spray"))
        made = {name: verify(one, method="flat") for name, one in shared(packed(fabric), network).items()}
        contest = Contest.of(made, packed(fabric), network, chunks=16)
        for found in contest.all(1 << 28):
            need_s = link_need_s(found.link_bytes, network.capacity_Bps)
            assert need_s.max() == pytest.approx(16.954e-3, rel=1e-3)
        best.append(contest.best(1 << 28).time_s)
    assert 16.95e-3 < best[1] < 1.01 * best[0] and len(made) == 3


@pytest.mark.parametrize("kind", [Kind.ALL_GATHER, Kind.REDUCE_SCATTER])
def test_hosts_of_one_gpu_have_two_levels_that_are_even(kind: Kind) -> None:
    """Seven messages are posted in 7 x 2.2 us, two times two or three in less."""
    host = {"gpu": "H100", "gpus": 1, "nics": 1, "nic": "ConnectX-7", "link": "NDR"}
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 12}
    fabric = cluster(hosts=12, host=host, network=network)
    found = contest_of("auto", kind, packed(fabric, 8), FlowNetwork(fabric))
    best = found.best(1 << 10)
    assert best.algorithm == "dragonfly" and best.time_s < 0.8 * found.one("direct", 1 << 10).time_s


def test_a_rank_alone_takes_no_time() -> None:
    fabric = cluster(hosts=2, host="dgx-h100", network="rail-optimized NDR")
    assert contest_of("auto", Kind.ALL_REDUCE, packed(fabric, 1), FlowNetwork(fabric)).best(1 << 20).time_s == 0


def test_where_equal_shares_do_as_well_shares_that_fall_keep_ranks_out_of_step() -> None:
    """A slow port did that by itself, so that the sound torus was 2.4 % slower."""
    fields = {"hosts": 8, "host": {"model": "dgx-h100", "gpus": 4, "nics": 4},
              "network": {"topology": "torus", "link": "HDR", "shape": [2, 4], "of": "hosts"}}  # fmt: skip
    gone = {"link": "router-05 <-> host-05/nic-3", "which": 0}
    best = []
    for rate in ("50Gbps", "100Gbps"):
        fabric = cluster(**fields, faults=[{"link": "host-00/nic-3 <-> router-00", "which": 0, "rate": rate}, gone])
        network = FlowNetwork(fabric, NetworkOptions(routing="spray"))
        best.append(contest_of("auto", Kind.ALL_REDUCE, packed(fabric), network).best(1 << 20))
    assert best[1].algorithm == "falling-rails" and best[1].time_s < 1.01 * best[0].time_s
    made = shared(packed(fabric), network)
    verify(made["falling-rails"], method="flat")
    shares = [float(strand.share) for strand in made["falling-rails"].strands]
    assert list(made) == ["falling-rails"] and shares == pytest.approx([8 / 26, 7 / 26, 6 / 26, 5 / 26], rel=1e-3)


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
