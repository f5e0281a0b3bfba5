"""Steps and plans over sites of different sizes: the order of sites in the file changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.fabric import Fabric, load
from syncline.planning.answer import make_plan
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.executed.footprint import devices_of
from syncline.sim.step.machine import reach_of
from syncline.sim.step.step import step
from syncline.workload.parallel import Parallel
from syncline.workload.read_job import load_job


def sites(*hosts: int, rate: str = "400Gbps", latency: str = "6ms") -> Fabric:
    """Return sites of so many DGX H100, named s0, s1 and so on."""
    each = [{"name": f"s{i}", "hosts": n, "host": "dgx-h100", "network": "rail-optimized NDR"}
            for i, n in enumerate(hosts)]  # fmt: skip
    return load({"sites": each, "wan": {"rate": rate, "latency": latency}})


def job(batch: int, **split: Any) -> Any:
    sizes = {"global": batch, "micro": 1, "sequence": 4096}
    return load_job({"model": "llama3-8b", "parallel": {"tp": 8, **split}, "batch": sizes})


def hosts_of(fabric: Fabric, **split: Any) -> list[int]:
    """Return the host of the first rank of every tensor group, replica after replica, stage after stage."""
    parallel = Parallel.model_validate({"tp": 8, **split})
    devices = devices_of(fabric, parallel, reach_of(fabric, placement=parallel.placement))
    assert len(np.unique(devices)) == len(devices), "no GPU has two ranks"
    return [int(host) for host in fabric.devices.host[devices[::8]]]


@pytest.mark.parametrize(
    "hosts", [(4, 2), (2, 4), (8, 4), (4, 8), (12, 4), (5, 3), (3, 5), (6, 2), (4, 3), (2, 1), (4, 2, 2)]
)
def test_a_step_over_unequal_sites_is_executed_as_priced(hosts: tuple[int, ...]) -> None:
    fabric = sites(*hosts)
    found = step(fabric, job(8 * sum(hosts), zero="1"))
    took = execute(fabric, found).step_time_s
    assert took == pytest.approx(found.step_time_s, rel=0.03)
    assert found.step_time_s > found.floor_s > 0 and took > found.floor_s
    turned = step(sites(*reversed(hosts)), job(8 * sum(hosts), zero="1"))
    assert turned.step_time_s == pytest.approx(found.step_time_s, rel=1e-12)


def test_replicas_fill_the_largest_site_first() -> None:
    assert hosts_of(sites(4, 2), dp=6) == [0, 1, 2, 3, 4, 5]
    assert hosts_of(sites(2, 4), dp=6) == [0, 1, 2, 3, 4, 5]
    # Two stages: two replicas at the large site, one at the small one, none cut in two.
    assert hosts_of(sites(2, 4), dp=3, pp=2) == hosts_of(sites(4, 2), dp=3, pp=2)
    # Three and one of four replicas; with a host over at each site there is room for three only: seat after seat.
    assert hosts_of(sites(6, 2), dp=4, pp=2) == [0, 1, 2, 6, 3, 4, 5, 7]
    assert hosts_of(sites(5, 3), dp=4, pp=2) == list(range(8))
    # As many at each, where both have room.
    assert hosts_of(sites(3, 4), dp=6) == hosts_of(sites(4, 3), dp=6)


def test_whole_stages_are_at_a_site_where_they_fit() -> None:
    placed = {"placement": "stages"}
    assert hosts_of(sites(2, 4), dp=2, pp=3, **placed) == [0, 1, 2, 3, 4, 5], "two stages, and one"
    assert hosts_of(sites(4, 4), dp=4, pp=2, **placed) == list(range(8))
    assert hosts_of(sites(2, 4), dp=3, pp=2, **placed) == [0, 1, 4, 2, 3, 5], "three hosts a stage fit nowhere twice"


def test_a_job_that_fits_into_one_site_is_there() -> None:
    assert hosts_of(sites(1, 8), dp=8) == [0, 1, 2, 3, 4, 5, 6, 7]
    alone = step(load({"hosts": 8, "host": "dgx-h100", "network": "rail-optimized NDR"}), job(64, dp=8))
    assert step(sites(1, 8), job(64, dp=8)).step_time_s == pytest.approx(alone.step_time_s, rel=1e-9)


@pytest.mark.parametrize("hosts", [(8, 1), (8, 4), (4, 2)])
def test_a_plan_does_not_depend_on_the_order_of_sites(hosts: tuple[int, int]) -> None:
    asked = load_job({"model": "llama3-8b", "batch": {"global": 128, "sequence": 4096}})
    found = [make_plan(sites(*order), asked, with_actions=False, with_run=False)
             for order in (hosts, hosts[::-1])]  # fmt: skip
    assert found[0].best.decision == found[1].best.decision
    times = [each.best.predicted.step_time_s for each in found]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    if hosts == (8, 1):
        alone = load({"hosts": 8, "host": "dgx-h100", "network": "rail-optimized NDR"})
        one = make_plan(alone, asked, with_actions=False, with_run=False)
        assert times[0] == pytest.approx(one.best.predicted.step_time_s, rel=1e-9)
        assert [note.split(",")[0] for each in found for note in each.notes] == ["site s0 alone", "site s1 alone"]
