"""Collisions: rails keep rings apart, hashing on a fat-tree does not, and a comparison says so."""

from __future__ import annotations

import pytest

from syncline.planning.compare import compare_fabrics, fabric_with, hashed_share
from syncline.sim.step.machine import reach_of
from syncline.workload.read_job import load_job


@pytest.mark.parametrize("network", ["rail-optimized", "rail-only", "rail-optimized 4:1"])
def test_rings_on_rails_never_collide(network: str) -> None:
    fabric = fabric_with("dgx-h100", "NDR", network, 64)
    assert hashed_share(fabric, reach_of(fabric)) == 1.0


def test_hashing_on_a_fat_tree_halves_the_slowest_flow_or_worse() -> None:
    fabric = fabric_with("dgx-h100", "NDR", "fat-tree", 64)
    assert 0.2 < hashed_share(fabric, reach_of(fabric)) <= 0.5


def test_one_host_has_nothing_to_collide() -> None:
    fabric = fabric_with("dgx-h100", "NDR", "fat-tree", 1)
    assert hashed_share(fabric, reach_of(fabric)) == 1.0


def test_a_comparison_tells_rails_from_a_fat_tree() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 512, "sequence": 4096}})
    found = compare_fabrics(job, host="dgx-h100", link="NDR", num_gpus=512, fabrics=("rail-optimized", "fat-tree"))
    rail, tree = (next(row for row in found.fabrics if row.name == name) for name in ("rail-optimized", "fat-tree"))
    assert rail.hashed_step_time_s == rail.step_time_s == tree.step_time_s
    assert tree.hashed_step_time_s > 1.02 * tree.step_time_s
