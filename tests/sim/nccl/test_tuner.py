from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import SimulationError
from syncline.sim.nccl.choose import choose, inside
from syncline.sim.nccl.system import NcclSystem


def p5(hosts: int, tuner: str = "aws-p5") -> NcclSystem:
    return NcclSystem(
        gpu="h100", num_hosts=hosts, gpus_per_host=8, num_nics=8, nic_rate_Bps=50e9, network="efa-v2", cpu="amd",
        nccl=(2, 21), tuner=tuner,
    )  # fmt: skip


@pytest.mark.parametrize(("hosts", "last_tree_MB"), [(2, 31), (4, 37), (8, 117), (16, 301), (32, 301)])
def test_p5_tree_ends_where_the_plugin_says(hosts: int, last_tree_MB: int) -> None:
    below, above = choose(p5(hosts), "all_reduce", np.array([last_tree_MB * 1e6, last_tree_MB * 1e6 * 1.1]))[0]
    assert below == ("Tree", "LL128")
    assert above != ("Tree", "LL128")


def test_p5_large_sizes() -> None:
    assert choose(p5(2), "all_reduce", np.array([2.0**30]))[0] == [("NVLSTree", "Simple")]
    assert choose(p5(4), "all_reduce", np.array([2.0**33]))[0] == [("Ring", "Simple")]
    assert choose(p5(32), "all_reduce", np.array([2.0**32]))[0] == [("NVLSTree", "Simple")]


def test_newer_tables_leave_two_hosts_to_nccl() -> None:
    sizes = np.array([2.0**20, 2.0**30])
    assert choose(p5(2, "aws-p5en"), "all_reduce", sizes)[0] == choose(p5(2, ""), "all_reduce", sizes)[0]


def test_points_on_an_edge_are_inside() -> None:
    square = [[16.0, 4.0], [256.0, 4.0], [256.0, 64.0], [16.0, 64.0]]
    assert inside(square, 16, 16)
    assert inside(square, 64, 16)
    assert not inside(square, 8, 16)
    assert not inside(square, 64, 128)


def test_an_unknown_tuner_is_named() -> None:
    with pytest.raises(SimulationError, match='tuner "mine" is not known'):
        choose(p5(4, "mine"), "all_reduce", np.array([8.0]))
