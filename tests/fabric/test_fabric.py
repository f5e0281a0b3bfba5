"""Every fabric, whatever its topology: paired links, ports within their switches, names that lead back."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import FabricError
from syncline.fabric import ClusterSpec, DeviceKind, Fabric, Tier, build, load
from syncline.fabric.catalog import load_catalog
from syncline.fabric.check import components
from syncline.fabric.faults import FailedPart, apply_faults

Any_ = st.SearchStrategy[dict[str, Any]]


def make(description: dict[str, Any]) -> Fabric:
    return build(ClusterSpec.model_validate(description))


@given(data=st.data())
@settings(max_examples=50)
def test_links_are_paired(any_cluster: Any_, data: st.DataObject) -> None:
    links = make(data.draw(any_cluster)).links
    one, other = np.arange(0, len(links), 2), np.arange(1, len(links), 2)
    assert len(links) % 2 == 0
    assert (links.reverse(5), links.reverse(4)) == (4, 5)
    assert (links.src[one] == links.dst[other]).all() and (links.dst[one] == links.src[other]).all()
    for column in (links.rate_Bps, links.latency_s, links.tier, links.medium, links.cable, links.num_cables, links.up):
        assert (column[one] == column[other]).all()
    assert (links.rate_Bps > 0).all() and links.up.all() and (links.src != links.dst).all()


@given(data=st.data())
@settings(max_examples=50)
def test_no_switch_has_more_cables_than_ports(any_cluster: Any_, data: st.DataObject) -> None:
    fabric = make(data.draw(any_cluster))
    catalog = load_catalog().with_parts(fabric.spec.parts)
    links = fabric.links
    for device in fabric.switches.tolist():
        mine = (links.src == device) & (links.cable >= 0)
        model = catalog.switch(fabric.parts[fabric.devices.part[device]])
        assert links.num_cables[mine].sum() <= catalog.num_ports(model, catalog.link("NDR"))


@given(data=st.data())
@settings(max_examples=50)
def test_every_device_has_a_name_of_its_own_and_every_gpu_a_way_out(any_cluster: Any_, data: st.DataObject) -> None:
    fabric = make(data.draw(any_cluster))
    names = [fabric.device_name(i) for i in range(len(fabric.devices))]
    assert len(set(names)) == len(names)
    assert [fabric.device(name) for name in names] == list(range(len(names)))
    label = components(fabric)
    assert len(np.unique(label[fabric.gpus])) == 1


@given(data=st.data())
@settings(max_examples=50)
def test_hosts_of_a_rack_share_their_leaves(any_cluster: Any_, data: st.DataObject) -> None:
    description = data.draw(any_cluster)
    if description["network"]["topology"] not in ("leaf-spine", "rail-optimized", "rail-only", "multi-plane"):
        return
    fabric = make(description)
    links, racks = fabric.links, fabric.rack_of_host
    access = (links.tier == Tier.ACCESS) & (fabric.devices.kind[links.src] == DeviceKind.NIC)
    leaves: dict[int, set[int]] = {host: set() for host in range(fabric.num_hosts)}
    for src, dst in zip(links.src[access].tolist(), links.dst[access].tolist(), strict=True):
        leaves[int(fabric.devices.host[src])].add(dst)
    plane = description["network"].get("plane", description["network"])["topology"]
    for one in range(fabric.num_hosts):
        for other in range(fabric.num_hosts):
            if plane != "fat-tree":  # a fat-tree fills leaves port by port, so a host may stand on two
                assert (racks[one] == racks[other]) == (leaves[one] == leaves[other])
    assert set(racks.tolist()) == set(range(int(racks.max()) + 1))


@given(data=st.data())
@settings(max_examples=30)
def test_columns_cannot_be_written(any_cluster: Any_, data: st.DataObject) -> None:
    fabric = make(data.draw(any_cluster))
    for columns in (fabric.devices, fabric.links):
        for column in vars(columns).values():
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 0


def test_gpus_by_host_and_their_names() -> None:
    fabric = load("h100-64-rail")
    assert fabric.device_name(fabric.gpu(3, 7)) == "host-03/gpu-7"
    assert repr(fabric) == "Fabric('h100-64-rail', hosts=64, gpus=512, switches=24, links=5760)"
    out = fabric.out_links(fabric.device("leaf-03"))
    assert len(out) == 64 and (fabric.links.src[out] == fabric.device("leaf-03")).all()
    assert fabric.link_name(int(out[-1])) == "leaf-03 -> spine-07"
    for host, local in ((3, 8), (3, -1), (64, 0)):
        with pytest.raises(FabricError, match=f"there is no GPU {local}"):
            fabric.gpu(host, local)
    with pytest.raises(FabricError) as caught:
        fabric.device("leaf-99")
    assert caught.value.message == 'h100-64-rail has no device "leaf-99".'
    assert caught.value.hint == 'Names look like "host-00/gpu-0" and "leaf-00".'
    with pytest.raises(FabricError, match='no device "spine-7"') as caught:
        fabric.device("spine-7")
    assert caught.value.hint.startswith('Did you mean "spine-07"? ')


@pytest.mark.parametrize("cluster", ["h100-64-rail", {"hosts": 2, "host": "dgx-h100", "network": "leaf-spine 400GbE"}])
def test_a_fabric_pickles_copies_and_compares(cluster: Any) -> None:
    fabric = load(cluster)
    assert len(fabric.gpus)  # a derived column, which is not pickled
    for twin in (pickle.loads(pickle.dumps(fabric)), copy.copy(fabric), copy.deepcopy(fabric), load(cluster)):
        assert twin == fabric
        assert hash(twin) == hash(fabric)
        assert not twin.links.rate_Bps.flags.writeable
    broken = {"device": f"{fabric.host_names[0]}/nic-0"}
    assert apply_faults(fabric, (FailedPart.model_validate(broken),)) != fabric
