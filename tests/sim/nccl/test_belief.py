from __future__ import annotations

import numpy as np
import pytest

from syncline.sim.nccl.belief import believe, table
from syncline.sim.nccl.choose import choose
from syncline.sim.nccl.system import NcclSystem


def h200(gpus: int = 8, **more: object) -> NcclSystem:
    return NcclSystem(gpu="h200", num_hosts=1, gpus_per_host=gpus, nccl=(2, 27), **more)  # type: ignore[arg-type]


def test_hand_computed_cells_of_one_h200_host() -> None:
    cells = believe(h200(), "all_reduce")
    ring_ll = cells["Ring", "LL"]
    assert ring_ll.latency_us == pytest.approx(6.6 + 14 * 0.6)
    assert ring_ll.algbw_GBps == pytest.approx(141.0 * 8 / 14)  # capped by llMaxBw of Hopper, one host
    nvls = cells["NVLS", "Simple"]
    assert nvls.latency_us == 25.0
    assert nvls.algbw_GBps == pytest.approx(8 * 50 * 0.85 * 7 / 8 * 2 * 8 / 14)


def test_h200_switches_from_ring_ll_to_nvls_between_1_and_2_mib() -> None:
    pairs, _ = choose(h200(), "all_reduce", np.array([2.0**15, 2.0**20, 2.0**21, 2.0**30]))
    assert pairs == [("Ring", "LL"), ("Ring", "LL"), ("NVLS", "Simple"), ("NVLS", "Simple")]


@pytest.mark.parametrize(("gpus", "algorithm"), [(4, "Ring"), (5, "NVLS"), (8, "NVLS")])
def test_h200_keeps_ring_below_five_gpus(gpus: int, algorithm: str) -> None:
    assert choose(h200(gpus), "all_reduce", np.array([2.0**33]))[0][0][0] == algorithm


@pytest.mark.parametrize(("gpus", "algorithm"), [(5, "Ring"), (6, "NVLS")])
def test_b200_keeps_ring_below_six_gpus(gpus: int, algorithm: str) -> None:
    system = NcclSystem(gpu="b200", num_hosts=1, gpus_per_host=gpus, nccl=(2, 27))
    assert choose(system, "all_reduce", np.array([2.0**33]))[0][0][0] == algorithm


def test_plugin_latency_counts_twice_for_simple() -> None:
    base = NcclSystem(gpu="h100", num_hosts=4, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, reported_latency_s=0)
    slow = NcclSystem(gpu="h100", num_hosts=4, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, reported_latency_s=75e-6)
    for protocol, times in (("LL", 1), ("Simple", 2)):
        gap = (
            believe(slow, "all_reduce")["Tree", protocol].latency_us
            - believe(base, "all_reduce")["Tree", protocol].latency_us
        )
        assert gap == pytest.approx(2 * 2 * 75 * times)  # up and down, log2(4) = 2 hops


def test_tables_by_release() -> None:
    assert table((2, 18))["ring_ll_share"] == 0.25
    assert table((2, 20))["nvlink_us"]["Tree"][2] == 28
    assert table((2, 27))["nvls_efficiency"][3] == 0.85
    assert table((2, 29))["nvls_efficiency"][3] == 0.74
    assert table((3, 5)) == table((2, 30))
    assert table((2, 4)) == table((2, 18))  # older than any table: the oldest


def test_old_releases_gather_with_rings_only() -> None:
    old = NcclSystem(gpu="h100", num_hosts=1, gpus_per_host=8, nccl=(2, 18))
    assert {a for a, _ in believe(old, "all_gather")} == {"Ring"}
    assert "NVLS" in {a for a, _ in believe(h200(), "all_gather")}
