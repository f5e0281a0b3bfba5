"""What hosts, clouds and SONiC switches print becomes a cluster; what is cut or empty is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import DescriptionError, SynclineError, UsageError
from syncline.fabric import build
from syncline.fabric.formats import MAX_BYTES, detect, import_fabric
from syncline.fabric.formats.cloud_topology import CLOUDS, parse_cloud
from syncline.fabric.formats.host_tables import parse_ibstat, parse_topo
from syncline.fabric.formats.lldp_tables import config_neighbours, read_lldp, status_speeds

FOUND = Path(__file__).parent / "found"


def test_topo_of_a_switched_host_leaves_out_storage_and_names_the_path() -> None:
    spec = import_fabric(FOUND / "topo-a100-10-nics.txt", gpu="A100", link="HDR", network="fat-tree HDR", count=4)
    fabric = build(spec)
    assert (fabric.num_hosts, fabric.num_gpus, len(fabric.nics)) == (4, 32, 32)
    host = spec.hosts[0].host
    assert (host.scale_up, host.nic_path, host.nics) == ("nvswitch", "PXB", 8)
    assert "taken for storage and management: 2" in spec.notes


def test_topo_of_a_mesh() -> None:
    spec = import_fabric(FOUND / "topo-v100-mesh.txt", gpu="V100")
    host = spec.hosts[0].host
    assert (host.gpus, host.scale_up, host.nics, host.nic_path) == (8, "mesh", 1, "PHB")
    matrix = parse_topo((FOUND / "topo-v100-mesh.txt").read_text(), "topo")
    assert matrix.cells["GPU0", "GPU4"] == "NV2" and matrix.cells["GPU3", "GPU6"] == "SYS"
    assert build(spec).num_gpus == 8


def test_topo_that_is_cut_is_refused_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="PIXNODE") as told:
        import_fabric(FOUND / "topo-broken.txt", gpu="H100")
    assert "line 3" in str(told.value)
    text = (FOUND / "topo-v100-mesh.txt").read_text()
    (tmp_path / "half").write_text("\n".join(text.splitlines()[:5]))
    with pytest.raises(DescriptionError, match="the row of GPU4 is missing"):
        import_fabric(tmp_path / "half", gpu="V100")
    with pytest.raises(UsageError, match="does not name the GPU"):
        import_fabric(FOUND / "topo-v100-mesh.txt")
    with pytest.raises(UsageError, match="need a network"):
        import_fabric(FOUND / "topo-v100-mesh.txt", gpu="V100", count=4)


def test_ibstat_gives_cards_and_rate() -> None:
    spec = import_fabric(FOUND / "ibstat.txt", host="4 x V100", network="fat-tree EDR", count=8)
    host = spec.hosts[0].host
    assert (host.nics, host.link, host.gpus) == (2, "EDR", 4)
    assert len(build(spec).nics) == 16


def test_ibstat_knows_dead_ports_and_other_networks() -> None:
    text = (FOUND / "ibstat.txt").read_text()
    more = "\n".join(line for i in range(4) for line in text.replace("mlx5_", f"mlx5_{i}").splitlines())
    down = more.replace("State: Active", "State: Down", 1)
    other = text.replace("mlx5_0", "mlx5_bond_0").replace("Rate: 100", "Rate: 25").replace("InfiniBand", "Ethernet")
    ports = parse_ibstat(down + "\n" + other, "ibstat")
    assert len(ports) == 10 and ports[0].state == "Down" and ports[-1].layer == "Ethernet"
    with pytest.raises(UsageError, match="nothing about the GPUs"):
        import_fabric(FOUND / "ibstat.txt")
    with pytest.raises(DescriptionError, match="no port"):
        parse_ibstat("CA 'mlx5_0'\n", "ibstat")
    with pytest.raises(DescriptionError, match="has no rate"):
        parse_ibstat("CA 'mlx5_0'\nPort 1:\nState: Active\n", "ibstat")


def test_aws_answer_is_the_tree_it_describes() -> None:
    spec = import_fabric(FOUND / "aws-topology.json", host="p4d")
    fabric = build(spec)
    assert fabric.num_hosts == 4 and "more pages" in spec.notes
    tree, _ = parse_cloud("aws-topology", (FOUND / "aws-topology.json").read_text(), "aws")
    below = {switch.name: (*switch.hosts, *switch.children) for switch in tree}
    assert below["nn-4444444444example"] == ("i-1111111111example", "i-2222222222example")
    assert below["nn-1111111111example"] == ("nn-2222222222example", "nn-3333333333example")
    with pytest.raises(UsageError, match="says nothing about the hosts"):
        import_fabric(FOUND / "aws-topology.json")


def test_google_and_oracle_answers() -> None:
    place = {"cluster": "c1", "block": "b1", "subblock": "s1", "host": "h1"}
    google = [{"name": "a", "resourceStatus": {"physicalHostTopology": place}},
              {"name": "b", "resourceStatus": {"physicalHostTopology": {**place, "subblock": "s2"}}},
              {"name": "c", "resourceStatus": {}}]  # fmt: skip
    assert detect(json.dumps(google)) == "gcp-topology"
    tree, notes = parse_cloud("gcp-topology", json.dumps(google), "gcp")
    assert [(one.name, one.hosts or one.children) for one in tree] == [
        ("s1", ("a",)), ("s2", ("b",)), ("b1", ("s1", "s2")), ("c1", ("b1",)),
    ]  # fmt: skip
    assert notes == ("instances that do not state their place, left out: 1",)
    oracle = {"data": {"items": [
        {"display-name": "x", "compute-local-block-id": "l1", "compute-network-block-id": "n1",
         "compute-hpc-island-id": "i1"},
        {"id": "y", "local-block-id": "l2", "network-block-id": "n1", "hpc-island-id": None},
    ]}}  # fmt: skip
    assert detect(json.dumps(oracle)) == "oci-topology"
    tree, _ = parse_cloud("oci-topology", json.dumps(oracle), "oci")
    assert {one.name for one in tree} == {"l1", "l2", "n1", "i1"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"Instances": []}, "no instance says where it is"),
        ({"Instances": [{"InstanceId": "i-1", "NetworkNodes": []}]}, "no instance says where it is"),
        ({"Instances": [{"NetworkNodes": ["a"]}]}, "instance 0 has no name"),
        ({"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["a"]}] * 2}, "listed twice"),
        ({"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["t", "a"]},
                        {"InstanceId": "i-2", "NetworkNodes": ["u", "a"]}]}, 'lies below both "t" and "u"'),
        ({"Reservations": []}, "a list of instances is missing"),
        ([7], "instance 0 has no name"),
    ],
)  # fmt: skip
def test_answers_that_cannot_be_are_refused(data: object, message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        parse_cloud("aws-topology", json.dumps(data), "aws")


def test_sonic_configurations_have_cables_and_rates() -> None:
    found = read_lldp(FOUND / "sonic", MAX_BYTES)
    assert found is not None
    assert set(found.hosts) == {"GPU-SVR-1", "GPU-SVR-2", "GPU-SVR-5", "GPU-SVR-6"}
    assert set(found.switches) == {"GPU-LEAF-01", "GPU-LEAF-02", "GPU-SPINE-01", "GPU-SPINE-02"}
    rates = {(cable.a.device, cable.b.device): (cable.rate_Bps or 0) * 8e-9 for cable in found.cables}
    assert rates["GPU-LEAF-01", "GPU-SVR-2"] == 200 and rates["GPU-LEAF-02", "GPU-SPINE-01"] == 400
    fabric = build(import_fabric(FOUND / "sonic", host="8 x H100"))
    assert fabric.num_hosts == 4 and fabric.links.rate_Bps.max() > 0
    old = {"DEVICE_NEIGHBOR": {"ARISTA04T1": {"local_port": "Ethernet124", "port": "Ethernet1"}, "x": None}}
    assert list(config_neighbours(old)) == [("Ethernet124", "ARISTA04T1", "Ethernet1")]


def test_sonic_status_gives_lldp_tables_their_rates(tmp_path: Path) -> None:
    status = """admin@leaf-1:~$ show interfaces status
  Interface            Lanes    Speed    MTU    FEC    Alias    Vlan    Oper    Admin
-----------  ---------------  -------  -----  -----  -------  ------  ------  -------
  Ethernet0       25,26,27,28     100G   9100    N/A     etp1  routed      up       up
  Ethernet4                29      25G   9100    N/A     etp2  routed    down     down
"""
    assert status_speeds(status, None) == {("leaf-1", "Ethernet0"): 12.5e9, ("leaf-1", "Ethernet4"): 3.125e9}
    lldp = """admin@leaf-1:~$ show lldp table
Capability codes: (R) Router, (B) Bridge, (O) Other
LocalPort    RemoteDevice    RemotePortID    Capability    RemotePortDescr
-----------  --------------  --------------  ------------  -----------------
Ethernet0    gpu01           eth0            R             eth0
"""
    (tmp_path / "both.txt").write_text(lldp + status)
    found = read_lldp(tmp_path / "both.txt", MAX_BYTES)
    assert found is not None
    assert [cable.rate_Bps for cable in found.cables] == [12.5e9] and found.hosts == ("gpu01",)


@given(st.text(alphabet="GPUNIC01X \tSYSV\nLegend:'{}[]\",CAmlx5_:Rate", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_topo, parse_ibstat):
        try:
            parse(text, "text")
        except SynclineError:
            continue
    for kind, cloud in CLOUDS.items():
        if cloud.recognise(text):
            with pytest.raises(SynclineError):
                parse_cloud(kind, text, "text")
