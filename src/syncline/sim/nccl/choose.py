"""Which algorithm and protocol NCCL takes at each size: the least believed time, unless a tuner says otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.errors import SimulationError
from syncline.sim.nccl.belief import ALGORITHMS, CHOSEN_OPS, PROTOCOLS, believe, believed_us
from syncline.sim.nccl.constants import read_data
from syncline.sim.nccl.system import PATHS, NcclSystem

_OP_NAMES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
_OP_NAMES |= {"broadcast": "broadcast", "reduce": "reduce"}


def read_list(text: str, known: tuple[str, ...], op: str, variable: str) -> set[str]:
    """Return what a `NCCL_ALGO` or `NCCL_PROTO` value enables for an operation.

    The grammar is NCCL's: `[list][;operation:list]...`, a list is comma-separated and `^` in front negates it.

        >>> sorted(read_list("ring;allreduce:tree,nvls", ALGORITHMS, "all_reduce", "NCCL_ALGO"))
        ['NVLS', 'Tree']
    """
    enabled = set(known)
    for index, entry in enumerate(part for part in text.split(";") if part.strip()):
        prefix, colon, body = entry.rpartition(":")
        if not colon and index > 0:
            raise SimulationError(f'{variable}="{text}": every entry but the first needs an operation before a colon.')
        if colon and prefix.strip().lower() not in _OP_NAMES:
            raise SimulationError(f'{variable}="{text}": "{prefix}" is not an operation of NCCL.')
        if not colon or _OP_NAMES[prefix.strip().lower()] == op:
            enabled = _read_names(body.strip(), known, f'{variable}="{text}"')
    return enabled


def _read_names(body: str, known: tuple[str, ...], where: str) -> set[str]:
    negated = body.startswith("^")
    by_lower = {name.lower(): name for name in known}
    named = set()
    for word in body.lstrip("^").split(","):
        if word.strip().lower() not in by_lower:
            raise SimulationError(f'{where}: "{word}" is not one of {", ".join(known)}.')
        named.add(by_lower[word.strip().lower()])
    return set(known) - named if negated else named


def ll128_allowed(system: NcclSystem) -> bool:
    """Say whether LL128 is on by default: NVLink inside, and a path to the NIC that keeps 128 B writes whole."""
    if system.nvlink_GBps == 0 and system.ranks_per_island > 1:
        return False
    if system.num_islands == 1:
        return True
    path = "PHB" if system.path == "P2C" and system.nccl < (2, 27) else system.path
    limit = "PXN" if system.facts.sm >= 90 else "PXB"
    return PATHS.index(path) <= PATHS.index(limit)


def _algorithm_allowed(system: NcclSystem, algorithm: str) -> bool:
    hosts = system.num_islands
    if algorithm in ("NVLS", "NVLSTree"):
        if system.env.get("NCCL_NVLS_ENABLE") == "0":
            return False
        if algorithm == "NVLSTree":
            return hosts > 1
        return hosts == 1 or system.collnet
    if algorithm.startswith("CollNet"):
        wide = algorithm == "CollNetDirect" and (not system.has_nvswitch or system.ranks_per_island > 8)
        return system.collnet and hosts > 1 and not wide
    if algorithm == "PAT":
        return system.ranks_per_island == 1 and system.nccl >= (2, 23) and system.env.get("NCCL_PAT_ENABLE") != "0"
    return True


def enabled_pairs(system: NcclSystem, op: str, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs of `pairs` that NCCL may choose for an operation on this system."""
    if op not in CHOSEN_OPS:
        raise SimulationError(f'NCCL chooses no algorithm for "{op}".')
    algorithms = read_list(system.env.get("NCCL_ALGO", ""), ALGORITHMS, op, "NCCL_ALGO")
    given = system.env.get("NCCL_PROTO", "")
    protocols = read_list(given, PROTOCOLS, op, "NCCL_PROTO")
    if not given:
        protocols &= set(system.net.protocols) if system.num_islands > 1 else set(PROTOCOLS)
        if not ll128_allowed(system):
            protocols.discard("LL128")
    usable = [p for p in pairs if p[1] in protocols and _algorithm_allowed(system, p[0])]
    chosen = [p for p in usable if p[0] in algorithms]
    # NCCL ignores an NCCL_ALGO that leaves nothing for an operation (all_gather under NCCL_ALGO=Tree): it takes Ring.
    return chosen or [p for p in usable if p[0] == "Ring"] or usable


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


def choose(system: NcclSystem, op: str, sizes: Floats) -> tuple[list[Pair], dict[Pair, Floats]]:
    """Return the pair NCCL takes at each size, and the believed time (us) of every pair it considered."""
    cells = believe(system, op)
    enabled = enabled_pairs(system, op, cells)
    believed = believed_us(system, op, {pair: cells[pair] for pair in enabled}, sizes)
    stacked = np.stack([believed[pair] for pair in enabled])
    chosen = [enabled[i] for i in np.argmin(stacked, axis=0)]
    forced = overrides(system, op, sizes, enabled)
    return [override or pair for pair, override in zip(chosen, forced, strict=True)], believed
