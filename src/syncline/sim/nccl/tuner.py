"""Vendor tuners: regions of (bytes, ranks) in which a plugin forces a pair over NCCL's own choice."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.errors import SimulationError
from syncline.sim.nccl.constants import read_data
from syncline.sim.nccl.system import NcclSystem

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]


def inside(vertices: list[list[float]], size_bytes: float, num_ranks: float) -> bool:
    """Say whether (bytes, ranks) lies in or on a polygon, in log2-log2 as the plugin does it."""
    corners = np.log2(np.maximum(np.asarray(vertices, dtype=np.float64), 1.0))
    x, y = float(np.log2(max(size_bytes, 1.0))), float(np.log2(max(num_ranks, 1.0)))
    crossings = 0
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if _on_edge(x, y, x0, y0, x1, y1):
            return True
        if (y0 > y) != (y1 > y) and x < (x1 - x0) * (y - y0) / (y1 - y0) + x0:
            crossings += 1
    return crossings % 2 == 1


def _on_edge(x: float, y: float, x0: float, y0: float, x1: float, y1: float) -> bool:
    off_line = abs((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)) > 1e-9
    between = min(x0, x1) - 1e-9 <= x <= max(x0, x1) + 1e-9 and min(y0, y1) - 1e-9 <= y <= max(y0, y1) + 1e-9
    return not off_line and between


def overrides(system: NcclSystem, op: str, sizes: Floats, enabled: Collection[Pair]) -> list[Pair | None]:
    """Return the pair the system's tuner forces at each size, or None where it leaves NCCL alone."""
    if not system.tuner:
        return [None] * len(sizes)
    known = read_data("nccl_tuners")
    if system.tuner not in known:
        raise SimulationError(f'tuner "{system.tuner}" is not known.', hint=f"Known: {', '.join(known)}.")
    tuner = known[system.tuner]
    in_range = tuner["min_hosts"] <= system.num_hosts <= tuner.get("max_hosts", system.num_hosts)
    if not in_range or system.gpus_per_host != tuner["ranks_per_host"]:
        return [None] * len(sizes)
    regions = [r for r in tuner.get(op, []) if (r["algorithm"], r["protocol"]) in enabled]
    return [_first(regions, float(size), system.num_ranks) for size in sizes]


def _first(regions: Any, size: float, ranks: int) -> Pair | None:
    for region in regions:
        if inside(region["vertices"], size, ranks):
            return region["algorithm"], region["protocol"]
    return None
