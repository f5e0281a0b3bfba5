"""Reach: what oversubscription, scattering and long links leave of a rank's network."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from syncline.fabric import load
from syncline.planning.compare import balanced, fabric_with
from syncline.sim.reach import fabric_reach
from syncline.sim.step.machine import machine_from_fabric, reach_of
from syncline.sim.step.network import long_s, out_Bps, scattered_Bps, stage_line_Bps
from syncline.sim.step.reach import Reach


def rates(reach: Reach, tp: int = 1, pp: int = 1, dp: int = 1, cp: int = 1, ep: int = 1) -> dict[str, float]:
    """Return what a ring of replicas, a rank of an all-to-all and a rank between stages get of the network."""
    sizes = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "nic_Bps": reach.nic_Bps, "domain": reach.domain}
    layout: Any = SimpleNamespace(**{n: np.asarray(float(v)) for n, v in (sizes | reach.columns()).items()})
    return {
        "ring": float(out_Bps(layout, layout.dp * layout.cp, layout.tp)),
        "pairs": float(scattered_Bps(layout, layout.ep, np.ones(()))),
        "stage": float(stage_line_Bps(layout)),
        "long": float(long_s(layout, layout.dp * layout.cp, layout.tp)),
    }


THIN = Reach(50e9, 5e-6, 8, rack_gpus=128, rack_Bps=1600e9, num_gpus=512)  # a quarter of 128 ports of 50 GB/s


def test_a_full_fabric_gives_every_rank_its_port() -> None:
    reach = reach_of(load("h100-64-rail"))
    assert rates(reach, tp=8, dp=64)["ring"] == reach.nic_Bps == 50e9
    assert rates(reach, dp=512)["ring"] == 400e9, "eight members of a host carry one ring together"


def test_packed_rings_share_the_way_out_of_a_rack() -> None:
    assert rates(THIN, tp=8, dp=64)["ring"] == 50e9, "8 rings share 1600 GB/s, but have one port a host each"
    assert rates(THIN, tp=64, dp=8)["ring"] == 25e9, "64 rings share it"
    assert rates(THIN, tp=8, dp=8)["ring"] == 50e9, "inside a rack nothing is shared"
    one_uplink = replace(THIN, rack_Bps=12.5e9)
    assert rates(one_uplink, dp=512)["ring"] == 12.5e9, "one ring, however many members: once multiplied by them"


def test_scattered_ranks_have_only_their_share() -> None:
    reach = replace(THIN, placement="scattered")
    assert rates(reach, tp=8, dp=64)["ring"] == 12.5e9
    assert rates(reach, tp=8, dp=8)["ring"] == 50e9


def test_spread_hosts_have_the_uplinks_of_all_racks() -> None:
    reach = replace(THIN, placement="spread")
    assert rates(reach, tp=8, dp=64)["ring"] == 12.5e9, "the whole fabric: everyone's share"
    assert rates(reach, tp=8, dp=16)["ring"] == 50e9, "a quarter of it: four shares"
    assert rates(reach, tp=8, dp=1)["ring"] == 50e9, "inside a host nothing is shared"
    # Experts over two racks: packed has the uplinks of two racks, spread those of four.
    assert rates(THIN, dp=256, ep=256)["pairs"] < rates(reach, dp=256, ep=256)["pairs"] == 25e9


def test_only_placements_that_differ_are_tried() -> None:
    assert reach_of(load("h100-64-rail")).placements(512) == ("packed",)
    assert reach_of(load("two-sites-wan")).placements(512) == ("packed", "stages")
    assert reach_of(load("two-sites-wan")).placements(256) == ("packed",)
    assert THIN.placements(256) == ("packed", "spread")
    assert THIN.placements(512) == ("packed",)


def test_stages_on_two_sites_keep_rings_inside() -> None:
    reach = reach_of(load("two-sites-wan"), placement="stages")
    found = rates(reach, tp=8, pp=4, dp=16)
    assert found["ring"] == 50e9 and found["long"] == 0
    assert found["stage"] == pytest.approx(100e9 / 128), "all 128 ranks of a stage share the lines"
    assert rates(reach, tp=8, dp=64)["ring"] < 50e9, "without a pipeline replicas are split all the same"


def test_a_pipeline_without_replicas_crosses_the_lines() -> None:
    reach = reach_of(load("two-sites-wan"))
    assert rates(reach, tp=64, pp=8)["stage"] == pytest.approx(100e9 / 64)
    assert np.isinf(rates(reach, tp=64, pp=4)["stage"]), "one site is enough"
    assert np.isinf(rates(reach, tp=8, pp=4, dp=16)["stage"]), "replicas are what is split"


@pytest.mark.parametrize("preset", ["two-sites-wan", "h100-64-rail", "frontier", "llama3-24k-roce"])
def test_columns_are_what_the_fabric_has(preset: str) -> None:
    fabric = load(preset)
    reach, found = reach_of(fabric), fabric_reach(fabric)
    dies = max(machine_from_fabric(fabric).gpu.num_dies, 1)
    for cells in found.outer:
        name = {"switch": "rack", "group": "pod"}.get(cells.name, cells.name)
        ring_Bps = found.ring_Bps(cells)  # all that leaves a cell; of a dragonfly's, what a ring over them has
        worst = int(np.argmin(ring_Bps / cells.gpus))
        assert preset == "frontier" or ring_Bps[worst] == cells.even_Bps[np.argmin(cells.even_Bps / cells.gpus)]
        assert getattr(reach, f"{name}_gpus") == cells.gpus[worst] * dies
        rate = getattr(reach, f"{name}_Bps")
        assert rate == ring_Bps[worst] or np.isinf(rate)


def test_experts_spread_over_racks_cross_all_the_time() -> None:
    reach = Reach(50e9, 5e-6, 8, rack_gpus=64, rack_Bps=64 * 12.5e9)
    assert rates(reach, dp=512, ep=64)["pairs"] == 50e9
    assert 12.5e9 < rates(reach, dp=512, ep=256)["pairs"] < 20e9


def test_rings_between_sites_share_the_lines() -> None:
    reach = reach_of(load("two-sites-wan"))
    assert reach.site_Bps == pytest.approx(100e9)
    assert reach.site_gpus == 256
    assert not reach.oversubscribed
    assert rates(reach, dp=512)["ring"] == pytest.approx(100e9), "one ring has the lines alone"
    assert rates(reach, tp=8, pp=4, dp=16)["ring"] == pytest.approx(100e9 / 32)
    assert rates(reach, tp=8, dp=32)["ring"] == 50e9, "one site is enough"
    assert rates(reach, dp=512)["long"] == pytest.approx(6e-3)


def test_oversubscription_is_read_from_the_fabric() -> None:
    full = reach_of(fabric_with("dgx-h100", "NDR", "fat-tree", 64))
    thin = reach_of(fabric_with("dgx-h100", "NDR", "fat-tree 4:1", 64))
    assert not full.oversubscribed
    assert thin.rack_Bps < 0.4 * thin.rack_gpus * thin.nic_Bps


@pytest.mark.parametrize(("count", "shape"), [(64, (4, 4, 4)), (48, (3, 4, 4)), (7, (1, 1, 7)), (1, (1, 1, 1))])
def test_a_torus_is_as_even_as_it_can_be(count: int, shape: tuple[int, ...]) -> None:
    assert balanced(count, 3) == shape


def test_collisions_count_beyond_a_rack() -> None:
    reach = Reach(50e9, 5e-6, 8, rack_gpus=128, hashed_share=0.25)
    assert rates(reach, tp=8, dp=16)["ring"] == 50e9
    assert rates(reach, tp=8, dp=32)["ring"] == 12.5e9
