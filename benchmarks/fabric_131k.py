"""A fabric of 131,072 GPUs on three tiers: seconds and peak memory to build it, to count it and to route on it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from measure import measure
from syncline.fabric import Fabric, load
from syncline.fabric.inventory import inventory
from syncline.fabric.route import Routes

PRESET = "h100-131k-3tier"
LIMIT_BYTES = 4 * 2**30
NUM_ROUTES = 100_000
SEED = 1


def build() -> dict[str, Any]:
    """Build the fabric and nothing else."""
    fabric = load(PRESET)
    return {
        "num_gpus": fabric.num_gpus,
        "num_hosts": fabric.num_hosts,
        "num_switches": len(fabric.switches),
        "num_devices": len(fabric.devices),
        "num_links": len(fabric.links),
        "column_bytes": _column_bytes(fabric),
    }


def use() -> dict[str, Any]:
    """Build it, count all that `syncline fabric show` prints, and route flows between random GPUs."""
    fabric = load(PRESET)
    began = time.perf_counter()
    counted = inventory(fabric)
    counted_at = time.perf_counter()
    rng = np.random.default_rng(SEED)
    src, dst = rng.choice(fabric.gpus, (2, NUM_ROUTES))
    routes = Routes(fabric)
    num_links = len(routes.many(src, dst, seed=SEED).links)
    first_at = time.perf_counter()
    routes.many(src, dst, seed=SEED + 1)
    return {
        "inventory_s": counted_at - began,
        "bisection_Bps": counted.bisection.rate_Bps,
        "num_routes": NUM_ROUTES,
        "route_links": num_links,
        "first_routes_s": first_at - counted_at,
        "later_routes_per_s": NUM_ROUTES / (time.perf_counter() - first_at),
    }


def run() -> dict[str, Any]:
    """Return the cost of both, each in a process of its own; `peak_bytes` is the larger."""
    built, used = measure("fabric_131k:build"), measure("fabric_131k:use")
    peak_bytes = max(built.peak_rss_bytes, used.peak_rss_bytes)
    return {
        "preset": PRESET,
        "build_s": built.wall_s,
        "build_cpu_s": built.cpu_s,
        "build_peak_bytes": built.peak_rss_bytes,
        **built.result,
        **used.result,
        "use_cpu_s": used.cpu_s,
        "peak_bytes": peak_bytes,
        "limit_bytes": LIMIT_BYTES,
        "within_limit": peak_bytes < LIMIT_BYTES,
    }


def _column_bytes(fabric: Fabric) -> int:
    return sum(column.nbytes for table in (fabric.devices, fabric.links) for column in vars(table).values())
