"""Prices of groups in columns: a step asks for thousands of groups at once, and each shape and size is priced once.

A group is `ranks` ranks, `near` of them in each scale-up domain. What is left of its ports, of its scale-up links and
of thin cells are columns too, so that a search, a what-if and one step ask the same model of NCCL (`sim/nccl`) that
`sim/collective/price.py` asks. Rows are priced exactly, not interpolated. Where a compiler lays collectives out, they
are rings at what the links sustain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.sim.bound import Bound
from syncline.sim.nccl.job import NcclOperation
from syncline.sim.nccl.predict import chosen_pairs, times_us
from syncline.sim.nccl.system import NcclSystem

Floats = NDArray[np.float64]
MOST_KEPT = 1 << 20
"""Prices that are remembered before all are forgotten."""


@dataclass(frozen=True)
class Library:
    """What collectives of a machine are calls of: the system as NCCL meets it, and what one rank has of it."""

    system: NcclSystem
    ranks_per_host: int
    nic_Bps: float
    up_Bps: float

    @property
    def name(self) -> str:
        """The library and its release."""
        return "RCCL" if self.system.facts.unverified else "NCCL {}.{}".format(*self.system.nccl)


class Groups(NamedTuple):
    """Groups of ranks in columns, as one kind of exchange meets the network."""

    library: Floats  # number of the `Library`; 0: a compiler lays out collectives itself
    ranks: Floats
    near: Floats  # ranks that share a scale-up domain
    nic_Bps: Floats  # port of one rank
    up_Bps: Floats  # scale-up links of one rank towards those near it
    cap_Bps: Floats  # what those near each other get together where cells are thin: their ring, or all of them to all
    long_s: Floats  # one way over lines between sites


class Compiled(NamedTuple):
    """What exchanges that a compiler lays out sustain: shares of the links' rates, and the time that one call costs."""

    up_share: float
    out_share: float
    call_s: float
    hop_s: Floats  # latency beyond a domain, for each doubling of the ranks


_LIBRARIES: list[Library] = []
_NUMBERS: dict[Library, int] = {}
_PRICES: dict[tuple[float | str, ...], float] = {}


def number_of(library: Library | None) -> int:
    """Return the number by which columns name a library; 0 where there is none."""
    if library is None:
        return 0
    if library not in _NUMBERS:
        _LIBRARIES.append(library)
        _NUMBERS[library] = len(_LIBRARIES)
    return _NUMBERS[library]


def forced(library: Floats, algorithm: str) -> Floats:
    """Return the numbers of the same libraries made to take an algorithm, as `NCCL_ALGO` does."""
    known, at = np.unique(library, return_inverse=True)
    numbers = [number_of(_forced(_LIBRARIES[int(number) - 1], algorithm)) if number else 0 for number in known]
    return np.asarray(np.array(numbers, np.float64)[at.reshape(np.shape(library))])


def _forced(whole: Library, algorithm: str) -> Library:
    return replace(whole, system=replace(whole.system, env={**whole.system.env, "NCCL_ALGO": algorithm}))


def collective_s(
    operation: str, groups: Groups, size_bytes: Floats, compiled: Compiled, residual: float = 1.0
) -> Floats:
    """Return what an operation of every group takes; 0 for a group of one. `residual` is times the library's price."""
    library = np.asarray(groups.library)
    if library.all():
        return residual * _library_s(operation, groups, size_bytes)
    laid_out = _compiled_s(operation, groups, size_bytes, compiled)
    if not library.any():
        return laid_out
    return np.where(library > 0, residual * _library_s(operation, groups, size_bytes), laid_out)


def compiled_Bps(operation: str, groups: Groups, compiled: Compiled) -> Floats:
    """Return at what rate a rank sends where a compiler lays an exchange out.

    Inside a domain: its scale-up links. Beyond, the ranks of a group in one domain carry its ring together, but never
    at more than the scale-up links behind them, nor more than cells let out. To one other it sends through its own
    port, to all others what its domain lets out of it.
    """
    up, out = compiled.up_share * groups.up_Bps, compiled.out_share * groups.cap_Bps
    if operation == "all_to_all":
        # Of what a rank sends, this part leaves its domain.
        out = out / groups.near * np.maximum(groups.ranks - 1, 1) / np.maximum(groups.ranks - groups.near, 1)
    elif operation == "send_recv":
        out = np.minimum(out, compiled.out_share * groups.nic_Bps)
    return np.asarray(np.where(groups.near >= groups.ranks, up, np.minimum(up, out)))


def call_s(operation: str, groups: Groups, compiled: Compiled) -> Floats:
    """Return the fixed time of one exchange that a compiler lays out; 0 for a group of one."""
    doublings = 1.0 if operation == "send_recv" else np.log2(np.maximum(groups.ranks, 2.0))
    hops = np.where(groups.near < groups.ranks, compiled.hop_s * doublings, 0.0)
    # The long way is crossed twice in all.
    return np.where(groups.ranks > 1, compiled.call_s + hops + 2 * groups.long_s, 0.0)


def _compiled_s(operation: str, groups: Groups, size_bytes: Floats, compiled: Compiled) -> Floats:
    sent = size_bytes if operation == "send_recv" else (groups.ranks - 1) / groups.ranks * size_bytes
    once = sent / compiled_Bps(operation, groups, compiled) + call_s(operation, groups, compiled)
    return np.where(groups.ranks > 1, (2 if operation == "all_reduce" else 1) * once, 0.0)


def _library_s(operation: str, groups: Groups, size_bytes: Floats) -> Floats:
    columns = [np.asarray(column, dtype=np.float64) for column in (*groups, size_bytes)]
    if all(column.ndim == 0 for column in columns):
        return np.asarray(_rows_s(operation, np.array([columns]))[0])
    shape = np.broadcast_shapes(*(column.shape for column in columns))
    # Rows that repeat have one price: most columns are one number, and the others have few values.
    mixed = np.zeros((), np.uint64)
    for number, column in enumerate(columns):
        mixed = (mixed * np.uint64(0x9E3779B97F4A7C15)) ^ (
            np.ascontiguousarray(column).view(np.uint64) + np.uint64(number)
        )
        mixed = mixed ^ (mixed >> np.uint64(29))
    _, first, at = np.unique(np.broadcast_to(mixed, shape), return_index=True, return_inverse=True)
    where = np.unravel_index(first, shape)
    rows = np.stack([np.broadcast_to(column, shape)[where] for column in columns], axis=1)
    return np.asarray(_rows_s(operation, rows)[at.ravel()].reshape(shape))


def _rows_s(operation: str, rows: Floats) -> Floats:
    out = np.zeros(len(rows))
    wanted: dict[tuple[float, ...], list[int]] = {}
    for index, row in enumerate(rows.tolist()):
        if row[0] < 1 or row[1] < 2 or row[-1] <= 0:
            continue
        known = _PRICES.get((operation, *row))
        if known is None:
            wanted.setdefault(tuple(row[:-1]), []).append(index)
        else:
            out[index] = known
    if len(_PRICES) > MOST_KEPT:
        _PRICES.clear()
    for key, members in wanted.items():
        sizes = rows[members, -1]
        found = _priced_s(_operation(operation, key), sizes)
        out[members] = found
        _PRICES.update(
            {(operation, *key, size): time for size, time in zip(sizes.tolist(), found.tolist(), strict=True)}
        )
    return out


def _priced_s(job: NcclOperation, sizes: Floats) -> Floats:
    pairs, _ = chosen_pairs(job.system, job.op, sizes)
    floor = 1e6 * job.system.bounds.get(job.op, Bound()).at(sizes)
    return np.asarray(np.maximum(times_us(job, pairs, sizes), floor) / 1e6)


@lru_cache(maxsize=4096)
def _operation(operation: str, key: tuple[float, ...]) -> NcclOperation:
    return NcclOperation(group_system(operation, *key), operation)


def group_system(
    operation: str, library: float, ranks: float, near: float, nic_Bps: float, up_Bps: float, cap_Bps: float,
    long_s: float,
) -> NcclSystem:  # fmt: skip
    """Return the system of one group: the machine's own, with the ranks, ports and links that the group has."""
    whole = _LIBRARIES[int(library) - 1]
    system, inside = whole.system, max(1, int(near))
    num_hosts = max(1, -(-int(ranks) // inside))
    ports = nic_Bps / whole.nic_Bps if whole.nic_Bps > 0 else 1.0
    up = up_Bps / whole.up_Bps if whole.up_Bps > 0 else 1.0
    nics = system.num_nics * inside / whole.ranks_per_host
    count = max(1, round(nics))
    own_Bps = inside * nic_Bps
    cap = cap_Bps if cap_Bps < own_Bps * (1 - 1e-9) else np.inf
    pairs = operation == "all_to_all"
    share = ports * nics / count
    if ports > 1 and system.nvlink_GBps:  # more ports, or faster ones, bring their own way into the host
        cap_of_path = system.path_cap_Bps and system.path_cap_Bps * ports
        system = replace(system, pcie_Bps=1e9 * system.pcie_GBps * ports, path_cap_Bps=cap_of_path)
    found = replace(
        system, num_hosts=num_hosts, gpus_per_host=inside, ranks=0 if num_hosts * inside == int(ranks) else int(ranks),
        nvlink_domain=inside, num_nics=count if num_hosts > 1 else system.num_nics,
        nic_rate_Bps=system.nic_rate_Bps * share, port_Bps=(system.port_Bps or system.nic_rate_Bps) * max(1.0, ports),
        nvlink_Bps=system.nvlink_GBps * 1e9 * up,
        ring_cap_Bps=np.inf if pairs else cap, pairs_cap_Bps=cap if pairs else np.inf,
        long_us=1e6 * long_s, far_us=1e6 * long_s, tree_lines=max(1, system.tree_lines) if long_s > 0 else 0, bounds={},
    )  # fmt: skip
    alike = (found.num_ranks, found.num_islands, found.ranks_per_island) == (
        system.num_ranks, system.num_islands, system.ranks_per_island)  # fmt: skip
    # All ranks of a machine have one way to send to all; of their rings several may share what leads out of a cell.
    caps = (1.0, 1.0) if pairs else (min(found.ring_cap_Bps, own_Bps), min(system.ring_cap_Bps, own_Bps))
    return system if alike and np.allclose((share, up, caps[0]), (1.0, 1.0, caps[1]), rtol=1e-9) else found
