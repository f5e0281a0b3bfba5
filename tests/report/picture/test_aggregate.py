from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.clusters import MAKERS, cluster, hosts

from syncline.fabric.fabric import DeviceKind, Fabric
from syncline.report.picture.aggregate import Aggregate, Cell, PictureGroup, aggregate, bundle
from syncline.report.picture.network import DrawnNetwork, components, mix, network_of


def cells_with_totals(group: PictureGroup, times: int = 1) -> list[tuple[Cell, int]]:
    mine = [(cell, cell.count * times) for cell in group.cells]
    inner = [pair for g in group.groups for pair in cells_with_totals(g, times * g.count)]
    return mine + inner


def check_sums(network: DrawnNetwork, found: Aggregate) -> None:
    """Assert that what is drawn stands for every host, switch and cable, once."""
    fabric = network.fabric
    drawn = cells_with_totals(found.root)
    assert len({cell.id for cell, _ in drawn}) == len(drawn)
    for cell, times in drawn:
        assert times == cell.total
    kinds: Counter[int] = Counter()
    for cell, times in drawn:
        kinds[cell.kind] += times
    assert kinds[-1] == fabric.num_hosts
    outside = fabric.devices.kind[fabric.devices.host < 0]
    assert {k: n for k, n in kinds.items() if k >= 0} == dict(Counter(int(k) for k in outside))
    tiers: Counter[int] = Counter()
    for one in found.bundles + found.inside:
        tiers[one.tier] += one.total
    assert tiers == Counter(int(t) for t in fabric.links.tier[0::2])
    carried = sum(one.rate_Bps * one.total for one in found.bundles + found.inside)
    assert carried == pytest.approx(float(np.minimum(fabric.links.rate_Bps[0::2], fabric.links.rate_Bps[1::2]).sum()))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("how", [{}, {"each": True}, {"outer": False}, {"coarse": True}])
def test_numbers_add_up_to_the_fabric(name: str, how: dict[str, bool]) -> None:
    network = network_of(cluster(name))
    check_sums(network, aggregate(network, **how))


@settings(max_examples=40)
@given(
    st.integers(2, 300),
    st.sampled_from(["rail-optimized NDR", "fat-tree NDR", "leaf-spine NDR 3:1", "rail-only NDR", "dragonfly NDR"]),
    st.lists(st.tuples(st.integers(0, 299), st.integers(0, 7)), max_size=4),
)
def test_numbers_add_up_with_any_size_and_faults(count: int, text: str, broken: list[tuple[int, int]]) -> None:
    names = sorted(hosts(count, text).host_names)
    faults = [{"device": f"{names[host % count]}/nic-{nic}"} for host, nic in broken]
    network = network_of(hosts(count, text, faults=faults))
    found = aggregate(network)
    check_sums(network, found)
    down = sum(one.total for one in found.bundles if one.state)
    assert down == len({f["device"] for f in faults})


def test_equal_units_and_pods_are_drawn_once() -> None:
    root = aggregate(network_of(cluster("1,024 hosts, rails")), outer=False).root
    (pod,) = root.groups
    (unit,) = pod.groups
    assert (pod.count, unit.count, unit.total) == (8, 4, 32)
    assert [cell.count for cell in unit.cells if cell.is_host] == [32]
    assert [cell.lane for cell in unit.cells if not cell.is_host] == list(range(8))


def test_a_few_outermost_groups_stay_apart() -> None:
    root = aggregate(network_of(cluster("1,000 hosts, fat-tree"))).root
    assert [group.number for group in root.groups] == list(range(8))
    assert [group.groups[0].count for group in root.groups] == [32] * 7 + [26]


def test_a_broken_link_sets_its_host_and_rack_apart() -> None:
    fabric = hosts(1000, "fat-tree NDR", faults=[{"device": "host-900/nic-1"}])
    root = aggregate(network_of(fabric)).root
    racks = [rack for pod in root.groups for rack in pod.groups]
    (odd,) = [rack for rack in racks if len([cell for cell in rack.cells if cell.is_host]) == 2]
    assert sorted(cell.count for cell in odd.cells if cell.is_host) == [1, 3]


def test_domains_are_groups_below_units() -> None:
    root = aggregate(network_of(cluster("eight NVL72"))).root
    assert [group.level for group in root.groups] == [0] * 8
    assert all(DeviceKind.NVSWITCH in {cell.kind for cell in group.cells} for group in root.groups)


def test_sites_are_the_outermost_groups() -> None:
    root = aggregate(network_of(cluster("three large sites"))).root
    assert [group.level for group in root.groups] == [-1, -1, -1]


def test_planes_are_lanes() -> None:
    network = network_of(cluster("two planes"))
    assert network.lanes == "plane"
    switches = network.vertices.lane[network.fabric.num_hosts :]
    names = [network.name(v) for v in range(network.fabric.num_hosts, len(network.vertices))]
    assert [f"plane-{lane}" for lane in switches] == [name.split("/")[0] for name in names]


def test_spines_of_one_rail_have_its_lane() -> None:
    network = network_of(cluster("rail-only"))
    spines = np.flatnonzero(network.vertices.level == 2)
    assert {int(lane) for lane in network.vertices.lane[spines]} == set(range(8))
    shared = network_of(cluster("64 hosts, rails"))
    assert set(shared.vertices.lane[shared.vertices.level == 2]) == {-1}


def test_bundle_keeps_the_highest_load() -> None:
    fabric: Fabric = cluster("eight hosts, rails")
    load = np.zeros(len(fabric.links))
    load[7] = 0.9
    network = network_of(fabric, load)
    (one,) = bundle(network.cables, np.zeros(len(fabric.devices), np.int64), np.arange(len(load) // 2) == 3)
    assert one.load == 0.9


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_components_join_what_edges_join(edges: list[tuple[int, int]]) -> None:
    a, b = (np.array([e[i] for e in edges], np.int64) for i in (0, 1))
    label = components(31, a, b)
    parent = list(range(31))

    def root(v: int) -> int:
        while parent[v] != v:
            v = parent[v]
        return v

    for x, y in edges:
        low, high = sorted((root(x), root(y)))
        parent[high] = low
    assert label.tolist() == [root(v) for v in range(31)]


def test_mix_tells_rows_and_columns_apart() -> None:
    rows = mix([1, 2, 1, 2], [2, 1, 2, 2])
    assert rows[0] == rows[2]
    assert len(set(rows.tolist())) == 3
