"""Rows for NCCL's tuner plugin where its own choice is a poor one, in the form the example plugin reads.

NCCL chooses by what it believes. The fitted model (`sim.nccl.expect`) says what every pair of algorithm and protocol
that NCCL may choose there really takes, for each of the five collectives it chooses for; the flow level says whether
the better algorithm suits this network at that size, where it can simulate both. A row is written only where the fitted
model promises at least `MIN_GAIN`, which is more than its own usual error, and the flow level does not object. What
is left to NCCL is written as a comment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from syncline.advice.setting import nccl_system
from syncline.describe import units
from syncline.describe.model import reported
from syncline.errors import SynclineError
from syncline.fabric import Fabric
from syncline.program import place
from syncline.schedule import Kind
from syncline.sim.candidates import find
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.nccl.belief import CHOSEN_OPS
from syncline.sim.nccl.predict import chosen_pairs, predict
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.sweep import Contest, sizes_between

MIN_GAIN = 0.30
MAX_HOSTS = 64
FLOW_RANKS = 64
"""The flow level is asked on so many ranks at most: which of ring and tree wins changes slowly with scale."""
_SIZES = sizes_between(1 << 10, 1 << 34)
_NAMES = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
          "broadcast": "broadcast", "reduce": "reduce"}  # fmt: skip
_ALGORITHMS = {"NVLSTree": "nvls_tree", "CollNetDirect": "collnet_direct", "CollNetChain": "collnet_chain"}
HEADER = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks"


@dataclass(frozen=True)
class TunerRow:
    """One range of sizes with another choice than NCCL's own."""

    op: str
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    num_hosts: int
    num_ranks: int
    instead_of: str
    gain: float
    flow: str
    num_pairs: int
    """Pairs of algorithm and protocol that NCCL may choose from."""
    believes: str
    """What NCCL takes its own choice and the better one for."""

    @property
    def same_as(self) -> tuple[str, ...]:
        return self.op, self.algorithm, self.protocol

    def joined(self, after: TunerRow) -> TunerRow:
        """Return this range with the one after it."""
        was = dict.fromkeys((*self.instead_of.split(" or "), after.instead_of))
        flow = self.flow if self.flow == after.flow else "mixed"
        gain = max(self.gain, after.gain)
        return replace(self, max_bytes=after.max_bytes, instead_of=" or ".join(was), gain=gain, flow=flow)

    @reported
    def line(self) -> str:
        name = _ALGORITHMS.get(self.algorithm, self.algorithm.lower())
        return (f"{_NAMES[self.op]},{self.min_bytes},{self.max_bytes},{name},{self.protocol.lower()},-1,"
                f"{self.num_hosts},{self.num_ranks}")  # fmt: skip

    @reported
    def reason(self) -> str:
        return (f"NCCL takes {self.instead_of} ({self.believes}); {self.algorithm}/{self.protocol}, the best of "
                f"{self.num_pairs} pairs, should save up to {self.gain:.0%} (fitted model; flow level: {self.flow})"
                )  # fmt: skip


@dataclass(frozen=True)
class KeptChoice:
    """One range of sizes that is left to NCCL: its choice, and how much better the best pair would be at most."""

    op: str
    min_bytes: int
    max_bytes: int
    choice: str
    num_pairs: int
    gain: float

    @property
    def same_as(self) -> tuple[str, ...]:
        return self.op, self.choice

    def joined(self, after: KeptChoice) -> KeptChoice:
        """Return this range with the one after it."""
        return replace(self, max_bytes=after.max_bytes, gain=max(self.gain, after.gain))

    @property
    def reason(self) -> str:
        best = f"no other of {self.num_pairs} pairs" if self.gain < 0.005 else f"none of {self.num_pairs} pairs"
        least = "is faster" if self.gain < 0.005 else f"saves more than {self.gain:.0%} (or the flow level objects)"
        return f"{_NAMES[self.op]}: {self.choice} is left to NCCL, {best} {least}"


@dataclass(frozen=True)
class Tuning:
    """What was judged: ranges to change, and ranges left to NCCL."""

    rows: tuple[TunerRow, ...] = ()
    kept: tuple[KeptChoice, ...] = ()


def judge(
    fabric: Fabric, *, ops: Sequence[str] = CHOSEN_OPS, nccl: str | None = None, ranks: int | None = None
) -> Tuning:
    """Judge NCCL's choice for each collective at each size against every pair it may choose."""
    system = nccl_system(fabric, nccl, ranks)
    if why_no_tuner(system):
        return Tuning()
    rows: list[TunerRow] = []
    kept: list[KeptChoice] = []
    flow = _Flow(fabric, min(system.num_ranks, FLOW_RANKS))
    sizes = np.array([float(size) for size in _SIZES])
    for op in (op for op in ops if op in CHOSEN_OPS):
        prediction = predict(system, op, sizes)
        believed = chosen_pairs(system, op, sizes)[1]
        for i, size in enumerate(_SIZES):
            gain = 1 - float(prediction.fastest_us[i] / prediction.time_us[i])
            chosen, better = prediction.pairs[i], prediction.fastest[i]
            says = flow.says(op, better[0], chosen[0], size) if gain >= MIN_GAIN else ""
            if gain >= MIN_GAIN and says != "no":
                thinks = " against ".join(units.show_time(float(believed[pair][i]) / 1e6) for pair in (chosen, better))
                row = TunerRow(op, size, 2 * size - 1, *better, system.num_hosts, system.num_ranks, "/".join(chosen),
                               gain, says, len(believed), f"believing in {thinks}")  # fmt: skip
                _append(rows, row)
            else:
                _append(kept, KeptChoice(op, size, 2 * size - 1, "/".join(chosen), len(believed), gain))
    return Tuning(tuple(rows), tuple(kept))


def why_no_tuner(system: NcclSystem) -> str:
    """Return why no choices can be given for this system, or nothing."""
    if system.tuner:
        return f"the network's own tuner ({system.tuner}) chooses; another one would replace it"
    if system.num_ranks < 2:
        return "one rank needs no collective"
    if system.gpu.startswith("mi"):
        return "RCCL has its own tables"
    if system.num_hosts > MAX_HOSTS:
        return f"the fitted model is proven up to {MAX_HOSTS} hosts, and this job has {system.num_hosts:,}"
    return ""


def tuner_csv(tuning: Tuning, fabric: Fabric) -> str:
    """Return the file for NCCL_TUNER_CONFIG_FILE, a comment with the reason over each row and for each range kept."""
    lines = [f"# Choices for {fabric.name}; everything not listed is left to NCCL.", f"# {HEADER}"]
    for row in tuning.rows:
        lines += [f"# {_span(row)}: {row.reason}", row.line]
    lines += [f"# {_span(kept)}: {kept.reason}" for kept in tuning.kept]
    return "\n".join(lines) + "\n"


def _span(row: TunerRow | KeptChoice) -> str:
    return f"{units.show_size(row.min_bytes)} to {units.show_size(row.max_bytes + 1)}"


Range = TypeVar("Range", TunerRow, KeptChoice)


def _append(ranges: list[Range], one: Range) -> None:
    """Add a range, joined to the last one where that is the same choice at the size before."""
    last = ranges[-1] if ranges else None
    if last is not None and last.same_as == one.same_as and last.max_bytes + 1 == one.min_bytes:
        ranges[-1] = last.joined(one)
    else:
        ranges.append(one)


# PAT is Bruck's exchange, one rank a host. NVLS and CollNet reduce in switches, which is not priced for NCCL.
_FAMILIES = {
    "all_reduce": {"Ring": "rail-rings", "Tree": "double-tree"},
    "all_gather": {"Ring": "ring", "PAT": "bruck"},
    "reduce_scatter": {"Ring": "ring", "PAT": "bruck"},
}


class _Flow:
    """Two algorithms at flow level, where both can be simulated."""

    def __init__(self, fabric: Fabric, num_ranks: int) -> None:
        self._fabric, self._num_ranks = fabric, num_ranks
        self._contests: dict[str, Contest | None] = {}

    def says(self, op: str, better: str, chosen: str, size: int) -> str:
        """Return "yes", "no" or why it cannot say to: is `better` better than `chosen` at this size?"""
        if better == chosen:
            return "the same messages"  # protocols differ in how a message is written, not in where it goes
        families = _FAMILIES.get(op, {})
        contest = self._open(op) if {better, chosen} <= set(families) else None
        if contest is None:
            return "cannot say"
        times = [contest.one(families[algorithm], size).time_s for algorithm in (better, chosen)]
        return "yes" if times[0] < times[1] else "no"

    def _open(self, op: str) -> Contest | None:
        if op not in self._contests:
            try:
                names = _FAMILIES[op].values()
                schedules = {name: find(self._fabric, Kind(op), self._num_ranks, name) for name in names}
                placed = place("packed", self._fabric, self._num_ranks)
                self._contests[op] = Contest.of(schedules, placed, FlowNetwork(self._fabric, NetworkOptions()))
            except SynclineError:
                self._contests[op] = None
        return self._contests[op]
