"""How sure a prediction is: an interval from the errors seen on systems that were left out of the fit.

`data/nccl_interval.yaml` has quantiles of measured / predicted by size band. They widen where constants are judgement,
for operations no public row covers, and beyond 64 hosts, where congestion and placement add what no closed form sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.sim.nccl.constants import read_data
from syncline.sim.nccl.system import NcclSystem

Floats = npt.NDArray[np.float64]
BANDS = ("XS", "S", "M", "L")
_EDGES = (4096, 262144, 2**28 - 1)
#: The largest job for which the point alone is offered; past it read the interval.
MAX_POINT_HOSTS = 64


@cache
def _table() -> dict[str, Any]:
    return read_data("nccl_interval")


def band(sizes: Floats) -> npt.NDArray[np.int64]:
    """Return 0..3 for XS (to 4 KiB), S (to 256 KiB), M (below 256 MiB), L."""
    return np.searchsorted(np.array(_EDGES, dtype=np.float64), sizes, side="left").astype(np.int64)


def interval(system: NcclSystem, op: str, sizes: Floats, *, calibrated: bool = False) -> tuple[Floats, Floats]:
    """Return factors (low, high) on the predicted time that hold about 90 % of measurements."""
    table = _table()
    key = "calibrated" if calibrated else "large" if system.num_hosts > MAX_POINT_HOSTS else "uncalibrated"
    quantiles = np.array([table[key][name] for name in BANDS], dtype=np.float64)
    widen = 1.0 if calibrated else _widening(system, op, table)
    low, high = np.log(quantiles[band(sizes)]).T * widen
    return np.exp(low), np.exp(high)


def _widening(system: NcclSystem, op: str, table: dict[str, Any]) -> float:
    judged = system.num_islands > 1 and system.network in table["judged_networks"]
    unseen = _unseen(system, op, table) or system.facts.unverified
    return float(table["widen_judged"]) ** (int(judged) + int(unseen))


def _unseen(system: NcclSystem, op: str, table: dict[str, Any]) -> bool:
    return system.num_islands > 1 and op in table["unseen_ops"]


def unverified(system: NcclSystem, op: str, pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return what of this prediction rests on judgement, each as a short sentence; empty when public rows cover it."""
    table = _table()
    found = []
    if _unseen(system, op, table):
        found.append(f"no public rows of {op} across hosts were fitted")
    if system.num_islands > 1 and system.network in table["judged_networks"]:
        found.append(f"constants of {system.net.title} are judgement")
    found += [
        f"{algorithm}: no public rows"
        for algorithm in table["unseen_algorithms"]
        if any(p[0] == algorithm for p in pairs)
    ]
    if system.facts.unverified:
        found.append("RCCL is modelled with NCCL's formulae")
    if system.num_hosts > MAX_POINT_HOSTS:
        found.append(f"more than {MAX_POINT_HOSTS} hosts: read the interval, not the point")
    return (*found, *system.assumed)
