from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import ProgramError
from syncline.fabric import ClusterSpec, Fabric, build
from syncline.program import given, packed, place, rail_aware, spread


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    spec = {"hosts": 4, "host": "8 x H100", "network": "rail-optimized NDR"}
    return build(ClusterSpec.model_validate(spec))


def test_packed_fills_hosts_one_after_the_other(fabric: Fabric) -> None:
    assert packed(fabric, 12).host.tolist() == [0] * 8 + [1] * 4


def test_spread_goes_round_the_hosts(fabric: Fabric) -> None:
    placed = spread(fabric, 6)
    assert placed.host.tolist() == [0, 1, 2, 3, 0, 1]
    assert fabric.devices.local[placed.device].tolist() == [0, 0, 0, 0, 1, 1]


def test_rail_aware_neighbours_in_different_hosts_share_a_rail(fabric: Fabric) -> None:
    placed = rail_aware(fabric)
    assert sorted(placed.device.tolist()) == fabric.gpus.tolist()
    local = fabric.devices.local[placed.device]
    leaves = np.flatnonzero(np.diff(placed.host))
    assert len(leaves) == 3
    assert (local[leaves] == local[leaves + 1]).all()


def test_devices_can_be_given_by_name(fabric: Fabric) -> None:
    placed = given(fabric, ["host-03/gpu-1", "host-00/gpu-0"])
    assert placed.host.tolist() == [3, 0]


def test_what_cannot_be_placed_is_named(fabric: Fabric) -> None:
    with pytest.raises(ProgramError, match="33 ranks do not fit on cluster: it has 32 GPUs"):
        packed(fabric, 33)
    with pytest.raises(ProgramError, match="rank 0 is placed on host-00/nic-0, which is not a GPU"):
        given(fabric, ["host-00/nic-0"])
    with pytest.raises(
        ProgramError, match=f"rank 1 is placed on device 99999; cluster has {len(fabric.devices)} devices"
    ):
        given(fabric, [int(fabric.gpus[0]), 99999])
    with pytest.raises(ProgramError, match='no placement is called "random"'):
        place("random", fabric)
