"""What the builders promise by formula, and what they make of NICs, bonds, names and racks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import FabricError
from syncline.fabric import ClusterSpec, DeviceKind, Fabric, Tier, build
from syncline.fabric.inventory import inventory, oversubscription


def make(hosts: Any, network: Any, host: Any = "dgx-h100", **more: Any) -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network, **more}))


def switches(fabric: Fabric) -> list[int]:
    """Return how many leaves, spines and cores there are."""
    level = fabric.devices.level[fabric.switches]
    return [int((level == n).sum()) for n in (1, 2, 3) if (level == n).any()]


# --- closed forms ---


def test_the_largest_two_tier_fat_tree_of_64_ports_joins_2048() -> None:
    fabric = make("max", {"topology": "fat-tree", "link": "NDR", "tiers": 2})
    counted = inventory(fabric)
    assert (counted.endpoints, counted.max_endpoints, switches(fabric)) == (2048, 2048, [64, 32])
    assert counted.ports == 96 * 64


@pytest.mark.parametrize("k", [4, 8, 16])
def test_the_largest_three_tier_fat_tree_joins_a_quarter_of_k_cubed(k: int) -> None:
    parts = {"switch": [{"name": "k", "like": "QM9700", "modes": [{"link": "NDR", "num_ports": k}]}]}
    network = {"topology": "fat-tree", "link": "NDR", "switch": "k", "tiers": 3}
    fabric = make("max", network, {"model": "dgx-h100", "gpus": 1, "nics": 1}, parts=parts)
    assert fabric.num_gpus == k**3 // 4
    assert switches(fabric) == [k * k // 2, k * k // 2, k * k // 4]
    assert inventory(fabric).ports == 5 * k * k // 4 * k  # every port of every switch


def test_1024_gpus_need_48_switches() -> None:
    assert switches(make(128, "fat-tree NDR")) == [32, 16]


@pytest.mark.parametrize(
    ("units", "expected"), [(1, [8, 4]), (2, [16, 8]), (3, [24, 16]), (4, [32, 16]), (16, [128, 128, 64])]
)
def test_superpods(units: int, expected: list[int]) -> None:
    assert switches(make(32 * units, "rail-optimized NDR")) == expected


@given(ratio=st.sampled_from([1, 2, 3, 7]), hosts=st.integers(9, 60))
@settings(max_examples=20)
def test_leaves_keep_the_oversubscription_asked_for(ratio: int, hosts: int) -> None:
    fabric = make(hosts, {"topology": "leaf-spine", "link": "NDR", "oversubscription": f"{ratio}:1"})
    found = oversubscription(fabric)
    assert not found or 0 < found["leaf"] <= ratio


@given(p=st.integers(1, 4), a=st.integers(1, 5), h=st.integers(1, 3), data=st.data())
@settings(max_examples=40)
def test_dragonfly_counts(p: int, a: int, h: int, data: st.DataObject) -> None:
    groups = data.draw(st.integers(2, min(6, a * h + 1)))
    shape = {"endpoints_per_switch": p, "switches_per_group": a, "global_ports_per_switch": h, "groups": groups}
    host = {"model": "dgx-h100", "gpus": 1, "nics": 1}
    fabric = make(groups * a * p, {"topology": "dragonfly", "link": "NDR"} | shape, host)
    links, group = fabric.links, fabric.devices.group
    assert switches(fabric) == [groups * a]
    assert (links.tier == Tier.GROUP_LOCAL).sum() == groups * a * (a - 1)
    across = links.tier == Tier.GROUP_GLOBAL
    pairs = {(int(group[s]), int(group[d])) for s, d in zip(links.src[across], links.dst[across], strict=True)}
    assert pairs == {(i, j) for i in range(groups) for j in range(groups) if i != j}
    assert across.sum() == groups * (groups - 1) * (a * h // (groups - 1))
    assert np.bincount(links.src[across]).max() <= h


def test_a_balanced_dragonfly_fills_its_switch() -> None:
    parts = {"switch": [{"name": "k", "like": "QM9700", "modes": [{"link": "NDR", "num_ports": 7}]}]}
    network = {"topology": "dragonfly", "link": "NDR", "switch": "k"}
    fabric = make("max", network, {"model": "dgx-h100", "gpus": 1, "nics": 1}, parts=parts)
    # p = h = 2, a = 4, g = a h + 1 = 9: N = a p g (Kim et al., ISCA 2008)
    assert (fabric.num_gpus, switches(fabric), fabric.facts["dragonfly_groups"]) == (72, [36], 9)
    assert set(np.bincount(fabric.links.src[fabric.links.cable >= 0])[fabric.switches].tolist()) == {7}


def test_rail_only_has_fewer_switches() -> None:
    assert (switches(make(64, "rail-only NDR")), switches(make(64, "rail-optimized NDR"))) == ([8], [16, 8])
    assert switches(make(512, "rail-only NDR")) == [8 * 16, 8 * 8]  # no third tier
    assert len(switches(make(512, "rail-optimized NDR"))) == 3


# --- NIC ports: independent, bonded, several, mixed ---


def access(fabric: Fabric) -> np.ndarray:
    links = fabric.links
    return np.flatnonzero((links.tier == Tier.ACCESS) & (fabric.devices.kind[links.src] == DeviceKind.NIC))


@pytest.mark.parametrize("topology", ["leaf-spine", "rail-optimized", "rail-only", "fat-tree", "dragonfly"])
def test_a_bond_is_one_link_of_the_summed_rate_with_its_cables_counted(topology: str) -> None:
    host = {"model": "dgx-h100", "nics": 4, "ports_per_nic": 2, "link": "NDR200"}
    network = {"topology": topology, "link": "NDR200"}
    apart, bonded = (make(6, network, host | {"bond": bond}) for bond in (False, True))
    assert len(access(apart)) == 48 and set(apart.links.rate_Bps[access(apart)]) == {25e9}
    assert len(access(bonded)) == 24 and set(bonded.links.rate_Bps[access(bonded)]) == {50e9}
    assert set(bonded.links.num_cables[access(bonded)]) == {2}
    one, two = inventory(apart), inventory(bonded)
    assert (one.ports, one.cables_by_kind, one.endpoints) == (two.ports, two.cables_by_kind, two.endpoints)
    assert one.price_usd == two.price_usd
    assert one.bisection_Bps == two.bisection_Bps


def test_a_bond_over_two_planes_is_two_links() -> None:
    host = {"model": "dgx-h100", "ports_per_nic": 2, "bond": True, "link": "NDR200"}
    plane = {"topology": "rail-optimized", "link": "NDR200"}
    fabric = make(4, {"topology": "multi-plane", "planes": 2, "plane": plane}, host)
    assert len(access(fabric)) == 64


@pytest.mark.parametrize("ports", [1, 2, 4])
def test_leaves_have_room_for_all_ports_of_a_nic(ports: int) -> None:
    fabric = make(70, "rail-optimized NDR", {"model": "dgx-h100", "ports_per_nic": ports})
    assert len(access(fabric)) == 70 * 8 * ports
    assert switches(fabric)[0] == 8 * -(-70 // (32 // ports))


def test_a_port_is_no_faster_than_its_nic() -> None:
    def rates(host: dict[str, Any], link: str) -> set[float]:
        fabric = make(2, f"fat-tree {link}", host)
        return set(fabric.links.rate_Bps[access(fabric)].tolist())

    assert rates({"model": "dgx-h100"}, "XDR") == {50e9}
    assert rates({"model": "dgx-h100", "nic": "ConnectX-8"}, "XDR") == {100e9}
    assert rates({"model": "dgx-h100", "nic": "ConnectX-8"}, "NDR") == {50e9}
    assert rates({"model": "dgx-h100", "ports_per_nic": 2}, "NDR") == {25e9}
    assert rates({"model": "dgx-h100", "link": "NDR200"}, "NDR") == {25e9}


def test_hosts_of_two_speeds_share_a_network() -> None:
    hosts = [{"count": 2, "host": "dgx-h100"}, {"count": 2, "host": "dgx-a100"}]
    fabric = build(ClusterSpec.model_validate({"hosts": hosts, "network": "fat-tree NDR"}))
    rates = fabric.links.rate_Bps[access(fabric)]
    assert (rates[:16] == 50e9).all() and (rates[16:] == 25e9).all()
    assert list(inventory(fabric).gpu_models.values()) == [16, 16]


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        (
            [{"count": 2, "host": "dgx-h100"}, {"count": 1, "host": {"model": "dgx-h100", "nics": 4}}],
            "hosts with 4 NICs and hosts with 8 NICs cannot share a fat-tree network.",
        ),
        (
            [{"count": 2, "host": "dgx-h100"}, {"count": 1, "host": {"model": "dgx-h100", "ports_per_nic": 2}}],
            "hosts with 8 NICs and hosts with 8 NICs of 2 ports cannot share a fat-tree network.",
        ),
        ([{"count": 2, "host": {"model": "dgx-h100", "nics": 0}}], "hosts of dgx-h100 have no NIC to join a fat-tree"),
        (
            [
                {"count": 2, "host": {"model": "tpu-v4-host", "nics": 0}},
                {"count": 2, "host": {"gpu": "L40S", "nics": 0}},
            ],
            "have no NIC to join",
        ),
        ([{"names": ["host-01"], "host": "dgx-h100"}, {"count": 2, "host": "dgx-h100"}], 'are called "host-01".'),
        ([{"count": 2, "host": "dgx-h100"}, {"names": ["host-01"], "host": "dgx-h100"}], 'are called "host-01".'),
    ],
)
def test_hosts_that_do_not_go_together(hosts: list[Any], message: str) -> None:
    with pytest.raises(FabricError) as caught:
        build(ClusterSpec.model_validate({"hosts": hosts, "network": "fat-tree NDR"}))
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("hosts", "network", "message"),
    [
        (9, {"topology": "fat-tree", "link": "NDR", "tiers": 1}, "one tier is one switch, but the hosts fill 2."),
        (65, {"topology": "rail-only", "link": "NDR", "tiers": 1}, "one tier is one switch, but the hosts fill 2."),
        (65, {"topology": "rail-optimized", "link": "NDR", "tiers": 1}, "one tier joins one unit of 64 hosts, not 65."),
        (300, {"topology": "fat-tree", "link": "NDR", "tiers": 2}, "75 leaf switches need 75 ports on every spine"),
        (9, {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 9}, 'switch "leaf-00" has'),
        (
            8,
            {"topology": "leaf-spine", "link": "NDR", "spines": 5},
            "32 uplinks of a leaf cannot be spread evenly over 5",
        ),
        (2, {"topology": "torus", "shape": [2, 2], "of": "hosts", "link": "NDR"}, "a torus of 2 x 2 has 4 places but"),
        (2, {"topology": "torus", "shape": [2], "of": "hosts"}, "a torus of hosts needs a link."),
        (4, {"topology": "multi-plane", "planes": 2, "plane": {"topology": "fat-tree", "link": "NDR"}}, "has 2 planes"),
        (
            90,
            {"topology": "dragonfly", "link": "NDR", "groups": 1},
            "1 groups of 32 switches with 16 host ports join 512",
        ),
        ("max", {"topology": "torus", "shape": [2], "of": "hosts", "link": "NDR"}, "needs a network whose size has a"),
        (2, None, "several hosts need a network."),
    ],
)
def test_networks_that_cannot_be(hosts: Any, network: Any, message: str) -> None:
    with pytest.raises(FabricError) as caught:
        make(hosts, network)
    assert message in caught.value.message
    assert caught.value.hint


def test_too_many_devices_are_refused_before_they_are_made() -> None:
    with pytest.raises(FabricError, match=r"the fabric would have [0-9,]+ devices; the limit is"):
        make(1_000_000, "fat-tree NDR", {"model": "dgx-h100", "gpus": 64})


def test_one_tier_fills_the_switch() -> None:
    fabric = make(64, {"topology": "rail-optimized", "link": "NDR", "tiers": 1})
    assert switches(fabric) == [8] and inventory(fabric).max_endpoints == 512
    assert inventory(make(10, {"topology": "rail-only", "link": "NDR", "tiers": 1})).max_endpoints == 512


# --- NVLink domains, sites, optical circuits ---


def test_nvl72_domains_are_crossbars_and_racks() -> None:
    fabric = make(40, "rail-optimized NDR", "gb200-nvl72")
    counted = inventory(fabric)
    assert counted.nvlink_domains_by_gpus == {16: 1, 72: 2}  # the last of three is not full
    assert (fabric.facts["nvlink_domains"], counted.gpus) == (3, 160)
    assert fabric.rack_of_host.tolist() == [0] * 18 + [1] * 18 + [2] * 4
    assert fabric.device_name(int(np.flatnonzero(fabric.devices.kind == DeviceKind.NVSWITCH)[0])) == "nvl-00/nvswitch"


def test_racks_of_domains_and_leaves_and_sites_are_apart() -> None:
    hosts = [{"count": 2, "host": {"model": "dgx-h100", "nics": 4}}, {"count": 36, "host": "gb200-nvl72"}]
    mixed = build(ClusterSpec.model_validate({"hosts": hosts, "network": "rail-optimized NDR"}))
    assert mixed.rack_of_host.tolist() == [1] * 18 + [2] * 18 + [0] * 2  # larger groups are built first
    site = {"hosts": 8, "host": "dgx-h100", "network": {"topology": "leaf-spine", "link": "NDR"}}
    sites = [{"name": name} | site for name in ("east", "west")]
    fabric = build(ClusterSpec.model_validate({"sites": sites, "wan": {"rate": "100Gbps"}}))
    assert fabric.rack_of_host.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert fabric.site_of_host.tolist() == [0] * 8 + [1] * 8
    assert fabric.facts["max_endpoints"] == 2 * 2048


@pytest.mark.parametrize(("pattern", "lines", "fewest"), [("mesh", 6, 3), ("ring", 4, 2), ("star", 3, 1)])
def test_sites_are_joined_as_told(pattern: str, lines: int, fewest: int) -> None:
    site = {"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR"}
    sites = [{"name": name} | site for name in "abcd"]
    wan = {"rate": "10Gbps", "latency": "6ms", "pattern": pattern, "lines": 2, "price_per_month_usd": 1000}
    fabric = build(ClusterSpec.model_validate({"sites": sites, "wan": wan}))
    between = fabric.devices.site[fabric.links.src] != fabric.devices.site[fabric.links.dst]
    assert between.sum() == 2 * 2 * lines
    assert set(fabric.links.latency_s[between]) == {6e-3} and set(fabric.links.rate_Bps[between]) == {1.25e9}
    assert (fabric.facts["wan_lines"], fabric.facts["wan_usd_per_month"]) == (2 * lines, 2000.0 * lines)
    assert oversubscription(fabric)["wan"] == 16 * 50e9 / (fewest * 2 * 1.25e9)
    assert fabric.device("a/leaf-00") != fabric.device("b/leaf-00")
    assert fabric.host_names[0] == "a-host-00"


def test_domains_too_large_or_uneven() -> None:
    for domain, message in ((70, "cannot be made of hosts with 4"), (1152, "joins at most")):
        with pytest.raises(FabricError, match=message):
            make(36, "rail-optimized NDR", {"model": "gb200-nvl72", "domain_gpus": domain})


@pytest.mark.parametrize(("pattern", "pods", "circuits"), [("mesh", 4, 6 * 42), ("ring", 4, 4 * 64), ("ring", 2, 128)])
def test_optical_circuits(pattern: str, pods: int, circuits: int) -> None:
    network = {"topology": "optical", "link": "NDR", "hosts_per_pod": 16, "pattern": pattern, "reconfiguration": "20ms"}
    fabric = make(16 * pods, network)
    optical = np.flatnonzero(fabric.links.tier == Tier.OPTICAL)
    assert len(optical) == 2 * circuits and fabric.facts["circuits"] == circuits
    group = fabric.devices.group
    assert (group[fabric.links.src[optical]] != group[fabric.links.dst[optical]]).all()
    assert np.bincount(fabric.links.src[optical]).max() <= 32
    counted = inventory(fabric)
    assert counted.optical_switches == -(-2 * circuits // 136)
    assert counted.facts["reconfiguration_s"] == 0.02
    assert "OCS-136" in {line.part for line in counted.bill}


def test_listed_circuits_and_their_limits() -> None:
    def listed(*circuits: tuple[int, int, int]) -> Fabric:
        rows = [{"a": a, "b": b, "circuits": n} for a, b, n in circuits]
        network = {"topology": "optical", "link": "NDR", "hosts_per_pod": 16, "pattern": "listed", "circuits": rows}
        return make(48, network)

    fabric = listed((0, 1, 3), (1, 2, 5))
    assert (fabric.links.tier == Tier.OPTICAL).sum() == 16
    with pytest.raises(FabricError, match="pod 1 has 130 circuits but 128 optical ports"):
        listed((0, 1, 65), (1, 2, 65))
    with pytest.raises(FabricError, match="circuit 0-3 does not join two of the 3 pods"):
        listed((0, 3, 1))


@given(per_pod=st.integers(1, 12), pods=st.integers(1, 4))
@settings(max_examples=20)
def test_pods_of_any_size_can_be_joined_by_circuits(per_pod: int, pods: int) -> None:
    network = {"topology": "optical", "link": "NDR", "hosts_per_pod": per_pod}
    if pods > 1 and per_pod > 4 and per_pod % 4:
        with pytest.raises(FabricError, match="do not fill pods"):
            make(per_pod * pods, network)
    else:
        assert inventory(make(per_pod * pods, network)).hosts == per_pod * pods
