"""Clos networks: no port is used twice, uplinks are spread evenly, and no switch is bought in vain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.describe.document import read_document
from syncline.errors import DescriptionError, FabricError
from syncline.fabric.build import build
from syncline.fabric.fabric import DeviceKind, Fabric, Tier
from syncline.fabric.inventory import oversubscription
from syncline.fabric.load import parse_cluster
from syncline.fabric.spec import ClusterSpec
from syncline.fabric.topology.clos import three_tier, uplinks_for


def cluster(hosts: int, network: dict[str, Any], host: str = "dgx-h100") -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network}))


def ports_used(fabric: Fabric, level: int) -> set[int]:
    used = np.bincount(fabric.links.src[fabric.links.cable >= 0], minlength=len(fabric.devices))
    return set(used[(fabric.devices.kind == DeviceKind.SWITCH) & (fabric.devices.level == level)].tolist())


@given(
    num_leaves=st.integers(1, 400),
    uplinks=st.integers(1, 64),
    radix=st.integers(8, 128),
    ratio=st.sampled_from([1.0, 1.5, 2.0, 3.0, 7.0]),
    data=st.data(),
)
def test_three_tiers_fit_their_ports(
    num_leaves: int, uplinks: int, radix: int, ratio: float, data: st.DataObject
) -> None:
    per_pod = data.draw(st.one_of(st.none(), st.integers(1, 64)))
    try:
        plan = three_tier(num_leaves, uplinks, radix, ratio, per_pod)
    except FabricError:
        return
    down = plan.leaves_per_pod * plan.leaf_cables
    up = plan.cores_per_group * plan.core_cables
    assert plan.leaf_cables * plan.spines_per_pod == uplinks
    assert down + up <= radix
    assert down / up <= ratio + 1e-9
    assert plan.spines_per_pod % plan.spines_per_set == 0
    core_ports = plan.num_pods * plan.spines_per_set * plan.core_cables
    assert core_ports <= radix
    assert plan.num_cores * core_ports == plan.num_spines * up


def test_cores_take_cables_from_several_spines_of_a_pod() -> None:
    # DGX A100 SuperPOD: 8 rail groups of 10 spines with 14 uplinks; 40-port cores take one cable from 5 spines each.
    plan = three_tier(56, 20, 40, leaves_per_pod=7)
    assert (plan.num_spines, plan.num_cores, plan.spines_per_set, plan.core_cables) == (80, 28, 5, 1)


def test_every_core_is_full_and_even() -> None:
    network = {"topology": "rail-optimized", "link": "HDR", "hosts_per_unit": 20, "spine_groups": "rail"}
    fabric = cluster(140, network, "dgx-a100")
    assert (ports_used(fabric, 1), ports_used(fabric, 2), ports_used(fabric, 3)) == ({40}, {28}, {40})


def test_uplinks_never_exceed_the_ratio_asked_for() -> None:
    assert [uplinks_for(192, ratio) for ratio in (1.0, 3.0, 7.0, 1000.0)] == [192, 64, 28, 1]


@pytest.mark.parametrize(
    ("hosts", "ratio", "hosts_on", "uplinks"),
    [
        (12, 2.0, [6, 6], 24),  # 10 and 2 with 40 uplinks each would be 1.2:1 in the middle
        (16, 4.0, [8, 8], 16),
        (17, 2.0, [9, 8], 36),
        (16, 1.0, [8, 8], 64),
        (12, 4.0, [12], 0),
    ],
)
def test_hosts_are_spread_evenly_over_the_leaves(hosts: int, ratio: float, hosts_on: list[int], uplinks: int) -> None:
    fabric = cluster(hosts, {"topology": "leaf-spine", "link": "400GbE", "oversubscription": ratio})
    assert np.bincount(fabric.rack_of_host).tolist() == hosts_on
    up = fabric.links.src[fabric.links.tier == Tier.LEAF_SPINE]
    leaves = np.flatnonzero((fabric.devices.kind == DeviceKind.SWITCH) & (fabric.devices.level == 1))
    assert {int((up == leaf).sum()) for leaf in leaves} == {uplinks}


@pytest.mark.parametrize(
    ("hosts", "switch", "uplinks"), [(128, "7808R3", 8 * 128), (9, "SN5400", 3 * 24), (37, "TH4-64x400G", 10 * 30)]
)
def test_a_fat_tree_buys_uplinks_for_the_ports_that_are_there(hosts: int, switch: str, uplinks: int) -> None:
    """Leaves are filled alike: not 7 x 144 ports and one of 16 with 144 uplinks each, 1,152 for 1,024 ports."""
    found = cluster(hosts, {"topology": "fat-tree", "link": "400GbE", "switch": switch})
    assert int((found.links.tier == Tier.LEAF_SPINE).sum()) // 2 == uplinks


@pytest.mark.parametrize("topology", ["leaf-spine", "fat-tree", "rail-optimized"])
@pytest.mark.parametrize("hosts", [9, 24, 33, 70, 100])
@pytest.mark.parametrize("ratio", [2.0, 3.0, 4.0])
def test_an_oversubscribed_middle_is_what_was_asked_for(topology: str, hosts: int, ratio: float) -> None:
    fabric = cluster(hosts, {"topology": topology, "link": "NDR", "oversubscription": ratio})
    leaf = (fabric.devices.kind == DeviceKind.SWITCH) & (fabric.devices.level == 1)
    down = np.bincount(fabric.links.src[fabric.links.tier == Tier.ACCESS], minlength=len(leaf))[leaf]
    up = np.bincount(fabric.links.src[fabric.links.tier == Tier.LEAF_SPINE], minlength=len(leaf))[leaf]
    if len(down) > (8 if topology == "rail-optimized" else 1):
        assert down.max() / up.min() <= ratio + 1e-9
        assert down.sum() / up.sum() > 0.6 * ratio


def test_racks_with_a_switch_of_their_own_below_larger_ones() -> None:
    network = {
        "topology": "fat-tree", "tiers": 3, "link": "400GbE", "switch": "Minipack2", "hosts_per_leaf": 2,
        "leaves_per_pod": 16, "spine_switch": "7808R3", "spine_oversubscription": "4:1",
    }  # fmt: skip
    fabric = cluster(64, network, "grand-teton-h100")
    models = {
        (int(level), fabric.parts[part])
        for level, part in zip(
            fabric.devices.level[fabric.switches], fabric.devices.part[fabric.switches].tolist(), strict=True
        )
    }
    assert models == {(1, "Minipack2"), (2, "7808R3"), (3, "7808R3")}
    assert ports_used(fabric, 1) == {32}
    assert oversubscription(fabric) == pytest.approx({"leaf": 1.0, "spine": 4.0})


def test_a_cable_between_unlike_switches_takes_the_mean_of_their_times() -> None:
    slow = cluster(64, {"topology": "fat-tree", "link": "400GbE", "switch": "SN5400", "spine_switch": "7816R3"})
    fast = cluster(64, {"topology": "fat-tree", "link": "400GbE", "switch": "SN5400"})
    times = [f.links.latency_s[f.links.tier == Tier.LEAF_SPINE][0] for f in (slow, fast)]
    assert times[0] - times[1] == pytest.approx((4e-6 - 600e-9) / 2)


def test_rail_groups_need_cores() -> None:
    text = "hosts: 8\nhost: dgx-h100\nnetwork: {topology: rail-optimized, link: NDR, tiers: 2, spine_groups: rail}\n"
    with pytest.raises(DescriptionError, match="spines of one rail need cores to join the rails"):
        parse_cluster(read_document(text, "cluster.yaml"))


def test_rail_groups_need_whole_pods() -> None:
    network = {"topology": "rail-optimized", "link": "NDR", "hosts_per_unit": 4, "units_per_pod": 2}
    with pytest.raises(FabricError, match="3 units do not make whole pods of 2") as caught:
        cluster(12, {**network, "spine_groups": "rail"})
    assert "spine_groups: pod" in caught.value.hint


@pytest.mark.parametrize(("ratio", "leaves", "spines"), [("1:1", 12, 8), ("2:1", 10, 4), ("3:1", 8, 2), ("4:1", 8, 2)])
def test_an_oversubscribed_leaf_is_split_for_the_fewest_switches(ratio: str, leaves: int, spines: int) -> None:
    fabric = build(ClusterSpec.model_validate({"hosts": 48, "host": "dgx-h100", "network": f"leaf-spine NDR {ratio}"}))
    levels = fabric.devices.level[fabric.switches]
    assert ((levels == 1).sum(), (levels == 2).sum()) == (leaves, spines)
