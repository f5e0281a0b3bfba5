"""Which tier carries what: shares of one rank's bytes, computed by hand for domains of eight."""

from __future__ import annotations

import pytest

from syncline.fabric.catalog import load_catalog
from syncline.sim.step.machine import machine_of
from syncline.sim.step.tiers import NETWORK, by_tier
from syncline.workload.grid import Grid
from syncline.workload.volumes import Volume

GRID = Grid({"tp": 2, "dp": 32, "pp": 1}, ("tp", "dp", "pp"))


def network_share(kind: str, axis: str, collective: str, ranks: int) -> float:
    catalog = load_catalog()
    host = catalog.host("dgx-h100")
    machine = machine_of(host, catalog.link(host.link or ""), 64)
    assert machine.domain == 8
    tiers = by_tier(Volume(kind, axis, collective, ranks, 1000.0, 1.0, "", ""), GRID, machine)
    assert sum(tiers.values()) == pytest.approx(1000.0)
    return tiers[NETWORK] / 1000.0


def test_a_ring_leaves_a_domain_once_for_all_its_ranks_in_it() -> None:
    """Tensor-parallel pairs lie inside; of data-parallel ranks, two apart, a domain holds four."""
    assert network_share("tensor", "tp", "all-reduce", 2) == 0.0
    assert network_share("data", "dp", "reduce-scatter", 32) == pytest.approx(1 / 4)


def test_replicas_of_a_sharded_job_have_one_rank_in_each_domain() -> None:
    """What replicas exchange crosses the network whole, as the ranks of one domain share a replica."""
    assert network_share("data (replicas)", "dp", "reduce-scatter", 4) == 1.0
    assert network_share("data", "dp", "reduce-scatter", 4) == 0.0


def test_an_all_to_all_sends_to_every_rank_alike_and_a_send_goes_to_the_neighbour() -> None:
    assert network_share("experts", "ep", "all-to-all", 16) == pytest.approx(1 - 7 / 15)
    assert network_share("pipeline", "pp", "send", 2) == 1.0
