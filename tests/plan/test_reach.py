"""Reach: what oversubscription, scattering and long links leave of a rank's network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.fabric import load
from syncline.plan.compare import balanced, fabric_with
from syncline.plan.space import Rows
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.reach import Reach, reach_of, reached
from syncline.workload.parallel import Parallel


def row(tp: int = 1, pp: int = 1, dp: int = 1, cp: int = 1, ep: int = 1) -> Rows:
    values = (tp, pp, dp, cp, ep, 1, 1, 1)
    return Rows(*(np.array([value], dtype=np.int64) for value in values))


def nic(reach: Reach, rows: Rows) -> float:
    return float(reach.network(rows)[0].reshape(-1)[0])


def test_a_full_fabric_gives_every_rank_its_port() -> None:
    reach = reach_of(load("h100-64-rail"))
    assert nic(reach, row(tp=8, dp=64)) == reach.nic_Bps == 50e9


def test_packed_rings_leave_a_rack_once() -> None:
    reach = Reach(50e9, 12.5e9, 5e-6, 8, rack_gpus=128)
    assert nic(reach, row(tp=8, dp=64)) == 50e9, "16 members of a rack share its way out"
    assert nic(reach, row(tp=64, dp=8)) == 25e9, "2 members do"
    assert nic(reach, row(tp=8, dp=8)) == 50e9, "inside a rack nothing is shared"


def test_scattered_ranks_have_only_their_share() -> None:
    reach = Reach(50e9, 12.5e9, 5e-6, 8, rack_gpus=128, placement="scattered")
    assert nic(reach, row(tp=8, dp=64)) == 12.5e9
    assert nic(reach, row(tp=8, dp=8)) == 50e9


def test_spread_hosts_have_the_uplinks_of_all_racks() -> None:
    reach = Reach(50e9, 12.5e9, 5e-6, 8, rack_gpus=128, placement="spread", num_gpus=512)
    assert nic(reach, row(tp=8, dp=64)) == 12.5e9, "the whole fabric: everyone's share"
    assert nic(reach, row(tp=8, dp=16)) == 50e9, "a quarter of it: four shares"
    assert nic(reach, row(tp=8, dp=1)) == 50e9, "inside a host nothing is shared"
    # Experts over two racks: packed has the uplinks of two racks, spread those of four.
    packed = Reach(50e9, 12.5e9, 5e-6, 8, rack_gpus=128, num_gpus=512)
    assert nic(packed, row(dp=256, ep=256)) < nic(reach, row(dp=256, ep=256)) == 25e9


def test_only_placements_that_differ_are_tried() -> None:
    assert reach_of(load("h100-64-rail")).placements(512) == ("packed",)
    assert reach_of(load("two-sites-wan")).placements(512) == ("packed", "stages")
    assert reach_of(load("two-sites-wan")).placements(256) == ("packed",)
    thin = Reach(50e9, 12.5e9, 5e-6, 8, rack_gpus=128, num_gpus=512)
    assert thin.placements(256) == ("packed", "spread")
    assert thin.placements(512) == ("packed",)


def test_stages_on_two_sites_keep_rings_inside() -> None:
    reach = reach_of(load("two-sites-wan"), placement="stages")
    found = reach.network(row(tp=8, pp=4, dp=16))
    assert found.nic_Bps == 50e9 and found.hop_s == reach.hop_s and found.long_s == 0
    assert float(found.stage_Bps[0]) == pytest.approx(100e9 / 128), "all 128 ranks of a stage share the lines"
    assert float(found.stage_wait_s[0]) == pytest.approx(2 * reach.wan_latency_s * 2 / 4)
    whole = reach.network(row(tp=8, dp=64))
    assert whole.nic_Bps < 50e9, "without a pipeline replicas are split all the same"


@pytest.mark.parametrize("preset", ["two-sites-wan", "h100-64-rail", "frontier"])
@pytest.mark.parametrize("placement", ["packed", "stages", "scattered"])
def test_one_layout_gets_what_columns_give(preset: str, placement: Any) -> None:
    fabric = load(preset)
    machine = machine_from_fabric(fabric)
    layouts = [(8, 4, 16, 1, 1), (1, 1, 512, 1, 64), (2, 2, 16, 2, 1)]
    reach = reach_of(fabric, machine, placement)
    values = [*(np.array(c, dtype=np.int64) for c in zip(*layouts, strict=True)), *(np.ones(3, np.int64),) * 3]
    columns = Rows(*values)
    many = [np.broadcast_to(column, 3) for column in reach.network(columns)]
    for i, (tp, pp, dp, cp, ep) in enumerate(layouts):
        one = reached(machine, fabric, Parallel(tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, placement=placement))
        assert (one.nic_Bps, one.hop_s, one.stage_Bps) == (many[0][i], many[1][i], many[3][i])


def test_experts_spread_over_racks_cross_all_the_time() -> None:
    reach = Reach(50e9, 12.5e9, 5e-6, 8, rack_gpus=64)
    assert nic(reach, row(dp=512, ep=64)) == 50e9
    assert 12.5e9 < nic(reach, row(dp=512, ep=256)) < 20e9


def test_rings_between_sites_share_the_lines() -> None:
    reach = reach_of(load("two-sites-wan"))
    assert reach.wan_Bps == pytest.approx(100e9)
    assert reach.site_gpus == 256
    assert reach.upper_Bps == reach.nic_Bps == 50e9
    assert nic(reach, row(dp=512)) == pytest.approx(100e9 / 8), "one ring, carried by the 8 ranks of a host"
    assert nic(reach, row(tp=8, pp=4, dp=16)) == pytest.approx(100e9 / 32)
    assert nic(reach, row(tp=8, dp=32)) == 50e9, "one site is enough"
    hop = reach.network(row(dp=512))[1]
    assert float(hop.reshape(-1)[0]) > 1e-3, "6 ms twice, spread over the doublings"


def test_oversubscription_is_read_from_the_fabric() -> None:
    full = reach_of(fabric_with("dgx-h100", "NDR", "fat-tree", 64))
    thin = reach_of(fabric_with("dgx-h100", "NDR", "fat-tree 4:1", 64))
    assert full.upper_Bps == full.nic_Bps
    assert thin.upper_Bps < 0.4 * thin.nic_Bps


@pytest.mark.parametrize(("count", "shape"), [(64, (4, 4, 4)), (48, (3, 4, 4)), (7, (1, 1, 7)), (1, (1, 1, 1))])
def test_a_torus_is_as_even_as_it_can_be(count: int, shape: tuple[int, ...]) -> None:
    assert balanced(count, 3) == shape


def test_collisions_count_beyond_a_rack() -> None:
    reach = Reach(50e9, 50e9, 5e-6, 8, rack_gpus=128, hashed_share=0.25)
    assert nic(reach, row(tp=8, dp=16)) == 50e9
    assert nic(reach, row(tp=8, dp=32)) == 12.5e9
