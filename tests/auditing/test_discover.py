"""Discovery writes descriptions that build, from trees, LLDP, Slurm and NCCL files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.auditing.samples import HOSTS, HostDraft

from syncline.auditing.discover import describe, look
from syncline.errors import DescriptionError, UsageError
from syncline.fabric import Fabric, build, load, save
from syncline.fabric.formats import export_text
from syncline.fabric.spec import ClusterSpec
from syncline.host.host import Host
from syncline.host.lldp import parse_lldp
from syncline.host.root import Root


def host(draft: HostDraft, name: str = "") -> Host:
    if name:
        draft.host = name
        draft.put("proc/sys/kernel/hostname", name)
    return Host(Root.of(draft.tree()))


def discover(hosts: list[Host], gpu: str | None = None, **given: Any) -> ClusterSpec:
    return describe([look(host, gpu) for host in hosts], gpu=gpu, **given)


def with_neighbours(name: str, leaf: str) -> Host:
    draft = HOSTS["roce-h100"]()
    rows = [
        {
            f"rdma{rail}": {
                "chassis": {leaf: {"descr": "SONiC"}},
                "port": {"id": {"type": "ifname", "value": f"Ethernet{rail}"}},
            }
        }
        for rail in range(8)
    ]
    draft.commands["lldpctl"] = json.dumps({"lldp": {"interface": rows}})
    return host(draft, name)


def rebuilt(spec: ClusterSpec, folder: Path) -> Fabric:
    save(spec, folder / "cluster.yaml")
    return load(folder / "cluster.yaml")


@pytest.mark.parametrize(
    ("sample", "gpus", "nic", "link", "path"),
    [
        ("dgx-h100", 8, "ConnectX-7", "NDR", "PIX"),
        ("roce-h100", 8, "BlueField-3", "400GbE", "PIX"),
        ("ethernet-t4", 4, "ConnectX-4", "25GbE", "PHB"),
        ("cloud-vm", 8, "ConnectX-7", "NDR", "PHB"),
        ("plain-vm", 1, "X520", "10GbE", "PHB"),
    ],
)
def test_one_host(sample: str, gpus: int, nic: str, link: str, path: str, tmp_path: Path) -> None:
    spec = discover([host(HOSTS[sample]())])
    found = spec.hosts[0].host
    assert (found.gpus, found.nic, found.link, found.nic_path) == (gpus, nic, link, path)
    assert rebuilt(spec, tmp_path).num_gpus == gpus


def test_rdma_ports_as_ibstat_and_rdma_link_show_them() -> None:
    dgx = look(host(HOSTS["dgx-h100"]())).ports
    assert [(p.nic, p.port, p.part, p.link_layer, p.netdev) for p in dgx][:2] == [
        (0, "mlx5_0:1", "ConnectX-7", "InfiniBand", ""),
        (1, "mlx5_3:1", "ConnectX-7", "InfiniBand", ""),
    ]
    roce = look(host(HOSTS["roce-h100"]())).ports
    assert [(p.port, p.part, p.link_layer, p.netdev, p.state, p.rate) for p in roce][7:] == [
        ("mlx5_7:1", "BlueField-3", "Ethernet", "rdma7", "4: ACTIVE", "400 Gb/sec (4X NDR)")
    ]
    assert look(host(HOSTS["roce-h100"]())).faults == []


@pytest.mark.parametrize(("sample", "device", "nic"), [("dgx-h100", "mlx5_4", 2), ("roce-h100", "mlx5_3", 3)])
def test_a_port_that_is_down_or_slow_is_a_fault_of_the_description(
    sample: str, device: str, nic: int, tmp_path: Path
) -> None:
    draft = HOSTS[sample]()
    base = f"sys/class/infiniband/{device}/ports/1"
    draft.put(f"{base}/rate", "200 Gb/sec (2X NDR)")
    spec = discover([host(draft, "a"), host(HOSTS[sample](), "b")])
    assert f"nic-{nic} ({device}:1) runs at 200 Gb/sec (2X NDR)" in spec.notes
    fabric = rebuilt(spec, tmp_path)
    mine = fabric.device(f"a/nic-{nic}")
    assert fabric.links.rate_Bps[fabric.links.src == mine].max() == 25e9
    draft.put(f"{base}/state", "1: DOWN")
    draft.put(f"{base}/phys_state", "3: Disabled")
    spec = discover([host(draft, "a"), host(HOSTS[sample](), "b")])
    assert f"a: nic-{nic} ({device}:1) is 1: DOWN, 3: Disabled" in spec.notes
    fabric = rebuilt(spec, tmp_path)
    assert not fabric.links.up[fabric.links.src == mine].any()
    assert fabric.links.up[fabric.links.src == fabric.device(f"b/nic-{nic}")].all()


def test_the_interface_of_a_port_without_gids_comes_from_the_card_or_from_rdma_link() -> None:
    draft = HOSTS["roce-h100"]()
    draft.drop("sys/class/infiniband/mlx5_3/ports/1/gid_attrs")
    assert look(host(draft)).ports[3].netdev == "rdma3"
    bare = HOSTS["dgx-h100"]()
    bare.commands["rdma-link"] = json.dumps([{"ifname": "mlx5_0", "port": 1, "state": "ACTIVE", "netdev": "ibp24s0"}])
    assert look(host(bare)).ports[0].netdev == "ibp24s0"
    for junk in ("{", "[3]", '{"a": 1}'):
        bare.commands["rdma-link"] = junk
        assert look(host(bare)).ports[0].netdev == ""


def test_a_virtual_function_is_known_by_its_firmware() -> None:
    draft = HOSTS["cloud-vm"]()
    assert look(host(draft)).guesses == ()
    for index in range(8):
        draft.put(f"sys/class/infiniband/mlx5_ib{index}/fw_ver", "99.1.1")
    assert look(host(draft)).guesses == ("the card is unknown to the catalogue: taken as ConnectX-7",)


def test_guesses_are_written_down() -> None:
    notes = discover([host(HOSTS["plain-vm"]())]).notes
    assert "taken as X520" in notes
    assert "taken as 10GbE" in notes
    assert discover([host(HOSTS["dgx-h100"]())]).notes == ""


def test_many_hosts_like_this_one(tmp_path: Path) -> None:
    names = [f"gpu{i:03d}" for i in range(16)]
    fabric = rebuilt(discover([host(HOSTS["dgx-h100"]())], names=names, network="rail-optimized NDR"), tmp_path)
    assert fabric.host_names == tuple(names)
    assert fabric.num_gpus == 128


def test_cables_from_lldp(tmp_path: Path) -> None:
    hosts = [with_neighbours(f"h{i}", f"leaf-{i // 2}") for i in range(4)]
    spec = discover(hosts)
    fabric = rebuilt(spec, tmp_path)
    leaf = fabric.out_links(fabric.device("leaf-1"))
    below = {fabric.link_name(int(link)).split(" -> ")[1].split("/")[0] for link in leaf}
    assert below == {"h2", "h3", "core"}
    assert "one core that joins them at full rate is assumed" in spec.notes


def test_hosts_and_switches_from_slurm(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(
        "SwitchName=leaf0 Nodes=n[0-1]\nSwitchName=leaf1 Nodes=n[2-3]\nSwitchName=spine Switches=leaf[0-1]\n"
    )
    fabric = rebuilt(discover([host(HOSTS["dgx-h100"]())], slurm=path), tmp_path)
    assert fabric.host_names == ("n0", "n1", "n2", "n3")
    assert fabric.num_gpus == 32


def test_the_host_from_an_nccl_topology(tmp_path: Path) -> None:
    path = tmp_path / "topo.xml"
    path.write_text(export_text(load("dgx-h100-superpod-1su"), "nccl"))
    fabric = rebuilt(discover([host(HOSTS["dgx-h100"]())], nccl=path, names=["a", "b"]), tmp_path)
    assert (fabric.num_hosts, fabric.num_gpus) == (2, 16)


def test_hosts_that_differ_become_groups(tmp_path: Path) -> None:
    draft = HOSTS["dgx-h100"]()
    for file in [p for p in draft.files if p.endswith("ports/1/rate")]:
        draft.put(file, "200 Gb/sec (4X HDR)")
    spec = discover([host(HOSTS["dgx-h100"](), "a"), host(draft, "b")], network="fat-tree HDR")
    assert [group.names for group in spec.hosts] == [("a",), ("b",)]


def test_refusals() -> None:
    with pytest.raises(DescriptionError, match="has no GPU"):
        draft = HOSTS["plain-vm"]()
        draft.drop("sys/bus/pci/devices/0000:01:00.0")
        draft.smi.clear()
        discover([host(draft)])
    with pytest.raises(UsageError, match='two trees are from host "dgx-01"'):
        discover([host(HOSTS["dgx-h100"]()), host(HOSTS["dgx-h100"]())])
    assert build(discover([host(HOSTS["plain-vm"]())], gpu="H100")).num_gpus == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"lldp": 3}', '{"lldp": {"interface": [3, {"eth0": 4}]}}', "[" * 99_999]
)
def test_lldp_of_any_shape(text: str) -> None:
    assert parse_lldp(text) == {}


def test_lldp_of_one_interface_and_of_switches_without_name() -> None:
    one = {"lldp": {"interface": {"eth0": {"chassis": {"id": {"type": "mac", "value": "aa:bb"}}, "port": {}}}}}
    assert parse_lldp(json.dumps(one)) == {"eth0": ("aa:bb", "")}
