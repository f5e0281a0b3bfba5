"""Faults: links that are down carry nothing, slow ones carry less, and a fault that names nothing is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import FabricError, RouteError
from syncline.fabric import ClusterSpec, DeviceKind, Fabric, Tier, build
from syncline.fabric.inventory import inventory
from syncline.fabric.route import Routes


def make(
    *faults: dict[str, Any], hosts: int = 32, network: Any = "rail-optimized NDR", host: Any = "dgx-h100"
) -> Fabric:
    description = {"hosts": hosts, "host": host, "network": network, "faults": list(faults)}
    return build(ClusterSpec.model_validate(description))


def test_a_link_that_is_down_is_still_counted_but_not_used() -> None:
    whole, broken = make(), make({"link": "leaf-00 <-> spine-01"})
    down = np.flatnonzero(~broken.links.up)
    assert {broken.link_name(int(i)) for i in down} == {"leaf-00 -> spine-01", "spine-01 -> leaf-00"}
    assert len(broken.links) == len(whole.links)
    assert inventory(broken).ports == inventory(whole).ports
    assert inventory(broken).links_down == len(down) == 16  # eight parallel cables, both directions
    routes = Routes(broken)
    for seed in range(30):
        assert broken.links.up[routes.path(broken.gpu(0, 0), broken.gpu(5, 3), seed=seed)].all()


def test_one_of_several_cables() -> None:
    fabric = make(
        {"link": "spine-01 -> leaf-00", "which": 2}, {"link": "leaf-00 <-> spine-00", "which": 0, "rate": "10Gbps"}
    )
    assert (~fabric.links.up).sum() == 2
    assert (fabric.links.rate_Bps == 1.25e9).sum() == 2


def test_a_slow_device_slows_what_was_faster_only() -> None:
    fabric = make({"device": "host-02/nic-0", "rate": "200Gbps"}, {"device": "host-03/gpu-1", "rate": "1Tbps"})
    nic, gpu = fabric.device("host-02/nic-0"), fabric.device("host-03/gpu-1")
    assert set(fabric.links.rate_Bps[fabric.out_links(nic)]) == {25e9}
    rates = fabric.links.rate_Bps[fabric.out_links(gpu)]
    assert rates.max() == 125e9 and rates.min() < 60e9  # NVLink capped; PCIe was slower already and stays so


def test_lateness_and_a_rate_of_nothing() -> None:
    fabric = make({"link": "host-00/nic-0 <-> leaf-00", "latency": "1ms"}, {"device": "spine-00", "rate": 0})
    assert (fabric.links.latency_s == 1e-3).sum() == 2
    assert fabric.links.up[fabric.links.latency_s == 1e-3].all()
    assert not fabric.links.up[fabric.out_links(fabric.device("spine-00"))].any()


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_routes_avoid_a_dead_spine(seed: int) -> None:
    fabric = make({"device": "spine-00"}, hosts=40)
    path = Routes(fabric).path(fabric.gpu(0, 0), fabric.gpu(39, 5), seed=seed)
    assert fabric.device("spine-00") not in fabric.links.dst[path]
    assert fabric.links.up[path].all()


def test_a_gpu_whose_nic_is_dead_uses_another() -> None:
    fabric = make({"device": "host-00/nic-0"})
    path = Routes(fabric).path(fabric.gpu(0, 0), fabric.gpu(1, 0))
    assert fabric.device("host-00/nic-1") in fabric.links.dst[path]
    assert fabric.links.up[path].all()
    leaf = make({"device": "leaf-00"})
    assert inventory(leaf).hops["cut_off"] == 0


def test_nvlink_that_is_down_leaves_pcie() -> None:
    fabric = make({"link": "host-00/gpu-0 <-> host-00/nvswitch-0"})
    path = Routes(fabric).path(fabric.gpu(0, 0), fabric.gpu(0, 7))
    assert set(fabric.links.tier[path]) == {Tier.PCIE, Tier.SOCKET}
    assert fabric.links.up[path].all()
    dead = make({"device": "host-00/gpu-0"})
    with pytest.raises(RouteError, match=r"no PCIe or socket path joins host-00/gpu-0 and host-00/"):
        Routes(dead).path(dead.gpu(0, 0), dead.gpu(1, 0))


def test_hosts_cut_off_by_faults_are_reported_not_fatal() -> None:
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 4}
    counted = inventory(make({"device": "leaf-01"}, hosts=8, network=network))
    assert (counted.hops["pairs"], counted.hops["cut_off"], counted.hops["max"]) == (12, 44, 1)
    alone = inventory(make({"device": "leaf-00"}, {"device": "leaf-01"}, hosts=8, network=network))
    assert alone.hops == {"pairs": 0, "cut_off": 56}
    assert alone.bisection_Bps == 0


def test_a_torus_with_a_dead_chip_goes_round_it() -> None:
    network = {"topology": "torus", "shape": [4, 4]}
    fabric = make({"device": "host-01/gpu-0"}, hosts=16, network=network, host={"model": "tpu-v4-host", "gpus": 1})
    path = Routes(fabric).path(fabric.gpu(0), fabric.gpu(2), policy="first")
    assert len(path) == 2 and fabric.device("host-01/gpu-0") not in fabric.links.dst[path]
    with pytest.raises(RouteError, match="no path in the network of cluster joins host-00/gpu-0 and host-01/gpu-0"):
        Routes(fabric).path(fabric.gpu(0), fabric.gpu(1))
    with pytest.raises(RouteError, match="no path in the network"):
        Routes(fabric).paths(fabric.gpu(0), fabric.gpu(1))
    assert inventory(fabric).hops["cut_off"] == 30


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"link": "leaf-00 <-> leaf-01"}, 'fault "leaf-00 <-> leaf-01": no link joins leaf-00 and leaf-01.'),
        ({"link": "leaf-00 <-> spine-99"}, 'cluster has no device "spine-99".'),
        ({"link": "leaf-00"}, 'fault "leaf-00" does not name a link.'),
        ({"device": "leaf-99"}, 'cluster has no device "leaf-99".'),
        ({"link": "leaf-00 <-> spine-00", "which": 8}, "8 cables join the two; there is no cable 8."),
        ({"device": "host-00/nic-0", "rate": "1Tbps"}, 'fault on "host-00/nic-0": 1 Tb/s is faster than the link.'),
    ],
)
def test_faults_that_name_nothing(fault: dict[str, Any], message: str) -> None:
    with pytest.raises(FabricError) as caught:
        make(fault)
    assert message in caught.value.message
    assert caught.value.hint


def test_the_switch_of_a_host_can_fail_too() -> None:
    fabric = make({"device": "host-00/nvswitch-0"})
    assert fabric.devices.kind[fabric.device("host-00/nvswitch-0")] == DeviceKind.NVSWITCH
    assert (~fabric.links.up).sum() == 16
