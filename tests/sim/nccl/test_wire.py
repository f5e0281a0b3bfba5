from __future__ import annotations

import pytest

from syncline.fabric import ClusterSpec, Fabric, build
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.predict import predict
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.nccl.wire import inside_share, network_share, wires


def cluster(hosts: int) -> Fabric:
    spec = {"hosts": hosts, "host": "dgx-h100"} | ({"network": "rail-optimized NDR"} if hosts > 1 else {})
    return build(ClusterSpec.model_validate(spec))


def system(hosts: int) -> NcclSystem:
    return NcclSystem(gpu="h100", num_hosts=hosts, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9)


def test_a_ring_sends_its_share_once_across_each_host() -> None:
    # The README of the published rows: wire rate per accelerator = busbw (k-1)/(n-1) holds for one NIC path per host;
    # with n ranks each host boundary carries 2(n-1)/n of the buffer, over all its NICs together.
    assert network_share(system(4), "all_reduce", "Ring") == pytest.approx(2 * 31 / 32)
    assert network_share(system(4), "all_gather", "Ring") == pytest.approx(31 / 32)


def test_a_tree_on_two_hosts_sends_half_of_what_more_hosts_send() -> None:
    assert network_share(system(2), "all_reduce", "Tree") == 1
    assert network_share(system(3), "all_reduce", "NVLSTree") == 2


def test_alltoall_sends_what_belongs_to_other_hosts() -> None:
    assert network_share(system(4), "all_to_all", "P2P") == pytest.approx(8 * 24 / 32)
    assert inside_share(system(4), "all_to_all", "P2P") == pytest.approx(7 / 32)


def test_nvls_sends_the_buffer_once_and_a_share_more() -> None:
    assert inside_share(system(1), "all_reduce", "NVLS") == pytest.approx(1 + 1 / 8)
    assert inside_share(system(1), "all_reduce", "Ring") == pytest.approx(2 * 7 / 8)


@pytest.mark.parametrize("hosts", [1, 2, 8, 64])
def test_no_link_is_ever_faster_than_its_line(hosts: int) -> None:
    fabric = cluster(hosts)
    sizes = [float(2**k) for k in range(10, 34)]
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        found = wires(predict(from_fabric(fabric), op, sizes), fabric)
        assert all(0 < wire.utilisation <= 1 for wire in found), (op, max(w.utilisation for w in found))
        assert found[-1].utilisation > 0.5
        assert found[-1].link in {fabric.link_name(i) for i in range(len(fabric.links))}


def test_gpus_without_nvlink_name_pcie() -> None:
    host = {"gpu": "L40S", "gpus": 8, "nics": 2, "nic": "ConnectX-6", "link": "HDR"}
    fabric = build(ClusterSpec.model_validate({"hosts": 1, "host": host}))
    (wire,) = wires(predict(from_fabric(fabric), "all_reduce", [float(2**26)]), fabric)
    assert wire.link == "host-00/gpu-0 -> host-00/pcie-0" and 0.5 < wire.utilisation <= 1


def test_the_failed_or_slow_port_is_named() -> None:
    """Once a failed host-05/nic-2 was answered with host-00/nic-0."""
    for fault, words in (
        ({"device": "host-05/nic-2"}, "host-05/nic-2 -> leaf-02 (failed)"),
        ({"device": "host-05/nic-2", "rate": 0.5}, "host-05/nic-2 -> leaf-02"),
    ):
        described = {"hosts": 8, "host": "dgx-h100", "network": "rail-optimized NDR", "faults": [fault]}
        fabric = build(ClusterSpec.model_validate(described))
        (wire,) = wires(predict(from_fabric(fabric), "all_reduce", [float(2**30)]), fabric)
        assert wire.link == words
