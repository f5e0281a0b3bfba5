"""Which tier of the fabric each kind of traffic crosses: bytes one rank sends, by kind and tier."""

from __future__ import annotations

from syncline.sim.double_tree import of_ring
from syncline.sim.step.machine import Machine
from syncline.workload.grid import Grid
from syncline.workload.volumes import Volume

SCALE_UP, NETWORK = "scale-up", "network"


def by_tier(volume: Volume, grid: Grid, machine: Machine) -> dict[str, float]:
    """Return the bytes of one kind of traffic by tier.

    A ring through `g` ranks of each domain leaves the domain once, carried by all its ranks together: of what a rank
    sends, 1/g crosses the network on average. All-to-all sends to each rank alike. Point to point goes where the
    neighbour is.
    """
    stride = 1 if volume.axis == "ep" else grid.stride(volume.axis)
    if volume.kind == "data (replicas)":
        stride = machine.domain
    within = max(1, min(volume.ranks, machine.domain // stride))
    if within >= volume.ranks:
        return {SCALE_UP: volume.size_bytes, NETWORK: 0.0}
    if volume.collective == "all-to-all":
        away = 1 - (within - 1) / max(volume.ranks - 1, 1)
    elif volume.collective == "send":
        away = 1.0
    else:
        away = 1 / within
        if volume.axis == "dp" and volume.collective == "all-reduce":  # of two domains, a tree's share
            away *= of_ring(volume.ranks, volume.ranks / within)
    return {SCALE_UP: volume.size_bytes * (1 - away), NETWORK: volume.size_bytes * away}


def comm_bytes(volumes: list[Volume], grid: Grid, machine: Machine) -> dict[str, dict[str, float]]:
    """Return bytes that one rank sends in a step, by kind of parallelism and tier."""
    return {volume.kind: by_tier(volume, grid, machine) for volume in volumes}
