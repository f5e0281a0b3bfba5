"""Fit the model's constants to published rows: network kinds around their parents, then the machine, in turns.

    python benchmarks/fit_collectives.py     # writes data/nccl_fitted.yaml and data/nccl_interval.yaml anew

Few constants, each with a name and a prior; a kind that no rows cover keeps its parent's. The same fit without one
system after another gives the left-out errors and the intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.sim.nccl.constants import Constants, constants_from, machine_from, prior_rows
from syncline.sim.nccl.job import Job
from syncline.sim.nccl.predict import chosen_pairs, times_us
from syncline.sim.nccl.robust import minimise
from syncline.sim.nccl.system import NcclSystem

Floats = npt.NDArray[np.float64]

# Constant of a network kind -> (what NCCL's own table adds to it, how far it may stray from its parent, in log units).
NETWORK_PARAMETERS: dict[str, tuple[float, float]] = {
    "hop_us": (5.0, 0.6),
    "simple_hop_us": (14.0, 0.6),
    "tree_simple_hop_us": (14.0, 0.3),
    "ring_ll_hop_us": (0.0, 0.8),
    "ring_ll128_hop_us": (0.0, 0.8),
    "ring_pace_us": (0.0, 0.8),
    "nic_cap_GBps": (0.0, 0.4),
    "efficiency": (0.0, 0.3),
    "ll_us_per_KiB": (0.0, 0.8),
    "ll128_share": (0.0, 0.8),
    "pipeline": (0.0, 0.6),
    "overlap": (0.0, 0.2),
    "channel_us": (0.0, 0.8),
    "nvlstree_host_us": (0.0, 0.8),
    "alltoall_base_us": (0.0, 0.6),
    "alltoall_peer_us": (0.0, 0.8),
    "alltoall_tiny": (0.0, 0.6),
    "alltoall_efficiency": (0.0, 0.3),
    "alltoall_falloff": (0.0, 1.0),
}
# Constant of the machine -> (rows of its table by GPU generation, or None for a single number; stray in log units).
MACHINE_PARAMETERS: dict[str, tuple[tuple[int, ...] | None, float]] = {
    "nvlink_efficiency": ((1, 2, 3), 0.1),
    "nvls_efficiency": ((2, 3), 0.1),
    "nvls_wide_efficiency": ((3,), 0.2),
    "intra_ll_us": ((1, 2, 3), 0.4),
    "one_host_ll_us_per_KiB": ((1, 2, 3), 0.6),
    "launch_us_per_gpu": (None, 0.5),
    "one_host_pipeline": (None, 0.5),
    "nvls_pipeline": (None, 0.5),
    "tree_ll128_pipeline": (None, 0.3),
    "tree_simple_pipeline": (None, 0.3),
    "nvlstree_pipeline": (None, 0.4),
    "nvlstree_share": (None, 0.15),
    "nvlstree_inside": (None, 0.1),
    "ring_ll_copy": (None, 0.5),
    "ring_chunk_KiB": (None, 0.7),
}
#: A share cannot pass 1 (no wire is all payload), and overlap cannot be less than none.
_AT_MOST = {"efficiency": 0.985, "alltoall_efficiency": 0.985, "ll128_share": 1.0}
_AT_LEAST = {"overlap": 1.0, "alltoall_tiny": 1.0}


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

    def residual(self, constants: Constants) -> Floats:
        """Return weighted log(predicted / measured)."""
        predicted = times_us(Job(self.system, self.op, constants), self.pairs, self.sizes)
        return np.asarray(self.weight * np.log(predicted / self.time_us))


@dataclass
class Fitted:
    """Values found so far, over the priors."""

    machine: dict[str, Any] = field(default_factory=dict)
    networks: dict[str, dict[str, float]] = field(default_factory=dict)

    def constants(self) -> Constants:
        """Return the priors with these values over them."""
        return constants_from(self.machine, self.networks)


def fit(sweeps: Sequence[Sweep], *, rounds: int = 3, start: Fitted | None = None) -> Fitted:
    """Return constants fitted to the sweeps: every network kind after its parent, then the machine, `rounds` times."""
    found = Fitted(dict(start.machine), dict(start.networks)) if start else Fitted()
    for _ in range(rounds):
        for kind in _parents_first():
            mine = [s for s in sweeps if s.system.num_islands > 1 and s.system.network == kind]
            found.networks.pop(kind, None)
            if mine:
                found.networks[kind] = _fit_network(kind, mine, found)
        found.machine = _fit_machine(sweeps, found)
    return found


def _parents_first() -> list[str]:
    rows = prior_rows()

    def depth(kind: str) -> int:
        parent = rows[kind].get("parent")
        return 1 + depth(parent) if parent else 0

    return sorted(rows, key=depth)


def _fit_network(kind: str, sweeps: Sequence[Sweep], found: Fitted) -> dict[str, float]:
    prior = found.constants()
    base = prior.networks[kind]
    names = [n for n, (offset, _) in NETWORK_PARAMETERS.items() if 0 < getattr(base, n) + offset < np.inf]

    def values(x: Floats) -> dict[str, float]:
        out = {}
        for name, step in zip(names, x, strict=True):
            offset = NETWORK_PARAMETERS[name][0]
            value = (getattr(base, name) + offset) * float(np.exp(step)) - offset
            out[name] = max(min(value, _AT_MOST.get(name, np.inf)), _AT_LEAST.get(name, -np.inf))
        return out

    def residuals(x: Floats) -> Floats:
        trial = prior.with_network(kind, **values(x))
        return np.concatenate([s.residual(trial) for s in sweeps])

    x = minimise(residuals, np.array([NETWORK_PARAMETERS[n][1] for n in names]))
    return {n: _rounded(v) for (n, v), step in zip(values(x).items(), x, strict=True) if abs(step) > 0.01}


def _fit_machine(sweeps: Sequence[Sweep], found: Fitted) -> dict[str, Any]:
    prior = machine_from({})
    slots = [(n, row) for n, (rows, _) in MACHINE_PARAMETERS.items() for row in (rows if rows is not None else (-1,))]

    def values(x: Floats) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for (name, row), step in zip(slots, x, strict=True):
            old = getattr(prior, name)
            if row < 0:
                out[name] = old * float(np.exp(step))
            else:
                table = out.setdefault(name, list(old))
                table[row] = old[row] * float(np.exp(step))
        return out

    def residuals(x: Floats) -> Floats:
        trial = constants_from(values(x), found.networks)
        return np.concatenate([s.residual(trial) for s in sweeps])

    x = minimise(residuals, np.array([MACHINE_PARAMETERS[n][1] for n, _ in slots]), max_rounds=8)
    return {n: [_rounded(e) for e in v] if isinstance(v, list) else _rounded(v) for n, v in values(x).items()}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def fit_left_out(sweeps: Sequence[Sweep], full: Fitted, systems: Iterable[str]) -> Mapping[str, Fitted]:
    """Return, for each system, the fit without its rows (starting from the full fit; priors still hold)."""
    return {name: fit([s for s in sweeps if s.label != name], rounds=2, start=full) for name in systems}
