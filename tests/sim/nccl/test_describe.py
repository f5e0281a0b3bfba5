from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.fabric import build
from syncline.fabric.catalog import load_catalog
from syncline.fabric.load import load
from syncline.fabric.spec import ClusterSpec
from syncline.program import place
from syncline.sim.nccl.describe import _tuner, from_fabric, from_placement, from_spec
from syncline.sim.nccl.system import NcclSystem


def described(host: str, network: str, hosts: int, software: Any = None, gpus: int = 0) -> NcclSystem:
    return from_spec(
        ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network}), hosts, gpus, software
    )


def described_by(spec: ClusterSpec, software: Any) -> NcclSystem:
    return from_spec(spec, 2, 8, software)


def test_three_lines_are_enough() -> None:
    system = from_fabric(load("h100-64-rail"), num_hosts=8, software={"nccl": "2.27.5"})
    assert (system.gpu, system.num_ranks, system.num_nics, system.nic_rate_Bps) == ("h100", 64, 8, 50e9)
    assert system.nvlink_GBps == pytest.approx(370.8)
    assert (system.network, system.pcie_GBps, system.nccl) == ("infiniband", 48.0, (2, 27))
    assert system.has_nvswitch
    assert system.assumed == ()


def test_what_is_not_said_is_assumed_and_said() -> None:
    assert described("dgx-h100", "rail-optimized NDR", 4).assumed == ("NCCL release not said: 2.27",)
    odd = described("dgx-h100", "rail-optimized NDR", 4, {"nccl": "2.27", "network": "quantum-foam"})
    assert odd.network == "unknown"
    assert "quantum-foam" in odd.assumed[0]


def test_four_efa_devices_of_a_gpu_are_one_nic() -> None:
    system = described("p5", "fat-tree EFAv2", 2, {"nccl": "2.21"})
    assert (system.num_nics, system.nic_rate_Bps, system.nic_GBps) == (8, 50e9, 50.0)
    assert (system.network, system.tuner, system.reported_us) == ("efa-v2", "aws-p5", 75.0)


def test_slingshot_without_its_plugin_is_tcp() -> None:
    assert described("polaris", "dragonfly Slingshot-11", 8, {"nccl": "2.18", "plugin": "none"}).network == "tcp"
    tuned = described("polaris", "dragonfly Slingshot-11", 8, {"nccl": "2.18", "plugin": "aws-ofi-nccl"})
    assert (tuned.network, tuned.path) == ("slingshot", "PHB")
    assert tuned.nic_GBps == pytest.approx(19.2)
    env = {"FI_CXI_RX_MATCH_MODE": "software", "FI_CXI_RDZV_PROTO": "alt_read"}
    assert (
        described("polaris", "dragonfly Slingshot-11", 8, {"nccl": "2.18", "env": env}).network
        == "slingshot-rendezvous"
    )
    off = {"nccl": "2.21", "env": {"NCCL_IB_DISABLE": "1"}}
    assert described("dgx-h100", "rail-optimized NDR", 2, off).network == "tcp"


def test_racks_of_nvlink_are_islands() -> None:
    system = described("gb200-nvl72", "rail-optimized NDR", 36, {"nccl": "2.26"})
    assert (system.num_islands, system.ranks_per_island, system.num_ranks) == (2, 72, 144)
    assert described("gb200-nvl72", "rail-optimized NDR", 32, {"nccl": "2.26"}).ranks_per_island == 64
    apart = described("gb200-nvl72", "rail-optimized NDR", 36, {"nccl": "2.26", "env": {"NCCL_MNNVL_ENABLE": "0"}})
    assert (apart.num_islands, apart.ranks_per_island) == (36, 4)


def test_part_of_a_host_has_part_of_its_nics() -> None:
    system = described("dgx-h100", "rail-optimized NDR", 2, {"nccl": "2.21"}, gpus=2)
    assert (system.num_ranks, system.num_nics) == (4, 2)


def stands(ranks: int, name: str = "spread", **spec: object) -> NcclSystem:
    data = {"hosts": 8, "host": "dgx-h100", "network": "rail-optimized NDR", **spec}
    return from_placement(place(name, build(ClusterSpec.model_validate(data)), ranks))


@pytest.mark.parametrize(
    ("ranks", "name", "hosts", "gpus"),
    [(8, "spread", 8, 1), (16, "spread", 8, 2), (3, "spread", 3, 1), (4, "packed", 1, 4), (16, "packed", 2, 8),
     (64, "spread", 8, 8), (64, "rail-aware", 8, 8)],
)  # fmt: skip
def test_a_job_is_where_its_ranks_are(ranks: int, name: str, hosts: int, gpus: int) -> None:
    system = stands(ranks, name)
    assert (system.num_hosts, system.gpus_per_host) == (hosts, gpus)
    assert (system.num_nics, system.nic_rate_Bps) == (gpus, 50e9)


def test_gpus_that_share_nics_have_those_of_theirs_alone() -> None:
    """Eight GPUs on four NICs, two a NIC: the first four GPUs of each host have two of them."""
    shared = stands(32, host={"model": "dgx-h100", "nics": 4})
    assert (shared.gpus_per_host, shared.num_nics, shared.nic_rate_Bps) == (4, 2, 50e9)


def test_a_rack_of_nvlink_keeps_its_hosts_when_each_has_one_rank() -> None:
    """18 hosts of 4 GPUs are a rack of 72: 36 ranks on 36 hosts are two racks of 18 ranks each."""
    system = stands(36, hosts=36, host="gb200-nvl72")
    assert (system.num_islands, system.ranks_per_island, system.num_ranks) == (2, 18, 36)


def test_a_failed_port_counts_where_a_rank_uses_it() -> None:
    one = [{"device": "host-03/nic-1"}]
    assert stands(8, faults=one).nic_rate_Bps == 50e9
    assert stands(16, faults=one).nic_rate_Bps == 25e9  # both ranks of host-03 share nic-0


def test_one_rail_has_the_uplinks_of_its_own_leaves() -> None:
    """Two units of eight hosts at 4:1: two uplinks of 50 GB/s a leaf, for 8 of 15 messages of eight ranks."""
    thin = {"topology": "rail-optimized", "link": "NDR", "hosts_per_unit": 8, "oversubscription": "4:1"}
    one = stands(16, hosts=16, network=thin)
    assert one.pairs_cap_Bps == pytest.approx(2 * 50e9 / (8 * 8 / 15))
    assert stands(128, hosts=16, network=thin).pairs_cap_Bps == pytest.approx(8 * one.pairs_cap_Bps)


def test_one_rail_has_all_of_a_line_between_sites() -> None:
    """Spines and border serve all rails: one rank a site has the line of 50 GB/s, as fast as its NIC."""
    rows = [{"name": name, "hosts": 1, "host": "dgx-h100", "network": "rail-optimized NDR"} for name in "ab"]
    spec = ClusterSpec.model_validate({"sites": rows, "wan": {"rate": "400Gbps", "latency": "6ms"}})
    system = from_placement(place("spread", build(spec), 2))
    assert (system.num_nics, system.ring_cap_Bps, system.pairs_cap_Bps) == (1, float("inf"), float("inf"))


def test_uneven_ranks_have_the_nics_of_the_emptiest_host() -> None:
    """12 ranks on 8 hosts: two on four of them, one on the others, whose one NIC all rings go by."""
    system = stands(12)
    assert (system.num_hosts, system.num_ranks, system.ranks_per_island, system.num_nics) == (8, 12, 2, 1)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(DescriptionError, match='unknown key "ncl"'):
        described("dgx-h100", "rail-optimized NDR", 2, {"ncl": "2.21"})
    with pytest.raises(DescriptionError, match='cannot read NCCL release "new"'):
        described("dgx-h100", "rail-optimized NDR", 2, {"nccl": "new"})
    with pytest.raises(DescriptionError, match="TPU-v4 does not run NCCL"):
        described("tpu-v4-host", "fat-tree 100GbE", 1)


@pytest.mark.parametrize(
    ("written", "release"), [("2.27.5", (2, 27)), (2.3, (2, 30)), (2.18, (2, 18)), (22705, (2, 27)), (2804, (2, 8))]
)
def test_a_release_however_it_is_written(written: object, release: tuple[int, int]) -> None:
    spec = ClusterSpec.model_validate({"hosts": 2, "host": "dgx-h100", "network": "fat-tree NDR"})
    assert described_by(spec, {"nccl": written}).nccl == release


@pytest.mark.parametrize(
    ("host", "gpus", "nvlink_GBps"),
    [("dgx-1-v100", 8, 120), ("dgx-1-v100", 4, 80), ("dgx-1-v100", 2, 20), ("hgx-a100-4", 2, 80), ("dgx-a100", 2, 240)],
)
def test_a_mesh_has_fewer_links_between_fewer_gpus(host: str, gpus: int, nvlink_GBps: float) -> None:
    spec = ClusterSpec.model_validate({"hosts": 1, "host": host})
    assert from_spec(spec, 1, gpus).nvlink_GBps == pytest.approx(nvlink_GBps)


def test_software_that_makes_no_sense_is_an_error() -> None:
    spec = ClusterSpec.model_validate({"hosts": 2, "host": "dgx-h100", "network": "fat-tree NDR"})
    for software in ({"env": "fast"}, {"ranks_per_process": "many"}, {"nccl": "new"}):
        with pytest.raises(DescriptionError):
            described_by(spec, software)


def test_google_instances_have_the_settings_of_their_guide() -> None:
    spec = ClusterSpec.model_validate({"hosts": 2, "host": "a3-mega", "network": "fat-tree TCPXO-200"})
    system = from_spec(spec, 2, 8)
    assert (system.env["NCCL_PROTO"], system.tuner) == ("Simple,LL128", "gcp-a3-mega")
    assert from_spec(spec, 2, 8, {"env": {"NCCL_ALGO": "Ring"}}).env == {"NCCL_ALGO": "Ring"}


def test_a_tuner_comes_with_libfabric_on_efa_alone() -> None:
    link, gpu = load_catalog().link("EFAv2"), "h100"
    assert _tuner(link, gpu, "efa", {}, []) == "aws-p5"
    assert _tuner(link, gpu, "tcp", {}, []) == ""  # the same port, driven as an Ethernet card
    assert _tuner(None, gpu, "efa", {}, []) == ""
