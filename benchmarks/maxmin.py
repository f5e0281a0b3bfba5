"""Flows given max-min fair rates per CPU second: the native loop against its plain-Python twin, on the same cases."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.sim.flow import reference

from measure import cpu_seconds
from syncline.sim.flow.maxmin import Flows, max_min_rates

SEED = 1
LINKS_PER_FLOW = 6  # NIC up, leaf, spine, leaf, NIC down and one more: a three-tier path
SMALL = (300, 256)  # flows, links: what the twin can do in about a second
LARGE = (1_000_000, 200_000)


def case(num_flows: int, num_links: int) -> tuple[np.ndarray[Any, Any], Flows, np.ndarray[Any, Any]]:
    """Return link capacities, flows over random links, and weights."""
    rng = np.random.default_rng(SEED)
    capacity_Bps = rng.choice([25e9, 50e9, 100e9], num_links)
    start = np.arange(num_flows + 1, dtype=np.int64) * LINKS_PER_FLOW
    link = rng.integers(0, num_links, num_flows * LINKS_PER_FLOW, dtype=np.int32)
    return capacity_Bps, Flows(start, link), rng.uniform(0.5, 2.0, num_flows)


def native_cpu_s(num_flows: int, num_links: int) -> float:
    """Return the CPU seconds of one native solution."""
    capacity_Bps, flows, weight = case(num_flows, num_links)
    return cpu_seconds(lambda: max_min_rates(capacity_Bps, flows, weight=weight))


def reference_cpu_s(num_flows: int, num_links: int) -> float:
    """Return the CPU seconds of one plain-Python solution."""
    capacity_Bps, flows, weight = case(num_flows, num_links)
    paths = flows.link.reshape(num_flows, LINKS_PER_FLOW).tolist()
    return cpu_seconds(lambda: reference.max_min_rates(capacity_Bps.tolist(), paths, weight.tolist()), at_least_s=0)


def run() -> dict[str, Any]:
    """Return flows per CPU second of both, and the native loop's at fabric size."""
    num_flows, num_links = SMALL
    slow, fast, large = reference_cpu_s(*SMALL), native_cpu_s(*SMALL), native_cpu_s(*LARGE)
    return {
        "num_flows": num_flows,
        "num_links": num_links,
        "reference_flows_per_cpu_s": num_flows / slow,
        "native_flows_per_cpu_s": num_flows / fast,
        "speedup_over_reference": slow / fast,
        "large_num_flows": LARGE[0],
        "large_num_links": LARGE[1],
        "large_native_cpu_s": large,
        "large_native_flows_per_cpu_s": LARGE[0] / large,
    }
