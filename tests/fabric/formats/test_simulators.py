"""Topologies of htsim, ns-3 and ASTRA-sim as clusters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from syncline.errors import DescriptionError, SimulationError
from syncline.fabric import build
from syncline.fabric.formats import import_fabric
from syncline.sim.packet.flow_file import read_flows

# As in Broadcom/csg-htsim, sim/datacenter/topologies.
LEAF_SPINE = """Nodes 32
Tiers 2
Podsize 32

Tier 0
Downlink_speed_Gbps 100
Radix_Down 8
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Oversubscribed 4

Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Switch_Latency_ns 0
"""
FAT_TREE = """# three tiers
Nodes 64
Tiers 3
Podsize 16
Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Switch_Latency_ns 200
Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Bundle 1
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 1
"""
NS3 = """6 2 6
4 5
0 4 100Gbps 0.001ms 0
1 4 100Gbps 0.001ms 0
2 5 100Gbps 0.001ms 0
3 5 100Gbps 0.001ms 0
4 5 400Gbps 0.001ms 0
4 5 400Gbps 0.001ms 0
"""
# The form of SimAI's gen_Topo_Template.py: nodes, GPUs a server, NVSwitches, other switches, links, GPU.
SIMAI = """9 2 2 3 12 H20
4 5 6 7 8
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
2 5 2880Gbps 0.000025ms 0
3 5 2880Gbps 0.000025ms 0
0 6 200Gbps 0.0005ms 0
1 7 200Gbps 0.0005ms 0
2 6 200Gbps 0.0005ms 0
3 7 200Gbps 0.0005ms 0
6 8 400Gbps 0.0005ms 0
7 8 400Gbps 0.0005ms 0
6 8 400Gbps 0.0005ms 0
7 8 400Gbps 0.0005ms 0
"""
ASTRA = "topology: [ Switch, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50.0, 25.0 ]\nlatency: [ 500, 1000 ]\n"
ASTRA_DIRECT = """topology: [ Ring, FullyConnected, Switch ]
npus_count: [ 2, 8, 4 ]
bandwidth: [ 200.0, 100.0, 50.0 ]  # GB/s
latency: [ 50.0, 500.0, 2000.0 ]  # ns
"""


def _built(tmp_path: Path, name: str, text: str):  # type: ignore[no-untyped-def]
    (tmp_path / name).write_text(text)
    return build(import_fabric(tmp_path / name))


def test_htsim(tmp_path: Path) -> None:
    fabric = _built(tmp_path, "a.topo", LEAF_SPINE)
    assert (fabric.num_hosts, len(fabric.switches)) == (32, 4 + 2)
    assert fabric.links.rate_Bps[fabric.links.tier >= 3] == pytest.approx(12.5e9)
    tree = _built(tmp_path, "b.topo", FAT_TREE)
    assert (tree.num_hosts, len(tree.switches)) == (64, 16 + 16 + 16)
    access = np.isin(tree.links.src, tree.nics)
    assert tree.links.latency_s[access & (tree.links.tier >= 3)] == pytest.approx(1.1e-6)  # half the switch's 200 ns


def test_ns3_and_simai(tmp_path: Path) -> None:
    fabric = _built(tmp_path, "topology.txt", NS3)
    assert (fabric.num_hosts, len(fabric.switches)) == (4, 2)
    simai = _built(tmp_path, "simai", SIMAI)
    assert (simai.num_hosts, simai.num_gpus, len(simai.nics)) == (2, 4, 4)
    network = simai.switches[[simai.device_name(int(s)).startswith("switch-") for s in simai.switches]]
    assert len(network) == 3
    assert simai.spec.notes == ""  # an H20 is known
    (tmp_path / "other").write_text(SIMAI.replace("H20", "X77"))
    assert "X77 is not in the catalogue, so an H100 replaces it" in import_fabric(tmp_path / "other").notes


def test_switches_may_have_any_numbers(tmp_path: Path) -> None:
    """HPCC's first example: switch 0 between hosts 1 to 4, more lines than are declared, and words at the end."""
    text = "5 1 4\n0\n" + "".join(f"0 {i} 100Gbps 0.001ms 0\n" for i in range(1, 9)) + "\nFirst line: total node #\n"
    fabric = _built(tmp_path, "hpcc.txt", text)
    assert (fabric.num_hosts, len(fabric.switches)) == (4, 1) and fabric.host_names[0] == "host-01"
    (tmp_path / "flow.txt").write_text("2\n2 1 3 100 200000 2\n3 1 3 100 200000 2\n4 1 3 100 150000 2\n")
    flows = read_flows(tmp_path / "flow.txt", fabric)
    assert [fabric.device_name(int(d)) for d in flows.src] == ["host-02/nic-0", "host-03/nic-0"]
    with pytest.raises(SimulationError, match='names "0"'):
        (tmp_path / "flow.txt").write_text("1\n0 1 3 100 200000 2\n")
        read_flows(tmp_path / "flow.txt", fabric)


def test_astra_sim(tmp_path: Path) -> None:
    fabric = _built(tmp_path, "network.yml", ASTRA)
    assert (fabric.num_hosts, len(fabric.nics), len(fabric.switches)) == (8, 16, 2 + 4)


def test_npus_of_astra_sim_that_are_joined_directly_forward_for_each_other(tmp_path: Path) -> None:
    """Ring_FullyConnected_Switch.yml of astra-sim, by hand: 64 routers, 16 switches, 32 + 8 x 28 + 64 links of them."""
    fabric = _built(tmp_path, "network.yml", ASTRA_DIRECT)
    assert (fabric.num_hosts, len(fabric.switches)) == (64, 64 + 16)
    between = np.isin(fabric.links.src, fabric.switches) & np.isin(fabric.links.dst, fabric.switches)
    rate, count = np.unique(fabric.links.rate_Bps[between], return_counts=True)
    assert rate.tolist() == [50e9, 100e9, 200e9]
    assert count.tolist() == [2 * 64, 2 * 8 * 28, 2 * 32]  # both ways
    access = np.isin(fabric.links.src, fabric.nics) & (fabric.links.tier >= 3)
    assert fabric.links.rate_Bps[access] == pytest.approx(200e9 + 7 * 100e9 + 50e9)
    torus = _built(tmp_path, "network.yml", ASTRA.replace("Switch, Switch", "Ring, Ring").replace("4, 2", "4, 4"))
    between = np.isin(torus.links.src, torus.switches) & np.isin(torus.links.dst, torus.switches)
    assert between.sum() == 2 * 32


@pytest.mark.parametrize(
    ("text", "word"),
    [(LEAF_SPINE.replace("Radix_Down 8", "Radix_Down 7"), "do not fill"), (NS3.replace("6 2 6", "6 2 7"), "declares 7"),
     (NS3.replace("0.001ms 0\n1", "0.001ms 0.01\n1"), "loses packets"),
     (ASTRA.replace("Switch, ", "Mesh, "), "no dimension is called Mesh"),
     (ASTRA.replace("4, 2", "4, 0"), "without NPUs"), (ASTRA.replace("25.0", "fast"), "are numbers"),
     (ASTRA_DIRECT.replace("2, 8, 4", "2, 9000, 4"), "cables are described"),
     (LEAF_SPINE.replace("Radix_Up 2", "Radix_Up two"), "not a name and a number")],
)  # fmt: skip
def test_what_makes_no_cluster_is_said(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(DescriptionError, match=word):
        _built(tmp_path, "x.yml" if "npus" in text else "x", text)
