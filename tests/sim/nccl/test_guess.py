from __future__ import annotations

import pytest

from syncline.errors import DescriptionError
from syncline.sim.nccl.guess import guess, hosts_in


@pytest.mark.parametrize(
    ("text", "hosts", "gpus", "expected"),
    [
        ("8x8 H100, NDR InfiniBand 8x400Gb/s", 8, 8, ("h100", "infiniband", 8, 50e9)),
        ("DGX A100, HDR InfiniBand", 4, 8, ("a100", "infiniband", 8, 25e9)),
        ("3 hosts, 8x A100, 4x 200Gb/s HDR", 3, 8, ("a100", "infiniband", 4, 25e9)),
        ("HGX H200 8x400GbE RoCE", 4, 8, ("h200", "roce", 8, 50e9)),
        ("AWS p5en.48xlarge (H200)", 4, 8, ("h200", "efa-v3", 8, 50e9)),
        ("AWS p4d.24xlarge A100-40GB EFA", 4, 8, ("a100", "efa-v1", 4, 12.5e9)),
        ("GB200 NVL72, 2 racks", 36, 4, ("gb200", "infiniband", 4, 50e9)),
        ("A4X Max, 4 a host in different NVLink domains, RoCE 8x400Gb/s", 2, 4, ("gb300", "roce", 8, 50e9)),
        ("GCP a3-ultragpu-8g H200", 2, 8, ("h200", "roce", 8, 50e9)),
        ("Azure ND H100 v5", 2, 8, ("h100", "infiniband", 8, 50e9)),
        ("8x B200, InfiniBand NDR", 8, 8, ("b200", "infiniband", 8, 50e9)),
        ("NREL Kestrel: 4x H100 a node", 16, 4, ("h100", "slingshot", 2, 25e9)),
        ("Perlmutter, 4x A100", 8, 4, ("a100", "slingshot", 4, 25e9)),
        ("CSCS Alps 4x GH200, Slingshot-11", 8, 4, ("gh200", "slingshot", 4, 25e9)),
        ("Azure Standard_ND96isr_H100_v5", 16, 8, ("h100", "infiniband", 8, 50e9)),
        ("Azure ND96asr_v4 (A100-40GB)", 8, 8, ("a100", "infiniband", 8, 25e9)),
        ("OCI BM.GPU4.8 A100-40GB, RoCE 16x100Gb/s", 2, 8, ("a100", "roce", 16, 12.5e9)),
        ("GCP a3-highgpu-8g", 2, 8, ("h100", "tcpx", 4, 25e9)),
        ("8x V100 nodes, 25 Gb/s TCP", 4, 8, ("v100", "tcp", 1, 3.125e9)),
        ("2 hosts, 8x A100-80GB, 10GbE, TCP sockets", 2, 8, ("a100", "tcp", 1, 1.25e9)),
        ("Lambda H100, 3200 Gb/s InfiniBand", 8, 8, ("h100", "infiniband", 8, 50e9)),
        ("1 A10G each, 25 Gbps TCP sockets", 2, 1, ("l40s", "tcp", 1, 3.125e9)),
        ("DGX-1 V100 4x EDR", 4, 8, ("v100", "infiniband", 4, 12.5e9)),
        ("Frontier 4x MI250X, Slingshot, RCCL", 8, 8, ("mi250x", "slingshot", 4, 25e9)),
        ("B200, InfiniBand NDR 400Gb/s, 12 HCAs a host", 4, 8, ("b200", "infiniband", 8, 50e9)),  # four are storage's
        ("DGX Spark, RoCE 1x200Gb/s", 2, 1, ("gb10", "roce", 1, 25e9)),
        ("A800 8x200G IB", 4, 8, ("a800", "infiniband", 8, 25e9)),
    ],
)
def test_text_to_system(text: str, hosts: int, gpus: int, expected: tuple[str, str, int, float]) -> None:
    system = guess(text, "", hosts, gpus)
    assert (system.gpu, system.network, system.num_nics, system.nic_rate_Bps) == expected


def test_environment_and_release_from_notes() -> None:
    system = guess("8x H100 node", "NCCL 2.21.5; NCCL_NVLS_ENABLE=0 (ring)", 1, 8)
    assert system.nccl == (2, 21)
    assert system.env == {"NCCL_NVLS_ENABLE": "0"}


def test_nothing_known_is_an_error() -> None:
    with pytest.raises(DescriptionError, match="names no GPU or machine"):
        guess("a cluster", "", 2, 8)


def test_what_ran_is_read_from_the_text() -> None:
    assert guess("8x A100, single process -g 8", "", 1, 8).gpus_per_process == 8
    assert guess("8x H200 node, PyTorch timing", "", 1, 8).call_us > 0
    assert guess("DGX H100, NDR, SHARP", "", 4, 8).collnet
    assert not guess("DGX H100, NDR, no SHARP", "", 4, 8).collnet
    assert guess("GCP a3-highgpu-8g", "", 2, 8).env == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


def test_the_release_is_the_usual_one_of_its_time() -> None:
    assert guess("8x A100 node", "", 1, 8).nccl == (2, 18)
    system = guess("8x B200 node", "", 1, 8)
    assert system.nccl == (2, 27)
    assert "NCCL release not said: 2.27" in system.assumed


def test_cards_on_pcie_have_no_nvlink_unless_bridged() -> None:
    assert guess("4x A100 PCIe 40GB", "", 1, 4).nvlink_GBps == 0
    assert guess("8x L40S", "", 1, 8).nvlink_GBps == 0
    assert guess("2x H100 NVL (PCIe, NVLink bridge)", "", 1, 2).nvlink_GBps > 200
    # A remark on PCIe settings says nothing of the cards; boards with a switch have NVLink whatever their slots are.
    assert guess("A100-80GB 2x8, HDR 4x200Gb/s", "after PCIe settings were mended", 2, 8).nvlink_GBps > 200
    assert guess("HGX H100 (PCIe Gen5), NDR 8x400Gb/s", "", 2, 8).nvlink_GBps > 200


@pytest.mark.parametrize(
    ("text", "notes", "peers"),
    [
        ("RTX 4090, 8 per node, PCIe 4.0", "", False),
        ("8x GeForce RTX 3090", "", False),
        ("RTX 4090, 4 per node, peer access enabled by a patched driver", "", True),
        ("RTX 5090, 8 per node", "NCCL_P2P_LEVEL=SYS", True),
        ("8x L40S", "", True),
        ("8x L40S", "NCCL_P2P_DISABLE=1", False),
        ("8x RTX A6000", "", True),
        ("8x RTX A6000, no peer access", "", False),
        ("8x L40S", "P2P disabled", False),
    ],
)
def test_geforce_cards_reach_their_peers_through_host_memory(text: str, notes: str, peers: bool) -> None:
    assert guess(text, notes, 1, 8).peer_access is peers


@pytest.mark.parametrize(
    ("text", "gpus", "lanes", "sharing"),
    [
        ("2x RTX 2080 Ti, PCIe 3.0 x16 switch, no peer access", 2, 12e9, 2),
        ("RTX 2080 Ti, 8 per node", 8, 12e9, 1),
        ("RTX 4090, 4 per node, PCIe, one switch", 4, 24e9, 4),
        ("RTX 4090, 8 per node, PCIe 3.0 switches", 8, 12e9, 1),
        ("RTX 4090, 4 per node, PCIe 4.0 switch, peer access enabled by a patched driver", 4, 24e9, 1),
        ("RTX 5090, 8 per node, PCIe Gen5", 8, 48e9, 1),
    ],
)
def test_cards_have_the_slots_that_are_stated_and_share_a_switch_on_the_way_to_memory(
    text: str, gpus: int, lanes: float, sharing: int
) -> None:
    system = guess(text, "", 1, gpus)
    assert (system.pcie_GBps * 1e9, system.uplink_cards) == (lanes, sharing)


@pytest.mark.parametrize(
    ("text", "gpus", "GBps"),
    [
        ("2 of 8 A40, NVLink bridge (4 links)", 2, 48.0),
        ("2x RTX A6000 with NVLink bridge", 2, 48.0),
        ("2x RTX 3090, NVLink bridge", 2, 48.0),
        ("2x RTX 2080 Ti, NVLink bridge (2 links)", 2, 0.0),
        ("8x RTX A6000, NVLink bridges in pairs", 8, 0.0),
    ],
)
def test_a_bridge_between_two_cards_is_counted_as_nccl_does(text: str, gpus: int, GBps: float) -> None:
    assert guess(text, "", 1, gpus).nvlink_GBps == GBps


@pytest.mark.parametrize("text", ["DGX A100: 4 of 8 A100 NVSwitch", "8x H20 node NVLink4", "8x H100"])
def test_nvlink_is_not_used_where_peer_access_is_switched_off(text: str) -> None:
    linked, apart = guess(text, "", 1, 4), guess(text, "NCCL_P2P_DISABLE=1", 1, 4)
    assert linked.nvlink_GBps > 100 and linked.peer_access
    assert (apart.nvlink_GBps, apart.nvswitch, apart.peer_access) == (0.0, False, False)


def test_sixteen_interfaces_of_efa_are_not_eight() -> None:
    system = guess("2x p6-b300.48xlarge (B300), EFA v4 16x400Gb/s", "", 2, 8)
    assert (system.num_nics * system.nic_rate_Bps, system.network) == (8 * 100e9, "efa-v3")


@pytest.mark.parametrize(
    ("text", "gpus", "hosts"),
    [("4 nodes of 8x H100", 32, 4), ("16x8 H100, 8x400Gb/s", 128, 16), ("DGX A100", 24, 3), ("8x H100 node", 8, 1)],
)
def test_hosts_of_a_row_that_does_not_say(text: str, gpus: int, hosts: int) -> None:
    assert hosts_in(text, "", gpus) == hosts


@pytest.mark.parametrize(("where", "islands"), [("of one rack", 1), ("in different NVLink domains", 2)])
def test_hosts_of_different_racks_do_not_share_nvlink(where: str, islands: int) -> None:
    assert guess(f"GB300 4 a host {where}, RoCE 8x400Gb/s", "", 2, 4).num_islands == islands


def test_adapters_of_a_generation_are_counted_and_partitions_are_domains() -> None:
    v100 = guess("4x V100-SXM2-16GB per node (NV2), 2x InfiniBand EDR", "", 2, 4)
    assert (v100.num_nics, v100.nic_rate_Bps) == (2, 12.5e9)
    rack = guess("GB200 NVL72, 3 NVL8 partitions on different racks, InfiniBand", "NCCL 2.27.3", 6, 4)
    assert (rack.num_islands, rack.ranks_per_island) == (3, 8)
    assert guess("GB200 NVL72, 3 NVL4 partitions on different racks, InfiniBand", "", 3, 4).num_islands == 3


def test_gpus_that_may_use_nics_alone_are_hosts_of_their_own() -> None:
    text, off = "RTX 6000D, 8 per node, PCIe, 8x ConnectX-8 InfiniBand", "NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1"
    alone = guess(text, off, 2, 8)
    assert (alone.num_hosts, alone.gpus_per_host, alone.num_nics, alone.num_ranks) == (16, 1, 1, 16)
    assert guess(text, "NCCL_P2P_DISABLE=1", 2, 8).num_hosts == 2
