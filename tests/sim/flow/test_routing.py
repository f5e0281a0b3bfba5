"""Routing policies, transports, half duplex and host copies."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import SimulationError
from syncline.fabric import ClusterSpec, DeviceKind, Fabric, Tier, build
from syncline.program import given, lower, packed
from syncline.schedule import Schedule, ring, verify, weighted
from syncline.sim.flow.estimate import estimate, over_seeds
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions, shortest
from syncline.sim.flow.wired import wire
from syncline.sim.transport import transports


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    """64 hosts of 8 GPUs."""
    return build(ClusterSpec.model_validate({"hosts": 64, "host": "8 x H100", "network": "rail-optimized NDR"}))


@pytest.fixture(scope="module")
def middle() -> Fabric:
    """16 hosts of 8 GPUs whose single ring crosses the spine at every host boundary."""
    return build(ClusterSpec.model_validate({"hosts": 16, "host": "8 x H100", "network": "rail-optimized NDR"}))


@pytest.fixture(scope="module")
def small() -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": 4, "host": "8 x H100", "network": "rail-optimized NDR"}))


def everyone(fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
    gpus = fabric.gpus.astype(np.int64)
    return gpus, np.roll(gpus, -8)


def test_ecmp_collisions_are_a_distribution_that_spraying_and_adaptive_remove(middle: Fabric) -> None:
    program, size = lower(verify(ring(128)), packed(middle)), 1 << 28
    ideal = estimate(program, FlowNetwork(middle, NetworkOptions("static")), size).time_s
    spread = over_seeds(program, FlowNetwork(middle, NetworkOptions("ecmp")), size, range(4))
    assert spread.quantile_s(0.5) > 1.5 * ideal  # collisions halve the rate of some hop, or worse
    assert len(np.unique(spread.time_s.round(6))) > 1
    assert (
        spread.to_json()["worst_s"]
        >= spread.to_json()["p90_s"]
        >= spread.to_json()["median_s"]
        >= spread.to_json()["p10_s"]
    )
    for routing in ("spray", "adaptive"):
        assert estimate(program, FlowNetwork(middle, NetworkOptions(routing)), size).time_s == pytest.approx(
            ideal, rel=0.01
        )  # type: ignore[arg-type]


def test_one_seed_is_one_answer(small: Fabric) -> None:
    src, dst = everyone(small)
    channel = np.zeros(len(src), np.int64)
    first, again = (FlowNetwork(small, NetworkOptions("ecmp", 5)).wire(src, dst, channel).paths.link for _ in range(2))
    other = FlowNetwork(small, NetworkOptions("ecmp", 6)).wire(src, dst, channel).paths.link
    assert (first == again).all()
    assert len(first) == len(other) or (first != other[: len(first)]).any()


def test_spraying_puts_equal_shares_on_all_spines(small: Fabric) -> None:
    gpus = small.gpus.astype(np.int64)
    wires = FlowNetwork(small, NetworkOptions("spray")).wire(gpus[:1], gpus[10:11], np.zeros(1, np.int64))
    tier = small.links.tier[wires.paths.link]
    up = wires.paths.shares()[(tier == Tier.LEAF_SPINE) & (small.devices.level[small.links.src[wires.paths.link]] == 1)]
    assert up.sum() == pytest.approx(1)
    assert np.ptp(up) == pytest.approx(0)
    assert wires.paths.shares()[tier == Tier.ACCESS].tolist() == pytest.approx([1, 1])


def test_static_routes_send_different_destinations_of_a_leaf_different_ways(fabric: Fabric) -> None:
    gpus = fabric.gpus.astype(np.int64).reshape(64, 8)
    wires = FlowNetwork(fabric, NetworkOptions("static")).wire(gpus[:31, 7], gpus[1:32, 0], np.zeros(31, np.int64))
    uplinks = wires.paths.link[fabric.links.tier[wires.paths.link] == Tier.LEAF_SPINE]
    assert len(np.unique(uplinks)) == len(uplinks)


def test_without_gpudirect_data_climbs_to_host_memory_and_back(small: Fabric) -> None:
    src, dst = everyone(small)
    direct, copied = (
        FlowNetwork(small, NetworkOptions(gpudirect=on)).wire(src[:1], dst[:1], np.zeros(1, np.int64)).paths.row(0)
        for on in (True, False)
    )
    cpu = [
        link
        for link in copied
        if DeviceKind.CPU in (small.devices.kind[small.links.src[link]], small.devices.kind[small.links.dst[link]])
    ]
    assert set(direct) <= set(copied)
    assert len(cpu) == 4  # in and out of memory at both ends


def test_tcp_costs_the_host_and_names_it(small: Fabric) -> None:
    program = lower(verify(ring(32)), packed(small))
    rdma, tcp = (
        estimate(program, FlowNetwork(small, NetworkOptions("static", transport=t)), 1 << 28) for t in ("rdma", "tcp")
    )
    assert tcp.time_s > 5 * rdma.time_s
    assert tcp.limiting_link_name.endswith(("host send", "host receive"))
    assert tcp.wire_Bps <= 4.5e9 * (1 + 1e-9)


def test_half_duplex_links_carry_both_ways_in_turn(small: Fabric) -> None:
    program = lower(verify(ring(32)), packed(small))
    full, half = (
        estimate(
            program, FlowNetwork(small, NetworkOptions("static", transport="ideal", half_duplex=tiers)), 1 << 28
        ).time_s
        for tiers in (frozenset(), frozenset({Tier.SCALE_UP}))
    )
    assert half >= full
    nic = frozenset({Tier.ACCESS})
    both_ways = lower(verify(ring(32, directions=2)), packed(small))
    full, half = (
        estimate(
            both_ways, FlowNetwork(small, NetworkOptions("static", transport="ideal", half_duplex=tiers)), 1 << 28
        ).time_s
        for tiers in (frozenset(), nic)
    )
    assert half == pytest.approx(2 * full, rel=0.1)


def test_transports_carry_their_source() -> None:
    assert set(transports()) == {"ideal", "rdma", "efa", "tcp"}
    assert all(entry.source and 0 < entry.efficiency <= 1 for entry in transports().values())


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SimulationError, match='no routing is called "magic"'):
        NetworkOptions("magic")  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match='no transport is called "pigeon"'):
        NetworkOptions(transport="pigeon")


def test_strands_bound_to_rails_use_their_nics() -> None:
    spec = {"hosts": 4, "host": {"gpu": "H100", "gpus": 2, "nics": 2}, "network": "rail-optimized NDR"}
    where = build(ClusterSpec.model_validate(spec))
    first_gpus = given(where, [where.gpu(host, 0) for host in range(4)])
    striped = weighted(lambda: ring(4), (50e9, 50e9))
    assert [strand.rail for strand in striped.strands] == [0, 1]
    one, both = (
        estimate(lower(verify(s), first_gpus), FlowNetwork(where, NetworkOptions("static", transport="ideal")), 1 << 28)
        for s in (ring(4), striped)
    )
    assert both.time_s == pytest.approx(one.time_s / 2, rel=0.01)
    too_many = weighted(lambda: ring(4), (50e9, 50e9, 50e9))
    with pytest.raises(SimulationError, match="host-00/gpu-0 has no NIC on rail 2"):
        estimate(lower(verify(too_many), first_gpus), FlowNetwork(where), 1 << 20)


def test_a_shortest_path_joins_any_two_devices(small: Fabric) -> None:
    a, b = int(small.gpus[0]), int(small.switches[-1])
    path = shortest(small, a, b)
    assert small.links.src[path[0]] == a and small.links.dst[path[-1]] == b
    assert (small.links.dst[path[:-1]] == small.links.src[path[1:]]).all()


def test_rail_zero_is_a_rail_too() -> None:
    """Second GPUs reach their own NIC on rail 1 first; a strand bound to rail 0 takes the NIC of the first GPU."""
    spec = {"hosts": 4, "host": {"gpu": "H100", "gpus": 2, "nics": 2}, "network": "rail-optimized NDR"}
    where = build(ClusterSpec.model_validate(spec))
    second_gpus = given(where, [where.gpu(host, 1) for host in range(4)])
    network = FlowNetwork(where, NetworkOptions("static", transport="ideal"))

    def rails(schedule: Schedule) -> list[set[int]]:
        """Return the rails of the NICs that each connection between hosts crosses."""
        paths, links = wire(lower(verify(schedule), second_gpus), network).wires.paths, where.links
        ends = (links.src[paths.row(i)] for i in range(len(paths)))
        return [{int(where.devices.rail[d]) for d in row if where.devices.kind[d] == DeviceKind.NIC} for row in ends]

    assert set(map(frozenset, rails(ring(4)))) == {frozenset({1})}
    assert set(map(frozenset, rails(weighted(lambda: ring(4), (50e9, 50e9))))) == {frozenset({0}), frozenset({1})}


@pytest.mark.parametrize(("stripes", "nics", "connections"), [("joined", 2, 1), ("apart", 2, 2), ("first", 1, 1)])
def test_what_a_gpu_sends_leaves_by_each_of_its_nics(stripes: str, nics: int, connections: int) -> None:
    host = {"model": "dgx-h100", "gpus": 4, "nics": 8}
    two = build(ClusterSpec.model_validate({"hosts": 4, "host": host, "network": "rail-optimized NDR"}))
    gpus = two.gpus.astype(np.int64)
    wires = FlowNetwork(two, NetworkOptions("ecmp", stripes=stripes)).wire(gpus[:1], gpus[-1:], np.zeros(1, np.int64))  # type: ignore[arg-type]
    crossed = np.unique(wires.paths.link[wires.paths.link < len(two.links)])
    leaving = (two.devices.kind[two.links.src[crossed]] == DeviceKind.NIC) & (two.links.tier[crossed] == Tier.ACCESS)
    assert (int(leaving.sum()), int(wires.count.sum())) == (nics, connections)
