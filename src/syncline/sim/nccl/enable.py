"""Which algorithm and protocol pairs NCCL may use here: its own rules, the environment and the plugin."""

from __future__ import annotations

from collections.abc import Iterable

from syncline.errors import SimulationError
from syncline.sim.nccl.belief import ALGORITHMS, CHOSEN_OPS, PROTOCOLS
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
