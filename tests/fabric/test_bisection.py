"""Bisection bandwidth against the formulas that hold where fabrics are regular."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.fabric import ClusterSpec, Fabric, build
from syncline.fabric.bisection import bisection

NDR_Bps = 50e9


def make(hosts: int, network: Any, host: Any = "dgx-h100", **more: Any) -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network, **more}))


def test_512_gpus_at_400_gigabit() -> None:
    for topology in ("fat-tree", "leaf-spine", "rail-optimized"):
        found = bisection(make(64, f"{topology} NDR"))
        assert (found.rate_Bps, found.num_endpoints) == (12.8e12, 512)


@given(ratio=st.sampled_from([2, 3, 7]), hosts=st.sampled_from([24, 48, 96]))
def test_an_oversubscribed_leaf_divides_it(ratio: int, hosts: int) -> None:
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 6, "oversubscription": f"{ratio}:1"}
    fabric = make(hosts, network, {"model": "dgx-h100", "nics": 7, "gpus": 7})
    full = hosts * 7 * NDR_Bps / 2
    assert bisection(fabric).rate_Bps == pytest.approx(full / ratio)


@pytest.mark.parametrize(
    ("shape", "wrap", "cut"),
    [
        ((4, 4, 4), True, 2 * 16),
        ((4, 4, 4), False, 16),
        ((8, 8), True, 2 * 8),
        ((8, 4), True, 2 * 4),
        ((8, 2), True, 2 * 2),
        ((2, 2), True, 2),  # a dimension of two has one cable, not two
        ((4, 4, 8), True, 2 * 16),
        ((16,), True, 2),
        ((16,), False, 1),
    ],
)
def test_a_torus_is_cut_across_its_longest_dimension(shape: tuple[int, ...], wrap: bool, cut: int) -> None:
    size = 1
    for length in shape:
        size *= length
    network = {"topology": "torus", "shape": list(shape), "wrap": wrap}
    chips = make(size, network, {"model": "tpu-v4-host", "gpus": 1})
    link_Bps = float(chips.links.rate_Bps[chips.links.tier == 0][0])
    assert bisection(chips).rate_Bps == pytest.approx(cut * link_Bps)
    host = {"model": "dgx-h100", "gpus": 8, "nics": 8}  # enough NICs that the routers' cables are the limit
    hosts = make(size, network | {"of": "hosts", "link": "NDR"}, host)
    assert bisection(hosts).rate_Bps == pytest.approx(min(cut * NDR_Bps, size * 8 * NDR_Bps / 2))


@pytest.mark.parametrize("of_hosts", [False, True])
def test_equally_broken_tori_have_one_bisection(of_hosts: bool) -> None:
    network = {"topology": "torus", "shape": [4, 4]} | ({"of": "hosts", "link": "NDR"} if of_hosts else {})
    host = {"model": "dgx-h100"} if of_hosts else {"model": "tpu-v4-host", "gpus": 1}
    whole = make(16, network, host)
    switching = whole.switches if of_hosts else whole.gpus
    ring = np.isin(whole.links.src, switching) & np.isin(whole.links.dst, switching)
    cables = [whole.link_name(int(link)).replace("->", "<->") for link in np.flatnonzero(ring)[::2][::5]]
    assert len(cables) > 5
    found = {bisection(make(16, network, host, faults=[{"link": cable, "which": 0}])).rate_Bps for cable in cables}
    assert found == {bisection(whole).rate_Bps * 7 / 8}, "one of the eight cables of a cut is gone"


def test_a_dragonfly_is_cut_between_its_groups() -> None:
    shape = {"endpoints_per_switch": 8, "switches_per_group": 4, "global_ports_per_switch": 3, "groups": 4}
    fabric = make(16, {"topology": "dragonfly", "link": "NDR"} | shape)
    cables = 4 * 3 // 3  # global ports of a group, over the other groups
    assert bisection(fabric).rate_Bps == 2 * 2 * cables * NDR_Bps


def test_faults_lower_it() -> None:
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 4, "spines": 4}
    whole = bisection(make(8, network)).rate_Bps
    spine = bisection(make(8, network, faults=[{"device": "spine-00"}])).rate_Bps
    cable = bisection(make(8, network, faults=[{"link": "leaf-00 <-> spine-00", "which": 0}])).rate_Bps
    slow = bisection(make(8, network, faults=[{"link": "leaf-00 <-> spine-00", "rate": "100Gbps"}])).rate_Bps
    assert (whole, spine) == (32 * NDR_Bps, 24 * NDR_Bps)
    assert cable == 31 * NDR_Bps
    assert slow == 24 * NDR_Bps + 8 * NDR_Bps / 4


def test_planes_and_rails_add_up() -> None:
    plane = {"topology": "fat-tree", "link": "NDR200"}
    host = {"model": "dgx-h100", "ports_per_nic": 2, "link": "NDR200"}
    planes = make(16, {"topology": "multi-plane", "planes": 2, "plane": plane}, host)
    rails = make(16, "rail-only NDR")
    assert bisection(planes).rate_Bps == bisection(rails).rate_Bps == 64 * NDR_Bps


def test_sites_are_cut_at_the_wan() -> None:
    site = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
    sites = [{"name": name} | site for name in ("east", "west")]
    wan = {"rate": "100Gbps", "latency": "6ms", "lines": 3}
    found = bisection(build(ClusterSpec.model_validate({"sites": sites, "wan": wan})))
    assert found.rate_Bps == 3 * 12.5e9


def test_one_host_is_cut_through_its_scale_up_links() -> None:
    nvswitch = bisection(build(ClusterSpec.model_validate({"hosts": 1, "host": {"model": "dgx-h100", "nics": 0}})))
    assert (nvswitch.rate_Bps, nvswitch.split) == (4 * 450e9, "first half of the devices")
    alone = bisection(
        build(ClusterSpec.model_validate({"hosts": 1, "host": {"model": "dgx-h100", "gpus": 1, "nics": 0}}))
    )
    assert (alone.rate_Bps, alone.num_endpoints) == (0.0, 1)
    pcie = build(ClusterSpec.model_validate({"hosts": 1, "host": {"model": "l40s-8", "nics": 0}}))
    assert 0 < bisection(pcie).rate_Bps < 100e9  # two sockets, one link between them
