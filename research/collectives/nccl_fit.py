"""Fit the model's constants to published rows and keep those that the rows need: network kinds, then the machine.

    python -m research.collectives.fit_constants     # writes sim/data/nccl_fitted.yaml anew

Every constant may differ from its prior, a network kind's from its parent's. A fit frees all of them, then drops what
the rows cannot tell from the prior, half of the weak ones at a time, and fits the rest anew. What is left reads as what
it is named: it lies in a range that physics allows. The fit without one system after another, of the constants that
were kept, gives the left-out errors and the intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from research.robust import minimise

from syncline.sim.nccl.constants import NcclConstants, constants_from, machine_from, prior_rows
from syncline.sim.nccl.job import NcclOperation
from syncline.sim.nccl.predict import chosen_pairs, times_us
from syncline.sim.nccl.system import NcclSystem

Floats = npt.NDArray[np.float64]
#: A constant of the machine: its name and the row of its table by GPU generation, -1 for a single number.
Slot = tuple[str, int]
Name = TypeVar("Name", str, Slot)


@dataclass(frozen=True)
class Reading:
    """What a constant may be: its range in its own unit, and how far it strays from its prior (in log units)."""

    least: float
    most: float
    stray: float
    rows: tuple[int, ...] = (-1,)


#: Of a network kind; `sim/data/nccl_networks.yaml` says what each one is. Whole hops, in us.
NETWORK: dict[str, Reading] = {
    "hop_us": Reading(0.1, 60, 0.6),  # 35 where a process on the host moves every message
    "simple_hop_us": Reading(1, 100, 0.6),  # with copying a chunk; aws-ofi-nccl itself reports 75
    "tree_level": Reading(1, 2, 0.4),  # two children: twice a level with one at most
    "ring_hop": Reading(0.5, 8, 0.8),
    "ring_ll128_pace_us": Reading(0.1, 30, 0.5),
    "proxy": Reading(0.05, 1, 0.5),  # 1: the messages of all channels in turn
    "nic_cap_GBps": Reading(1, 100, 0.4),
    "efficiency": Reading(0.3, 0.985, 0.3),  # no wire is all payload
    "many_hosts": Reading(0.5, 1, 0.03),
    "ll_us_per_KiB": Reading(0.02, 2, 0.8),  # a memory copy: 50 to 0.5 GB/s
    "ll128_share": Reading(0.1, 1, 0.8),
    "pipeline": Reading(0.2, 5, 0.6),
    "overlap": Reading(1, 4, 0.2),  # 1: nothing hides
    "channel_us": Reading(0.02, 5, 0.8),
    "nvlstree_level_us": Reading(5, 500, 0.8),
    "alltoall_base_us": Reading(1, 100, 0.6),  # one launch and a message or two
    "alltoall_peer_us": Reading(0.1, 30, 0.8),
    "alltoall_tiny": Reading(1, 5, 0.6),
    "alltoall_efficiency": Reading(0.3, 0.985, 0.3),
    "alltoall_falloff": Reading(0.005, 0.6, 0.6),
    "crowding": Reading(0.005, 0.5, 0.5),
}
_ALL = (0, 1, 2, 3, 4)
#: Of the machine; `sim/data/nccl_machine.yaml` says what each one is.
MACHINE: dict[str, Reading] = {
    "nvlink_efficiency": Reading(0.5, 1, 0.1, _ALL),
    "nvls_efficiency": Reading(0.5, 1, 0.1, (2, 3)),
    "nvls_wide_efficiency": Reading(0.5, 1, 0.2, (3,)),
    "intra_ll_us": Reading(0.1, 5, 0.4, _ALL),
    "one_host_ll_us_per_KiB": Reading(0.005, 1, 0.6, _ALL),
    "launch_us_per_gpu": Reading(0.5, 20, 0.5),
    "p2p_base_us": Reading(1, 40, 0.3),
    "p2p_launch_us_per_gpu": Reading(0.5, 40, 0.5),
    "p2p_channel_GBps": Reading(10, 200, 0.3, (1, 2, 3)),
    "p2p_net_share": Reading(0.5, 1, 0.2),
    "alltoall_pipeline": Reading(0.05, 2, 0.4),
    "alltoall_share": Reading(0.5, 1, 0.1),
    "sendrecv_share": Reading(0.5, 1, 0.1),
    "one_host_pipeline": Reading(0.05, 2, 0.5),
    "nvls_pipeline": Reading(0.05, 2, 0.5, (2, 3)),
    "tree_ll128_pipeline": Reading(0.05, 2, 0.3),
    "tree_simple_pipeline": Reading(0.05, 2, 0.3),
    "nvlstree_pipeline": Reading(0.05, 2, 0.4, (2, 3)),
    "nvlstree_share": Reading(0.5, 1, 0.15),
    "nvlstree_inside": Reading(0.5, 1, 0.1),
    "ring_ll_copy": Reading(0.05, 1, 0.5),
    "ring_ll_pace": Reading(0.05, 1, 0.5),
    "ring_ll128_share": Reading(0.3, 1, 0.1),
    "ring_chunk_KiB": Reading(1, 512, 0.7),
    "ring_small_share": Reading(0.05, 1, 0.3),
    "tree_ll_chunk_KiB": Reading(1, 512, 0.5),
}
#: Kinds without rows of their own that stand for what their children have in common: what a new one is likely to be.
SHARED = ("unknown",)
#: Standard errors, squared, that a constant of a selected fit is off its prior at least. Rows are counted as if each
#: were drawn by itself, but the dozen rows of a sweep err together: 60 are two standard errors of whole sweeps.
NEEDED = 60.0


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
    """Values found so far, over the priors: of the machine and of each kind of network."""

    machine: dict[Slot, float] = field(default_factory=dict)
    networks: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def num_constants(self) -> int:
        return len(self.machine) + sum(map(len, self.networks.values()))

    def machine_rows(self) -> dict[str, float | list[float]]:
        """Return the machine's values as its data file has them: tables whole, priors where a row was not kept."""
        prior, found = machine_from({}), dict[str, float | list[float]]()
        for (name, row), value in self.machine.items():
            if row < 0:
                found[name] = value
            else:
                table = found.setdefault(name, list(getattr(prior, name)))
                assert isinstance(table, list)
                table[row] = value
        return found

    def constants(self) -> NcclConstants:
        """Return the priors with these values over them."""
        return constants_from(self.machine_rows(), self.networks)


def fit(sweeps: Sequence[Sweep], *, rounds: int = 3, needed: float = NEEDED) -> NcclFit:
    """Return the constants that the sweeps need, fitted: after a round with all of them, `rounds` that select."""
    found = _turn(sweeps, NcclFit(), 0.0)
    for _ in range(rounds):
        found = _turn(sweeps, found, needed)
    return found


def _turn(sweeps: Sequence[Sweep], before: NcclFit, needed: float, only: Collection[str] | None = None) -> NcclFit:
    """Fit every network kind after its parent, then the machine, each from where it was before.

    What was dropped before stays so. With `only`, other kinds keep what they have.
    """
    found = NcclFit(before.machine, dict(before.networks))
    first = not before.machine
    for kind in _parents_first():
        if only is not None and kind not in only:
            continue
        kinds = _children(kind) if kind in SHARED else {kind}
        old = found.networks.pop(kind, None)
        if (mine := _rows_of(sweeps, kinds)) and (first or old is not None):
            found.networks[kind] = _fit_network(kind, mine, found, kinds, old, needed)
    found.machine = _fit_machine(sweeps, found, needed)
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
    kind: str,
    sweeps: Sequence[Sweep],
    found: NcclFit,
    kinds: Collection[str],
    before: Mapping[str, float] | None,
    needed: float,
) -> dict[str, float]:
    """Fit one kind around its parent."""
    prior = found.constants()
    shared = kinds != {kind}
    own = {k: prior_rows()[k] for k in kinds}
    balance = _balance(sweeps) if shared else {}
    base = {n: getattr(prior.networks[kind], n) for n in NETWORK if 0 < getattr(prior.networks[kind], n) < np.inf}
    if shared:  # all-to-all depends on the NIC's queues more than on what its kind is like
        base = {n: value for n, value in base.items() if not n.startswith("alltoall")}

    def residuals(values: Mapping[str, float]) -> Floats:
        trial = prior
        for k in kinds:
            # What a child's own prior says is not its parent's to explain.
            trial = trial.with_network(k, **{n: v for n, v in values.items() if k == kind or n not in own[k]})
        return np.concatenate([s.residual(trial) * balance.get(s.system.network, 1.0) for s in sweeps])

    start = base if before is None else before
    return _select(residuals, {n: (base[n], NETWORK[n]) for n in start}, start, needed)


def _balance(sweeps: Sequence[Sweep]) -> dict[str, float]:
    """Return a weight for each kind of network, so that one with many rows does not speak for all."""
    rows: dict[str, int] = {}
    for sweep in sweeps:
        rows[sweep.system.network] = rows.get(sweep.system.network, 0) + len(sweep.sizes)
    return {kind: min(1.0, 50 / number) for kind, number in rows.items()}


def _fit_machine(sweeps: Sequence[Sweep], found: NcclFit, needed: float) -> dict[Slot, float]:
    prior = machine_from({})
    base: dict[Slot, float] = {
        (name, row): getattr(prior, name) if row < 0 else getattr(prior, name)[row]
        for name, reading in MACHINE.items()
        for row in reading.rows
    }
    by_row = {row: [s for s in sweeps if s.system.facts.machine_row == row] for row in _ALL}
    known: dict[object, Floats] = {}  # a generation's rows change with its own constants and the shared ones

    def residuals(values: Mapping[Slot, float]) -> Floats:
        trial, parts = NcclFit(dict(values), found.networks).constants(), []
        for row, mine in by_row.items():
            key = (row, *(item for item in values.items() if item[0][1] in (-1, row)))
            if key not in known:
                known[key] = np.concatenate([s.residual(trial) for s in mine]) if mine else np.empty(0)
            parts.append(known[key])
        return np.concatenate(parts)

    start = found.machine or base
    return _select(residuals, {slot: (base[slot], MACHINE[slot[0]]) for slot in start}, start, needed)


def _select(
    residuals: Callable[[Mapping[Name, float]], Floats],
    candidates: Mapping[Name, tuple[float, Reading]],
    start: Mapping[Name, float],
    needed: float,
) -> dict[Name, float]:
    """Fit the candidates (prior, reading), and fit anew without the weakest until all are needed."""
    rounds, names = 25, list(candidates)
    steps = {n: float(np.log(start[n] / prior)) for n, (prior, _) in candidates.items()}

    def values(x: Floats) -> dict[Name, float]:
        return {n: candidates[n][0] * float(np.exp(step)) for n, step in zip(names, x, strict=True)}

    while names:
        prior, readings = np.array([candidates[n][0] for n in names]), [candidates[n][1] for n in names]
        found = minimise(
            lambda x: residuals(values(x)),
            np.array([each.stray for each in readings]),
            start=np.array([steps[n] for n in names]),
            max_rounds=rounds,
            bounds=(
                np.log([each.least for each in readings] / prior),
                np.log([each.most for each in readings] / prior),
            ),
        )
        steps = dict(zip(names, found.x.tolist(), strict=True))
        weakest = int(np.argmin(found.wald))
        if found.wald[weakest] >= needed:
            return {n: _rounded(value) for n, value in values(found.x).items()}
        del names[weakest]
        rounds = 5
    return {}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def fit_left_out(sweeps: Sequence[Sweep], full: NcclFit, systems: Iterable[str]) -> Mapping[str, NcclFit]:
    """Return, for each system, the constants of the full fit as they are without its rows.

    Only the system's own kinds of network and their ancestors are fitted anew: no other kind prices its rows.
    """
    found = {}
    for name in systems:
        kinds = {s.system.network for s in sweeps if s.label == name and s.system.num_islands > 1}
        rest = [s for s in sweeps if s.label != name]
        found[name] = _turn(rest, full, 0.0, {a for kind in kinds for a in _with_ancestors(kind)})
    return found


def _with_ancestors(kind: str) -> list[str]:
    parent = prior_rows()[kind].get("parent")
    return [kind, *(_with_ancestors(parent) if parent else [])]
