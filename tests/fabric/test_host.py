"""One host: its scale-up links, its PCIe tree, and the ways inside it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import FabricError
from syncline.fabric import ClusterSpec, DeviceKind, Fabric, Tier, build
from syncline.fabric.catalog import HostModel, load_catalog
from syncline.fabric.host import CUBE_MESH
from syncline.fabric.inside import Inside
from syncline.fabric.route import Routes

CATALOG = load_catalog()
MODELS = [part for part in CATALOG.parts("host") if isinstance(part, HostModel)]


def make(**host: Any) -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": 1, "host": host}))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_host_of_the_catalogue_can_be_built(model: HostModel) -> None:
    fabric = make(model=model.name)
    kinds = fabric.devices.kind
    assert (fabric.num_gpus, len(fabric.nics)) == (model.num_gpus, model.num_nics)
    assert (kinds == DeviceKind.CPU).sum() == model.num_sockets
    inside = Inside(fabric)
    for gpu in fabric.gpus.tolist():
        if len(fabric.nics):
            assert inside.nic_of_gpu[gpu] in fabric.nics
    shares = np.bincount(inside.nic_of_gpu[fabric.gpus] - fabric.nics[0]) if len(fabric.nics) else np.zeros(1)
    assert shares.max() - shares[shares > 0].min(initial=9) <= 1


@pytest.mark.parametrize("scale_up", ["nvswitch", "mesh", "ring", "pcie", "none"])
@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_scale_up_links_share_out_what_a_gpu_has(scale_up: str, gpus: int) -> None:
    fabric = make(model="dgx-h100", gpus=gpus, scale_up=scale_up)
    links = fabric.links
    mine = links.tier == Tier.SCALE_UP
    if scale_up in ("pcie", "none") or gpus == 1:
        assert not mine.any()
        return
    leaving = np.bincount(links.src[mine], weights=links.rate_Bps[mine], minlength=len(fabric.devices))
    assert leaving[fabric.gpus] == pytest.approx(450e9)
    pairs = {"nvswitch": gpus, "mesh": gpus * (gpus - 1) // 2, "ring": gpus if gpus > 2 else 1}
    assert mine.sum() == 2 * pairs[scale_up]


def test_the_cube_mesh_uses_six_links_of_every_gpu() -> None:
    used = np.zeros(8, int)
    for a, b, count in CUBE_MESH:
        used[[a, b]] += count
    assert used.tolist() == [6] * 8
    fabric = make(model="dgx-1-v100")
    assert (fabric.links.tier == Tier.SCALE_UP).sum() == 2 * len(CUBE_MESH)
    with pytest.raises(FabricError, match="a cube mesh joins 8 GPUs, not 4"):
        make(model="dgx-1-v100", gpus=4)


@given(st.data())
@settings(max_examples=60)
def test_ways_inside_a_host_are_the_shortest(data: st.DataObject) -> None:
    per = st.sampled_from([0, 1, 2, 4])
    fabric = make(
        model="dgx-h100",
        gpus=data.draw(st.integers(1, 8)),
        nics=data.draw(st.integers(1, 8)),
        sockets=data.draw(st.integers(1, 4)),
        scale_up=data.draw(st.sampled_from(["nvswitch", "mesh", "ring", "pcie", "none"])),
        gpus_per_pcie_switch=data.draw(per),
        nics_per_pcie_switch=data.draw(per),
    )
    links = fabric.links
    graph = nx.DiGraph(zip(links.src.tolist(), links.dst.tolist(), strict=True))
    devices = [*fabric.gpus.tolist(), *fabric.nics.tolist()]
    a, b = data.draw(st.sampled_from(devices)), data.draw(st.sampled_from(devices))
    path = Routes(fabric).path(a, b)
    if a == b:
        assert len(path) == 0
        return
    assert (links.src[path[0]], links.dst[path[-1]]) == (a, b)
    assert (links.dst[path[:-1]] == links.src[path[1:]]).all()
    both_gpus = fabric.devices.kind[a] == fabric.devices.kind[b] == DeviceKind.GPU
    pcie = nx.DiGraph(
        (int(links.src[i]), int(links.dst[i])) for i in range(len(links)) if links.tier[i] != Tier.SCALE_UP
    )
    direct = both_gpus and nx.has_path(graph, a, b) and Tier.SCALE_UP in links.tier[path]
    assert len(path) == nx.shortest_path_length(graph if direct else pcie, a, b)


def test_nics_beside_their_gpus() -> None:
    fabric = make(model="dgx-h100")
    names = [fabric.link_name(int(i)) for i in Routes(fabric).path(fabric.gpu(0, 2), fabric.device("host-00/nic-2"))]
    assert names == ["host-00/gpu-2 -> host-00/pcie-1", "host-00/pcie-1 -> host-00/nic-2"]
    grace = make(model="gh200-blade")
    tiers = {grace.media[grace.links.medium[i]] for i in np.flatnonzero(grace.links.tier == Tier.PCIE)}
    assert "NVLink-C2C" in tiers


def test_a_cap_on_the_way_to_the_nic() -> None:
    fabric = make(model="dgx-h100", nic_path_cap="19.2GB/s")
    nic = fabric.links.src == fabric.device("host-00/nic-0")
    assert fabric.links.rate_Bps[nic].tolist() == [19.2e9]


def test_hosts_that_do_not_add_up() -> None:
    with pytest.raises(FabricError) as caught:
        make(gpu="L40S", scale_up="mesh")
    assert 'has no scale-up links, so a host of them cannot be a "mesh"' in caught.value.message
    bare = CATALOG.host("dgx-h100").model_copy(update={"nic": None, "num_nics": 0, "link": None})
    assert bare.num_ports == 0
