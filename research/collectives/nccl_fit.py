"""Fit the model's constants to published rows: network kinds around their parents, then the machine, in turns.

    python research/collectives/fit.py     # writes data/nccl_fitted.yaml anew

Few constants, each with a name and a prior; a kind that no rows cover keeps its parent's. The same fit without one
system after another gives the left-out errors and the intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from research.robust import minimise

from syncline.sim.nccl.constants import NcclConstants, constants_from, machine_from, prior_rows
from syncline.sim.nccl.job import NcclOperation
from syncline.sim.nccl.predict import chosen_pairs, times_us
from syncline.sim.nccl.system import NcclSystem

Floats = npt.NDArray[np.float64]

# Constant of a network kind -> (what NCCL's own table adds to it, how far it may stray from its parent, in log units).
NETWORK_PARAMETERS: dict[str, tuple[float, float]] = {
    "hop_us": (5.0, 0.6),
    "simple_hop_us": (14.0, 0.6),
    "tree_simple_hop_us": (14.0, 0.3),
    "tree_level": (0.0, 0.4),
    "ring_ll_hop_us": (0.0, 0.8),
    "ring_ll128_hop_us": (0.0, 0.8),
    "ring_pace_us": (0.0, 0.8),
    "ring_ll128_pace_us": (0.0, 0.5),
    "proxy": (0.0, 0.5),
    "nic_cap_GBps": (0.0, 0.4),
    "efficiency": (0.0, 0.3),
    "many_hosts": (0.0, 0.03),
    "ll_us_per_KiB": (0.0, 0.8),
    "ll128_share": (0.0, 0.8),
    "pipeline": (0.0, 0.6),
    "overlap": (0.0, 0.2),
    "channel_us": (0.0, 0.8),
    "nvlstree_level_us": (0.0, 0.8),
    "alltoall_base_us": (0.0, 0.6),
    "alltoall_peer_us": (0.0, 0.8),
    "alltoall_tiny": (0.0, 0.6),
    "alltoall_efficiency": (0.0, 0.3),
    "alltoall_falloff": (0.0, 0.6),
    "crowding": (0.0, 0.5),
}
# Constant of the machine -> (rows of its table by GPU generation, or None for a single number; stray in log units).
MACHINE_PARAMETERS: dict[str, tuple[tuple[int, ...] | None, float]] = {
    "nvlink_efficiency": ((0, 1, 2, 3, 4), 0.1),
    "nvls_efficiency": ((2, 3), 0.1),
    "nvls_wide_efficiency": ((3,), 0.2),
    "intra_ll_us": ((0, 1, 2, 3, 4), 0.4),
    "one_host_ll_us_per_KiB": ((0, 1, 2, 3, 4), 0.6),
    "launch_us_per_gpu": (None, 0.5),
    "p2p_base_us": (None, 0.3),
    "p2p_launch_us_per_gpu": (None, 0.5),
    "p2p_channel_GBps": ((1, 2, 3), 0.3),
    "p2p_net_share": (None, 0.2),
    "alltoall_pipeline": (None, 0.4),
    "alltoall_share": (None, 0.1),
    "sendrecv_share": (None, 0.1),
    "one_host_pipeline": (None, 0.5),
    "nvls_pipeline": ((2, 3), 0.5),
    "tree_ll128_pipeline": (None, 0.3),
    "tree_simple_pipeline": (None, 0.3),
    "nvlstree_pipeline": ((2, 3), 0.4),
    "nvlstree_share": (None, 0.15),
    "nvlstree_inside": (None, 0.1),
    "ring_ll_copy": (None, 0.5),
    "ring_ll128_share": (None, 0.1),
    "ring_chunk_KiB": (None, 0.7),
    "ring_small_share": (None, 0.3),
    "tree_ll_chunk_KiB": (None, 0.5),
}
#: Kinds without rows of their own that stand for what their children have in common: what a new one is likely to be.
SHARED = ("unknown",)
#: A share cannot pass 1 (no wire is all payload), and overlap cannot be less than none.
_AT_MOST = {"efficiency": 0.985, "many_hosts": 1.0, "alltoall_efficiency": 0.985, "ll128_share": 1.0,
            "alltoall_falloff": 0.6, "crowding": 0.5, "proxy": 1.0}  # fmt: skip
_AT_LEAST = {"overlap": 1.0, "alltoall_tiny": 1.0, "tree_level": 1.0}


@dataclass(frozen=True, eq=False)
class Sweep:
    """One measured series as the fit sees it: its system, sizes, times, and how much each row counts."""

    label: str
    system: NcclSystem
    op: str
    sizes: Floats
    time_us: Floats
    weight: Floats
    pairs: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", tuple(chosen_pairs(self.system, self.op, self.sizes)[0]))

    def residual(self, constants: NcclConstants) -> Floats:
        """Return weighted log(predicted / measured)."""
        predicted = times_us(NcclOperation(self.system, self.op, constants), self.pairs, self.sizes)
        return np.asarray(self.weight * np.log(predicted / self.time_us))


@dataclass
class NcclFit:
    """Values found so far, over the priors."""

    machine: dict[str, float | list[float]] = field(default_factory=dict)
    networks: dict[str, dict[str, float]] = field(default_factory=dict)

    def constants(self) -> NcclConstants:
        """Return the priors with these values over them."""
        return constants_from(self.machine, self.networks)


def fit(
    sweeps: Sequence[Sweep], *, rounds: int = 3, start: NcclFit | None = None, only: Collection[str] | None = None
) -> NcclFit:
    """Return constants fitted to the sweeps: every network kind after its parent, then the machine, `rounds` times.

    With `only`, the other kinds keep what `start` has, and the machine is near its best already.
    """
    found = NcclFit(dict(start.machine), dict(start.networks)) if start else NcclFit()
    for _ in range(rounds):
        for kind in _parents_first() if only is None else [k for k in _parents_first() if k in only]:
            before = found.networks.pop(kind, {})
            kinds = _children(kind) if kind in SHARED else {kind}
            if mine := _rows_of(sweeps, kinds):
                found.networks[kind] = _fit_network(kind, mine, found, kinds, before)
        found.machine = _fit_machine(sweeps, found, max_rounds=8 if only is None else 3)
    return found


def _rows_of(sweeps: Sequence[Sweep], kinds: Collection[str]) -> list[Sweep]:
    return [s for s in sweeps if s.system.num_islands > 1 and s.system.network in kinds]


def _children(kind: str) -> set[str]:
    """Return the kinds right below one, without kernel TCP: sockets say little about NICs that bypass the kernel."""
    return {name for name, row in prior_rows().items() if row.get("parent") == kind and name != "tcp"}


def _parents_first() -> list[str]:
    rows = prior_rows()

    def depth(kind: str) -> int:
        parent = rows[kind].get("parent")
        return 1 + depth(parent) if parent else 0

    return sorted(rows, key=depth)


def _fit_network(
    kind: str, sweeps: Sequence[Sweep], found: NcclFit, kinds: Collection[str], before: Mapping[str, float]
) -> dict[str, float]:
    """Fit one kind around its parent, starting from what was found before."""
    prior = found.constants()
    shared = kinds != {kind}
    own = {k: prior_rows()[k] for k in kinds}
    balance = _balance(sweeps) if shared else {}
    base = prior.networks[kind]
    names = [n for n, (offset, _) in NETWORK_PARAMETERS.items() if 0 < getattr(base, n) + offset < np.inf]
    if shared:  # all-to-all depends on the NIC's queues more than on what its kind is like
        names = [n for n in names if not n.startswith("alltoall")]

    def values(x: Floats) -> dict[str, float]:
        out = {}
        for name, step in zip(names, x, strict=True):
            offset = NETWORK_PARAMETERS[name][0]
            value = (getattr(base, name) + offset) * float(np.exp(step)) - offset
            out[name] = max(min(value, _AT_MOST.get(name, np.inf)), _AT_LEAST.get(name, -np.inf))
        return out

    def residuals(x: Floats) -> Floats:
        trial = prior
        for k in kinds:
            # What a child's own prior says is not its parent's to explain.
            trial = trial.with_network(k, **{n: v for n, v in values(x).items() if k == kind or n not in own[k]})
        return np.concatenate([s.residual(trial) * balance.get(s.system.network, 1.0) for s in sweeps])

    offsets = np.array([NETWORK_PARAMETERS[n][0] for n in names])
    old = np.array([getattr(base, n) for n in names]) + offsets
    start = np.log(np.maximum([before.get(n, getattr(base, n)) for n in names] + offsets, 1e-3 * old) / old)
    x = minimise(residuals, np.array([NETWORK_PARAMETERS[n][1] for n in names]), start=start)
    return {n: _rounded(v) for (n, v), step in zip(values(x).items(), x, strict=True) if abs(step) > 0.01}


def _balance(sweeps: Sequence[Sweep]) -> dict[str, float]:
    """Return a weight for each kind of network, so that one with many rows does not speak for all."""
    rows: dict[str, int] = {}
    for sweep in sweeps:
        rows[sweep.system.network] = rows.get(sweep.system.network, 0) + len(sweep.sizes)
    return {kind: min(1.0, 50 / number) for kind, number in rows.items()}


def _fit_machine(sweeps: Sequence[Sweep], found: NcclFit, max_rounds: int) -> dict[str, float | list[float]]:
    prior = machine_from({})
    slots = [(n, row) for n, (rows, _) in MACHINE_PARAMETERS.items() for row in (rows if rows is not None else (-1,))]

    def values(x: Floats) -> dict[str, float | list[float]]:
        out: dict[str, float | list[float]] = {}
        tables: dict[str, list[float]] = {}
        for (name, row), step in zip(slots, x, strict=True):
            old = getattr(prior, name)
            if row < 0:
                out[name] = old * float(np.exp(step))
            else:
                table = tables.setdefault(name, list(old))
                table[row] = old[row] * float(np.exp(step))
        return out | tables

    by_row = {row: [s for s in sweeps if s.system.facts.machine_row == row] for row in range(5)}
    known: dict[tuple[float, ...], Floats] = {}  # a generation's rows change with its own constants and the shared ones

    def residuals(x: Floats) -> Floats:
        trial, parts = constants_from(values(x), found.networks), []
        for row, mine in by_row.items():
            key = (float(row), *(step for (_, own), step in zip(slots, x.tolist(), strict=True) if own in (-1, row)))
            if key not in known:
                known[key] = np.concatenate([s.residual(trial) for s in mine]) if mine else np.empty(0)
            parts.append(known[key])
        return np.concatenate(parts)

    before = machine_from(found.machine)
    pairs = [(getattr(before, n), getattr(prior, n), row) for n, row in slots]
    start = np.log([a / b if row < 0 else a[row] / b[row] for a, b, row in pairs])
    x = minimise(residuals, np.array([MACHINE_PARAMETERS[n][1] for n, _ in slots]), max_rounds=max_rounds, start=start)
    return {n: [_rounded(e) for e in v] if isinstance(v, list) else _rounded(v) for n, v in values(x).items()}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def fit_left_out(sweeps: Sequence[Sweep], full: NcclFit, systems: Iterable[str]) -> Mapping[str, NcclFit]:
    """Return, for each system, the fit without its rows (starting from the full fit; priors still hold).

    Only the system's own kinds of network and their ancestors are fitted anew: no other kind prices its rows.
    """
    found = {}
    for name in systems:
        kinds = {s.system.network for s in sweeps if s.label == name and s.system.num_islands > 1}
        rest = [s for s in sweeps if s.label != name]
        found[name] = fit(rest, rounds=1, start=full, only={a for kind in kinds for a in _with_ancestors(kind)})
    return found


def _with_ancestors(kind: str) -> list[str]:
    parent = prior_rows()[kind].get("parent")
    return [kind, *(_with_ancestors(parent) if parent else [])]
