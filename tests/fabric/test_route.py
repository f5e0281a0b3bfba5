"""Routes against networkx: contiguous, shortest, all of the equal ones, and the same one by one as many at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import RouteError
from syncline.fabric import ClusterSpec, DeviceKind, Fabric, Tier, build, load
from syncline.fabric.distance import GLOBAL_HOPS, chips_forward, forwards
from syncline.fabric.route import Routes

Any_ = st.SearchStrategy[dict[str, Any]]


def make(description: dict[str, Any]) -> Fabric:
    return build(ClusterSpec.model_validate(description))


def network_graph(fabric: Fabric) -> nx.MultiDiGraph:
    """Return what forwards, its links weighted as the router weighs them, and the NICs at its edge."""
    links, mask = fabric.links, forwards(fabric)
    graph: nx.MultiDiGraph = nx.MultiDiGraph()
    edge = mask | (fabric.devices.kind == DeviceKind.NIC)
    usable = links.up & ((links.tier >= Tier.ACCESS) | ((links.tier == Tier.SCALE_UP) & chips_forward(fabric)))
    for link in np.flatnonzero(usable & edge[links.src] & edge[links.dst]).tolist():
        weight = GLOBAL_HOPS if links.tier[link] == Tier.GROUP_GLOBAL else 1
        graph.add_edge(int(links.src[link]), int(links.dst[link]), key=link, weight=weight)
    return graph


def check_path(fabric: Fabric, path: np.ndarray, src: int, dst: int) -> None:
    links = fabric.links
    assert (links.src[path[0]], links.dst[path[-1]]) == (src, dst)
    assert (links.dst[path[:-1]] == links.src[path[1:]]).all()
    assert links.up[path].all()
    visited = [src, *links.dst[path].tolist()]
    assert len(set(visited)) == len(visited)


def network_part(fabric: Fabric, path: np.ndarray) -> np.ndarray:
    """Return the links of a path between the NICs (or, on a chip torus, all of them)."""
    if chips_forward(fabric):
        return path
    middle: np.ndarray = path[fabric.links.tier[path] >= Tier.ACCESS]
    return middle


def cost(fabric: Fabric, path: np.ndarray) -> int:
    return int(np.where(fabric.links.tier[path] == Tier.GROUP_GLOBAL, GLOBAL_HOPS, 1).sum())


def across(fabric: Fabric, draw: st.DataObject) -> tuple[int, int]:
    """Return two GPUs of equal index in different hosts, so that every network has a path between them."""
    one, other = draw.draw(st.permutations(range(fabric.num_hosts)))[:2]
    local = draw.draw(st.integers(0, int((fabric.gpu_host == 0).sum()) - 1))
    return fabric.gpu(one, local), fabric.gpu(other, local)


@given(data=st.data())
@settings(max_examples=50)
def test_paths_are_contiguous_and_shortest(any_cluster: Any_, data: st.DataObject) -> None:
    fabric = make(data.draw(any_cluster))
    src, dst = across(fabric, data)
    routes = Routes(fabric)
    path = routes.path(src, dst, seed=data.draw(st.integers(0, 99)))
    check_path(fabric, path, src, dst)
    middle = network_part(fabric, path)
    ends = int(fabric.links.src[middle[0]]), int(fabric.links.dst[middle[-1]])
    assert cost(fabric, middle) == nx.dijkstra_path_length(network_graph(fabric), *ends)


@given(data=st.data())
@settings(max_examples=60)
def test_all_equal_cost_paths_are_those_of_networkx(any_cluster: Any_, data: st.DataObject) -> None:
    fabric = make(data.draw(any_cluster))
    src, dst = across(fabric, data)
    found = Routes(fabric).paths(src, dst, limit=100_000)
    for path in found:
        check_path(fabric, path, src, dst)
    middles = {tuple(network_part(fabric, path).tolist()) for path in found}
    assert len(middles) == len(found)
    graph = network_graph(fabric)
    first = min(middles)
    ends = int(fabric.links.src[first[0]]), int(fabric.links.dst[first[-1]])
    expected = set()
    for devices in nx.all_shortest_paths(nx.DiGraph(graph), *ends, weight="weight"):
        choices: list[list[Any]] = [[]]
        for a, b in pairwise(devices):
            choices = [[*path, link] for path in choices for link in graph.get_edge_data(a, b)]
        expected |= {tuple(path) for path in choices}
    assert middles == expected
    assert len(Routes(fabric).paths(src, dst, limit=3)) == min(3, len(found))
    ecmp = {tuple(network_part(fabric, Routes(fabric).path(src, dst, seed=seed)).tolist()) for seed in range(5)}
    assert ecmp <= expected


@given(data=st.data(), policy=st.sampled_from(("ecmp", "first", "static", "valiant")))
def test_many_paths_are_the_paths_one_by_one(any_cluster: Any_, data: st.DataObject, policy: Any) -> None:
    fabric = make(data.draw(any_cluster))
    pairs = [across(fabric, data) for _ in range(5)]
    seed, flows = data.draw(st.integers(0, 99)), [0, 3, 1, 0, 2]
    routes = Routes(fabric)
    together = routes.many([a for a, _ in pairs], [b for _, b in pairs], seed=seed, policy=policy, flow=flows)
    assert len(together) == 5
    for i, (a, b) in enumerate(pairs):
        assert together[i].tolist() == routes.path(a, b, seed=seed, policy=policy, flow=flows[i]).tolist()
        walk = together[i]
        assert (fabric.links.dst[walk[:-1]] == fabric.links.src[walk[1:]]).all()


def test_no_pairs_no_paths_and_a_device_reaches_itself() -> None:
    fabric = load("h100-64-rail")
    routes = Routes(fabric)
    assert len(routes.many([], [])) == 0
    assert routes.path(5, 5).tolist() == []
    assert [path.tolist() for path in routes.paths(5, 5)] == [[]]


def test_seeds_and_flow_numbers_spread_over_the_spines() -> None:
    fabric = load("h100-64-rail")
    routes, a, b = Routes(fabric), fabric.gpu(0, 0), fabric.gpu(40, 0)
    by_flow = routes.many([a] * 400, [b] * 400, flow=np.arange(400))
    by_seed = [routes.path(a, b, seed=seed) for seed in range(400)]
    for paths in ([by_flow[i] for i in range(400)], by_seed):
        spines = [int(fabric.links.dst[path[3]]) for path in paths]
        assert len(set(spines)) == 8
        assert np.bincount(spines).max() < 100  # 50 expected
    assert routes.path(a, b, flow=7).tolist() == by_flow[7].tolist()


def test_rails_of_one_unit_meet_at_one_leaf() -> None:
    fabric = load("h100-64-rail")
    routes = Routes(fabric)
    for host, gpu, switches in ((31, 3, 1), (32, 3, 3), (31, 4, 3)):
        path = routes.path(fabric.gpu(0, 3), fabric.gpu(host, gpu))
        assert np.isin(fabric.devices.kind[fabric.links.dst[path]], (2, 3)).sum() == switches
    inside = routes.path(fabric.gpu(0, 3), fabric.gpu(31, 4), cross_rail="nvlink")
    names = [fabric.link_name(int(i)) for i in inside]
    assert names[:2] == ["host-00/gpu-3 -> host-00/nvswitch-0", "host-00/nvswitch-0 -> host-00/gpu-4"]
    assert sum("leaf" in name for name in names) == 2
    check_path(fabric, inside, fabric.gpu(0, 3), fabric.gpu(31, 4))


def test_changing_rails_without_nvlink_goes_over_pcie() -> None:
    host = {"model": "dgx-h100", "scale_up": "pcie"}
    fabric = make({"hosts": 2, "host": host, "network": {"topology": "rail-only", "link": "NDR"}})
    path = Routes(fabric).path(fabric.gpu(0, 0), fabric.gpu(1, 7), cross_rail="nvlink")
    links = fabric.links
    assert (links.dst[path[:-1]] == links.src[path[1:]]).all()
    assert fabric.device_name(int(links.dst[path[-1]])) == "host-01/gpu-7"


def test_rail_only_has_no_network_path_across_rails() -> None:
    fabric = make({"hosts": 4, "host": "dgx-h100", "network": "rail-only NDR"})
    routes = Routes(fabric)
    with pytest.raises(RouteError) as caught:
        routes.path(fabric.gpu(0, 0), fabric.gpu(1, 2))
    assert caught.value.message == "no path in the network of cluster joins host-00/nic-0 and host-01/nic-2."
    assert "cross_rail=nvlink" in caught.value.hint
    with pytest.raises(RouteError, match="no path in the network"):
        routes.paths(fabric.gpu(0, 0), fabric.gpu(1, 2))
    assert len(routes.path(fabric.gpu(0, 0), fabric.gpu(1, 2), cross_rail="nvlink"))


def crossed(fabric: Fabric, a: tuple[int, int], b: tuple[int, int], **how: Any) -> list[str]:
    """Return the devices that the way between two GPUs (host, number) goes over, PCIe switches left out."""
    names = [
        fabric.device_name(int(d)) for d in fabric.links.dst[Routes(fabric).path(fabric.gpu(*a), fabric.gpu(*b), **how)]
    ]
    return [name for name in names if "pcie" not in name][:-1]


@pytest.mark.parametrize("network", ["rail-optimized NDR", "rail-only NDR"])
def test_a_nic_that_is_as_near_saves_the_way_between_rails(network: str) -> None:
    """GPUs 0 and 1 share a PCIe switch with NICs 0 and 1: each reaches both rails without the spines."""
    fabric = make({"hosts": 4, "host": "dgx-h100", "network": network})
    leaf = crossed(fabric, (0, 1), (1, 1))[1]
    wanted = ["host-00/nic-1", leaf, "host-01/nic-1"]
    assert crossed(fabric, (0, 0), (1, 1)) == crossed(fabric, (0, 1), (1, 1)) == wanted
    # Passed on over NVLink, so that a GPU's own PCIe link carries no more than its own NIC.
    passed = crossed(fabric, (0, 0), (1, 1), cross_rail="nvlink")
    assert passed == ["host-00/nvswitch-0", "host-00/gpu-1", *wanted]


def test_a_near_nic_is_left_alone_where_it_is_slow_down_or_on_the_same_leaf() -> None:
    data = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
    for fault in ({"rate": "100Gbps"}, {}):
        fabric = make({**data, "faults": [{"link": "leaf-01 <-> host-00/nic-1", **fault}]})
        assert crossed(fabric, (0, 0), (1, 1))[0] == "host-00/nic-0"
    other = make({**data, "faults": [{"link": "leaf-01 <-> host-01/nic-1"}]})
    assert crossed(other, (0, 1), (1, 1))[0] == "host-00/nic-1"  # the far NIC is borrowed: both ends keep their own
    assert crossed(make({**data, "network": "leaf-spine NDR"}), (0, 0), (1, 1))[0] == "host-00/nic-0"
    assert crossed(make(data), (0, 0), (1, 2))[0] == "host-00/nic-0"  # another PCIe switch


def test_a_host_that_lost_a_rail_sends_on_another_and_the_far_host_passes_it_on() -> None:
    data = {"hosts": 2, "host": "dgx-h100", "network": "rail-only NDR"}
    fabric = make({**data, "faults": [{"device": "host-00/nic-0"}]})
    there = crossed(fabric, (0, 0), (1, 0), cross_rail="nvlink")
    assert there[0] == "host-00/nic-1" and there[2:] == ["host-01/nic-1", "host-01/gpu-1", "host-01/nvswitch-0"]
    back = crossed(fabric, (1, 0), (0, 0), cross_rail="nvlink")
    assert back[:3] == ["host-01/nvswitch-0", "host-01/gpu-1", "host-01/nic-1"] and back[4:] == ["host-00/nic-1"]


def test_planes_never_mix() -> None:
    plane = {"topology": "fat-tree", "link": "NDR", "tiers": 2}
    host = {"model": "dgx-h100", "ports_per_nic": 4}
    fabric = make({"hosts": 64, "host": host, "network": {"topology": "multi-plane", "planes": 4, "plane": plane}})
    routes = Routes(fabric)
    planes = set()
    for seed in range(40):
        path = routes.path(fabric.gpu(0, 0), fabric.gpu(63, 0), seed=seed)
        names = [fabric.device_name(int(d)) for d in fabric.links.dst[path]]
        crossed = {name.split("/")[0] for name in names if name.startswith("plane")}
        assert len(crossed) == 1
        planes |= crossed
    assert planes == {"plane-0", "plane-1", "plane-2", "plane-3"}


@given(seed=st.integers(0, 10_000), groups=st.integers(3, 6), data=st.data())
@settings(max_examples=40)
def test_valiant_passes_another_group(seed: int, groups: int, data: st.DataObject) -> None:
    shape = {"endpoints_per_switch": 2, "switches_per_group": 3, "global_ports_per_switch": 2, "groups": groups}
    host = {"model": "dgx-h100", "gpus": 1, "nics": 1}
    network = {"topology": "dragonfly", "link": "NDR"} | shape
    fabric = make({"hosts": 6 * groups, "host": host, "network": network})
    src, dst = data.draw(st.permutations(range(6 * groups)))[:2]
    path = Routes(fabric).path(fabric.gpu(src), fabric.gpu(dst), seed=seed, policy="valiant")
    switches = [d for d in fabric.links.dst[path].tolist() if fabric.devices.kind[d] == DeviceKind.SWITCH]
    group = fabric.devices.group[switches].tolist()
    assert (fabric.links.dst[path[:-1]] == fabric.links.src[path[1:]]).all()
    assert set(group) - {group[0], group[-1]}
    minimal = Routes(fabric).path(fabric.gpu(src), fabric.gpu(dst), seed=seed)
    assert (fabric.links.tier[minimal] == Tier.GROUP_GLOBAL).sum() == (group[0] != group[-1])


def test_valiant_stays_on_its_rail_and_plane() -> None:
    rails = {"topology": "rail-only", "link": "NDR", "tiers": 2}
    fabric = make({"hosts": 200, "host": "dgx-h100", "network": rails})
    paths = Routes(fabric).many(
        [fabric.gpu(0, 3)] * 50, [fabric.gpu(150, 3)] * 50, policy="valiant", flow=np.arange(50)
    )
    for i in range(50):
        names = {fabric.device_name(int(d)).split("/")[0] for d in fabric.links.dst[paths[i]]}
        assert {name for name in names if name.startswith("rail")} == {"rail-3"}


@pytest.mark.parametrize("of", ["chips", "hosts"])
def test_dimension_order_is_monotone_and_always_the_same(of: str) -> None:
    shape = (4, 5, 3)
    host: Any = {"model": "tpu-v4-host", "gpus": 1} if of == "chips" else {"model": "dgx-h100", "gpus": 1, "nics": 1}
    network: dict[str, Any] = {"topology": "torus", "shape": list(shape), "of": of}
    fabric = make({"hosts": 60, "host": host, "network": network | ({"link": "NDR"} if of == "hosts" else {})})
    first = fabric.gpus if of == "chips" else fabric.switches
    place = {int(device): np.unravel_index(i, shape) for i, device in enumerate(first)}
    routes = Routes(fabric)
    for a in range(0, 60, 7):
        for b in range(60):
            if a == b:
                continue
            path = routes.path(fabric.gpu(a), fabric.gpu(b), policy="first", seed=b)
            assert path.tolist() == routes.path(fabric.gpu(a), fabric.gpu(b), policy="first").tolist()
            visited = [
                place[d] for d in [int(fabric.links.src[path[0]]), *fabric.links.dst[path].tolist()] if d in place
            ]
            moved = [[i for i in range(3) if one[i] != two[i]] for one, two in pairwise(visited)]
            assert all(len(axes) == 1 for axes in moved)
            order = [axes[0] for axes in moved]
            assert order == sorted(order)
            rings = [min((x - y) % n, (y - x) % n) for x, y, n in zip(visited[0], visited[-1], shape, strict=True)]
            assert len(order) == sum(rings)


def test_a_chip_torus_has_all_its_equal_paths() -> None:
    host = {"model": "tpu-v4-host", "gpus": 1}
    fabric = make({"hosts": 16, "host": host, "network": {"topology": "torus", "shape": [4, 4]}})
    assert len(Routes(fabric).paths(fabric.gpu(0), fabric.gpu(5))) == 2
    assert len(Routes(fabric).paths(fabric.gpu(0), fabric.gpu(10))) == 24  # 4!/(2!2!) orders, 2 x 2 ways round


def test_switches_have_no_routes_of_their_own() -> None:
    fabric = load("h100-64-rail")
    with pytest.raises(RouteError) as caught:
        Routes(fabric).path(fabric.gpu(0), fabric.device("leaf-00"))
    assert str(caught.value) == (
        '"leaf-00" is neither a GPU nor a NIC.\n  Routes join GPUs and NICs, such as "host-00/gpu-0".'
    )


def test_gpus_without_nics_talk_over_nvlink() -> None:
    fabric = make({"hosts": 1, "host": {"model": "dgx-h100", "nics": 0}})
    other = make({"hosts": 18, "host": {"model": "gb200-nvl72", "nics": 0}})
    assert len(Routes(fabric).path(fabric.gpu(0, 0), fabric.gpu(0, 7))) == 2
    assert len(Routes(other).path(other.gpu(0, 0), other.gpu(17, 3))) == 2  # over the NVLink domain


def host_pair(*cables: str, hosts: int = 2) -> Fabric:
    """Return hosts of 4 GPUs and 2 NICs with these cables and no switch."""
    network = {"topology": "explicit", "link": "HDR", "cables": list(cables)}
    return make({"hosts": hosts, "host": {"gpu": "A100-80GB", "gpus": 4, "nics": 2}, "network": network})


def test_two_hosts_cabled_nic_to_nic_need_no_switch() -> None:
    fabric = host_pair("host-00/nic-0 <-> host-01/nic-0", "host-00/nic-1 <-> host-01/nic-1")
    routes = Routes(fabric)
    for a, b in ((0, 0), (0, 3), (3, 0), (3, 3)):
        path = routes.path(fabric.gpu(0, a), fabric.gpu(1, b))
        check_path(fabric, path, fabric.gpu(0, a), fabric.gpu(1, b))
        (crossed,) = network_part(fabric, path).tolist()
        assert fabric.link_name(crossed) == f"host-00/nic-{a // 2} -> host-01/nic-{a // 2}", "by the sender's own NIC"
        assert [p.tolist() for p in routes.paths(fabric.gpu(0, a), fabric.gpu(1, b))] == [path.tolist()]


def test_parallel_cables_between_two_nics_are_all_used() -> None:
    fabric = host_pair("host-00/nic-0 <-> host-01/nic-0 : HDR x3")
    routes = Routes(fabric)
    a, b = fabric.gpu(0, 0), fabric.gpu(1, 0)
    many = routes.many([a] * 60, [b] * 60, flow=np.arange(60))
    assert len({tuple(network_part(fabric, many[i])) for i in range(60)}) == 3
    assert len(routes.paths(a, b)) == 3


@pytest.mark.parametrize(("dead", "taken"), [((6,), {6: 7}), ((6, 7), {6: 4, 7: 5}), ((5, 6), {5: 4, 6: 7})])
def test_a_gpu_takes_the_nearest_nic_for_one_that_failed(dead: tuple[int, ...], taken: dict[int, int]) -> None:
    """Two NICs share a PCIe switch, four a socket. Once the first of the socket: with more failed, a nearer one."""
    faults = [{"link": f"host-00/nic-{nic} <-> leaf-{nic:02d}"} for nic in dead]
    fabric = load({"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR", "faults": faults})
    nic = Routes(fabric).inside.nic_of_gpu[fabric.gpus[:8]]
    assert {gpu: int(fabric.devices.local[nic[gpu]]) for gpu in dead} == taken


def test_a_gpu_whose_own_nic_is_not_cabled_takes_the_one_that_is() -> None:
    fabric = host_pair("host-00/nic-1 <-> host-01/nic-0")
    path = Routes(fabric).path(fabric.gpu(0, 0), fabric.gpu(1, 3))
    check_path(fabric, path, fabric.gpu(0, 0), fabric.gpu(1, 3))
    assert "host-00/nic-1 -> host-01/nic-0" in [fabric.link_name(int(i)) for i in path]


def test_hosts_pass_nothing_on_for_others() -> None:
    fabric = host_pair("host-00/nic-0 <-> host-01/nic-0", "host-01/nic-1 <-> host-02/nic-0", hosts=3)
    routes = Routes(fabric)
    assert len(network_part(fabric, routes.path(fabric.gpu(1, 0), fabric.gpu(2, 0)))) == 1
    with pytest.raises(RouteError, match="no path in the network") as caught:
        routes.path(fabric.gpu(0, 0), fabric.gpu(2, 0))
    assert "A host passes nothing on for others." in caught.value.hint
