from __future__ import annotations

from typing import Any

import pytest

from syncline.sim.nccl.graph import search
from syncline.sim.nccl.system import NcclSystem

IB: dict[str, Any] = {"num_nics": 8, "network": "infiniband"}


@pytest.mark.parametrize(
    ("gpu", "hosts", "rate", "channels", "speed"),
    [
        ("a100", 1, 0.0, 12, 20.0),  # public logs of DGX A100, one host
        ("a100", 4, 25e9, 8, 24.0),  # HDR behind PCIe Gen4: NCCL counts 24 GB/s
        ("h100", 1, 0.0, 12, 30.0),
        ("h100", 4, 50e9, 8, 45.0),  # 8 x 48 would pass NVLink's 370.8
        ("b200", 1, 0.0, 16, 45.0),
        ("b200", 4, 50e9, 8, 48.0),
    ],
)
def test_channels_of_known_boxes(gpu: str, hosts: int, rate: float, channels: int, speed: float) -> None:
    system = NcclSystem(gpu=gpu, num_hosts=hosts, gpus_per_host=8, nic_rate_Bps=rate, **IB)
    ring = search(system).ring
    assert (ring.num_channels, ring.intra_GBps) == (channels, speed)


def test_two_host_tree_is_raised_to_nvlink() -> None:
    graphs = search(NcclSystem(gpu="h100", num_hosts=2, gpus_per_host=8, nic_rate_Bps=50e9, **IB))
    assert graphs.tree.intra_GBps > graphs.ring.intra_GBps
    assert graphs.tree.inter_GBps == graphs.ring.inter_GBps


def test_nvls_needs_an_nvswitch() -> None:
    assert search(NcclSystem(gpu="h100", num_hosts=1, gpus_per_host=8)).nvls is not None
    assert search(NcclSystem(gpu="h100", num_hosts=1, gpus_per_host=8, nvswitch=False)).nvls is None
    assert search(NcclSystem(gpu="a100", num_hosts=1, gpus_per_host=8)).nvls is None


def test_slow_nic_still_gives_a_channel() -> None:
    ring = search(
        NcclSystem(gpu="h100", num_hosts=2, gpus_per_host=1, num_nics=1, nic_rate_Bps=0.05e9, network="tcp")
    ).ring
    assert ring.num_channels == 1
    assert 0 < ring.inter_GBps <= 0.05


def test_nvls_channels_between_hosts_share_what_the_rings_carry() -> None:
    """Eight heads divide the eight rings' 45 GB/s; inside one host the ring's rate is kept as it is."""
    across = search(NcclSystem(gpu="h100", num_hosts=4, gpus_per_host=4, nic_rate_Bps=50e9, **IB))
    assert across.nvls is not None and across.nvls.num_channels == 4
    assert across.nvls.inter_GBps * 4 == pytest.approx(across.ring.inter_GBps * across.ring.num_channels)
    assert across.ring.num_channels != 4
    alone = search(NcclSystem(gpu="h100", num_hosts=1, gpus_per_host=4))
    assert alone.nvls is not None and alone.nvls.inter_GBps == alone.ring.inter_GBps
