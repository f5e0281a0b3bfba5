"""Collisions: what ECMP hashing leaves of a port when rings in rank order run on a fabric.

Every GPU sends to the same GPU of the next host, as the rings of a job that fills the fabric in order do; each flow
takes one of its equal paths by hash. A ring is as slow as its slowest flow, and exchanges wait for the slowest ring.
"""

from __future__ import annotations

import numpy as np

from syncline.fabric.fabric import Fabric
from syncline.fabric.route import Routes
from syncline.sim.step.reach import Reach

NUM_SEEDS = 8


def hashed_share(fabric: Fabric, reach: Reach, num_seeds: int = NUM_SEEDS) -> float:
    """Return the share of a port that the slowest flow keeps, median over hash seeds; 1 where hosts differ in GPUs."""
    hosts = fabric.devices.host[fabric.gpus]
    counts = np.bincount(hosts)
    if fabric.num_hosts < 2 or counts.min() != counts.max():
        return 1.0
    grid = fabric.gpus[np.argsort(hosts, kind="stable")].reshape(fabric.num_hosts, -1)
    routes = Routes(fabric)
    source, target = grid.ravel(), np.roll(grid, -1, axis=0).ravel()
    return float(np.median([_slowest_Bps(fabric, routes, source, target, s) for s in range(num_seeds)]) / reach.nic_Bps)


def _slowest_Bps(
    fabric: Fabric, routes: Routes, source: np.ndarray[tuple[int, ...], np.dtype[np.int32]],
    target: np.ndarray[tuple[int, ...], np.dtype[np.int32]], seed: int,
) -> float:  # fmt: skip
    stripes = routes.num_stripes
    crossed = [routes.many(source, target, seed=seed, stripe=stripe).links for stripe in range(stripes)]
    flows = np.bincount(np.concatenate(crossed), minlength=len(fabric.links)) / stripes
    used = flows > 0
    return float((fabric.links.rate_Bps[used] / flows[used]).min())
