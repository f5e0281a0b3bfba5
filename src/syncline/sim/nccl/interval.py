"""How sure a prediction of NCCL is: intervals by operation, size, reach and generation, from `sim/uncertainty.py`.

They widen where constants are judgement and for what no public row covers, and say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncline.sim.nccl.system import MAX_POINT_HOSTS, NcclSystem
from syncline.sim.uncertainty import JUDGED, Spread, collective_spread

Floats = npt.NDArray[np.float64]
BANDS = ("XS", "S", "M", "L")
_EDGES = (4096, 262144, 2**28 - 1)
GENERATIONS = ("Volta", "Ampere", "Hopper", "Blackwell")
#: Networks whose constants nobody measured, and algorithms without public rows.
JUDGED_NETWORKS = ("unknown",)
UNSEEN_ALGORITHMS = ("PAT", "CollNetDirect", "CollNetChain")


@dataclass(frozen=True, eq=False)
class SizeFactors:
    """Factors on the predicted time of each size that hold 90 and 50 % of measurements, and what they rest on."""

    low_90: Floats
    high_90: Floats
    low_50: Floats
    high_50: Floats
    basis: tuple[str, ...]


def band(sizes: Floats) -> npt.NDArray[np.int64]:
    """Return 0..3 for XS (to 4 KiB), S (to 256 KiB), M (below 256 MiB), L."""
    return np.searchsorted(np.array(_EDGES, dtype=np.float64), sizes, side="left").astype(np.int64)


def reach_of(system: NcclSystem) -> str:
    """Return how far a job reaches: one domain, cards of one host, few hosts by NIC or by socket, or many hosts."""
    if system.num_islands == 1:
        return "one" if system.nvlink_GBps else "cards"
    if system.num_hosts > MAX_POINT_HOSTS:
        return "many"
    return "sockets" if system.net.by_host else "few"


def generation_of(system: NcclSystem) -> str:
    """Return the generation of a system's GPUs as the table of intervals has it."""
    return "RCCL" if system.facts.unverified else GENERATIONS[min(system.facts.generation, len(GENERATIONS) - 1)]


def interval(system: NcclSystem, op: str, sizes: Floats, *, calibrated: bool = False) -> SizeFactors:
    """Return the factors of each size, from the rows of other systems."""
    found = [_spread(system, op, size, calibrated) for size in sizes.tolist()]
    columns = np.array([[s.low_90, s.high_90, s.low_50, s.high_50] for s in found], dtype=np.float64).reshape(-1, 4)
    basis = tuple(dict.fromkeys(spread.basis for spread in found))
    return SizeFactors(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3], basis)


def _spread(system: NcclSystem, op: str, size: float, calibrated: bool) -> Spread:
    hosts = 1 if calibrated else system.num_hosts
    found = collective_spread(calibrated, reach_of(system), op, generation_of(system), hosts, size)
    if not calibrated and system.num_islands > 1 and system.network in JUDGED_NETWORKS:
        return found.wider(JUDGED, f"constants of {system.net.title} are judgement")
    return found


def unverified(system: NcclSystem, pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return what of this prediction rests on judgement, each as a short sentence; empty when public rows cover it."""
    found = []
    if system.num_islands > 1 and system.network in JUDGED_NETWORKS:
        found.append(f"constants of {system.net.title} are judgement")
    found += [f"{name}: no public rows" for name in UNSEEN_ALGORITHMS if any(p[0] == name for p in pairs)]
    if system.facts.unverified:
        found.append("RCCL is modelled with NCCL's formulae")
    if system.num_hosts > MAX_POINT_HOSTS:
        found.append(f"more than {MAX_POINT_HOSTS} hosts: read the interval, not the point")
    return (*found, *system.assumed)
