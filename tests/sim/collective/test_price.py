"""The one price of a collective: what holds on random clusters, whichever verb is asked."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from tests.sim.collective.clusters import broken_exchanges, broken_rules

from syncline.fabric import load
from syncline.program import place
from syncline.schedule import Kind
from syncline.sim.collective.columns import Compiled, Groups, collective_s
from syncline.sim.collective.price import CollectivePricer, price
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job

#: Where NCCL takes another protocol on the faster links, and is 24 % slower with it.
WORSE_CHOICE = 102


@pytest.mark.parametrize("seeds", [*(range(first, first + 10) for first in range(0, 60, 10)), (WORSE_CHOICE,)])
def test_bound_order_monotony_and_verbs_on_random_clusters(seeds: Iterable[int]) -> None:
    assert [line for seed in seeds for line in broken_rules(seed)] == []


@pytest.mark.parametrize("seeds", [range(first, first + 5) for first in range(0, 20, 5)])
def test_what_layers_exchange_takes_what_simulate_says(seeds: Iterable[int]) -> None:
    assert [line for seed in seeds for line in broken_exchanges(seed)] == []


def test_gloo_runs_the_ring_that_it_most_resembles() -> None:
    fabric = load({"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR", "software": {"library": "gloo"}})
    found = price(Kind.ALL_REDUCE, 1 << 20, place("packed", fabric))
    assert found.nccl is not None and (found.nccl.library, found.nccl.algorithm) == ("gloo", "as ring")
    assert found.bound_s < found.nccl.low_s < found.nccl.time_s < found.nccl.high_s


def test_a_compiler_that_lays_out_collectives_has_no_library() -> None:
    pricer = CollectivePricer(Kind.ALL_REDUCE, place("packed", load("tpu-v4-pod"), 8))
    (found,) = pricer.at([1 << 20])
    assert found.nccl is None and found.refused == "TPU-v4 does not run NCCL."
    assert found.best.time_s >= found.bound_s > 0


def test_a_group_on_faster_ports_takes_less() -> None:
    """As a plan asks what faster ports would save: of the machine that it has, with other ports."""
    job = load_job({"model": "llama3-8b", "batch": {"global": 512, "sequence": 4096}})
    case = step(load("h100-64-rail"), job).case
    assert case is not None
    half, own, twice = case.nic_Bps * np.array([[0.5], [1.0], [2.0]])
    groups = (Groups(case.library, np.full(1, 64.0), np.ones(1), each, case.nvlink_Bps, np.full(1, np.inf), np.zeros(1))
              for each in (half, own, twice))  # fmt: skip
    compiled = Compiled(1.0, 1.0, 0.0, np.zeros(()))
    took = [float(collective_s("all_reduce", group, np.full(1, 2.0**30), compiled)[0]) for group in groups]
    assert took[0] > 1.5 * took[1] > 1.5 * 1.05 * took[2]  # then PCIe is the limit
