"""Racks with thin uplinks and sites with long links: rings cross once, experts everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.fabric import build, load
from syncline.fabric.spec import ClusterSpec
from syncline.sim.step import machine_from_fabric, step
from syncline.sim.step.reach import reached
from syncline.workload.parallel import Parallel
from syncline.workload.read_job import load_job


def cluster(over: str):
    network = {"topology": "leaf-spine", "link": "NDR", "oversubscription": over}
    return build(ClusterSpec.model_validate({"hosts": 64, "host": "dgx-h100", "network": network}))


def test_a_ring_hardly_feels_thin_uplinks() -> None:
    thin, whole = cluster("4:1"), cluster("1:1")
    job: dict[str, Any] = {
        "model": "llama3-8b",
        "parallel": {"zero": "fsdp"},
        "batch": {"global": 512, "sequence": 4096},
    }
    slow, fast = (step(fabric, load_job(job)).step_time_s for fabric in (thin, whole))
    assert slow == pytest.approx(fast, rel=0.02)


def test_experts_beyond_a_rack_do() -> None:
    machine = machine_from_fabric(cluster("4:1"))
    assert machine.upper_Bps < machine.nic_Bps
    split = Parallel(ep=256, dp=512)
    assert reached(machine, cluster("4:1"), split).nic_Bps < machine.nic_Bps
    assert reached(machine, cluster("4:1"), Parallel(dp=8)).nic_Bps == machine.nic_Bps


def test_rings_share_the_long_links_between_sites() -> None:
    fabric = load("two-sites-wan")
    machine = machine_from_fabric(fabric)
    across = reached(machine, fabric, Parallel(tp=8, dp=64))
    # Two lines of 400 Gb/s, eight rings (one for each tensor-parallel rank).
    assert across.nic_Bps == pytest.approx(2 * 50e9 / 8, rel=0.01)
    assert across.hop_s > 1e-3
    inside = reached(machine, fabric, Parallel(tp=8, dp=32))
    assert inside.nic_Bps == machine.nic_Bps == pytest.approx(50e9)
