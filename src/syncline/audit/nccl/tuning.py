"""Rows for NCCL's tuner plugin where its own choice is a poor one, in the form the example plugin reads.

NCCL chooses by what it believes. The fitted model (`sim.nccl.expect`) says what each choice really takes, and the flow
level says whether ring or tree suits this network at that size. A row is written only where the fitted model promises
at least `MIN_GAIN`, which is more than its own usual error, and the flow level does not object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline import units
from syncline.errors import SynclineError
from syncline.fabric import Fabric
from syncline.program import place
from syncline.schedule import Kind
from syncline.sim.candidates import find
from syncline.sim.nccl.belief import CHOSEN_OPS
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.predict import predict
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.routing import Network, NetworkOptions
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

    @property
    def line(self) -> str:
        name = _ALGORITHMS.get(self.algorithm, self.algorithm.lower())
        return (f"{_NAMES[self.op]},{self.min_bytes},{self.max_bytes},{name},{self.protocol.lower()},-1,"
                f"{self.num_hosts},{self.num_ranks}")  # fmt: skip

    @property
    def reason(self) -> str:
        return (f"NCCL takes {self.instead_of}; {self.algorithm}/{self.protocol} should save up to {self.gain:.0%} "
                f"(fitted model; flow level: {self.flow})")  # fmt: skip

    def to_json(self) -> dict[str, object]:
        return {"line": self.line, "reason": self.reason, "gain": self.gain, "flow": self.flow}


def tuner_rows(
    fabric: Fabric, *, ops: Sequence[str] = ("all_reduce",), nccl: str | None = None, ranks: int | None = None
) -> list[TunerRow]:
    """Return the ranges in which NCCL chooses badly on this cluster."""
    per_host = max(1, fabric.num_gpus // fabric.num_hosts)
    hosts = min(fabric.num_hosts, -(-ranks // per_host)) if ranks else fabric.num_hosts
    system = from_fabric(fabric, num_hosts=hosts, software={"nccl": nccl} if nccl else None)
    if why_no_tuner(system):
        return []
    found: list[TunerRow] = []
    flow = _Flow(fabric, min(system.num_ranks, FLOW_RANKS))
    for op in (op for op in ops if op in CHOSEN_OPS):
        prediction = predict(system, op, [float(size) for size in _SIZES])
        for i, size in enumerate(_SIZES):
            gain = 1 - float(prediction.fastest_us[i] / prediction.time_us[i])
            chosen, better = prediction.pairs[i], prediction.fastest[i]
            says = flow.says(op, better[0], chosen[0], size) if gain >= MIN_GAIN else ""
            if gain >= MIN_GAIN and says != "no":
                row = TunerRow(op, size, 2 * size - 1, *better, system.num_hosts, system.num_ranks, "/".join(chosen),
                               gain, says)  # fmt: skip
                found = _joined(found, row)
    return found


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


def tuner_csv(rows: Sequence[TunerRow], fabric: Fabric) -> str:
    """Return the file for NCCL_TUNER_CONFIG_FILE, a comment with the reason over each row."""
    lines = [f"# Choices for {fabric.name}; everything not listed is left to NCCL.", f"# {HEADER}"]
    for row in rows:
        span = f"{units.show_size(row.min_bytes)} to {units.show_size(row.max_bytes + 1)}"
        lines += [f"# {span}: {row.reason}", row.line]
    return "\n".join(lines) + "\n"


def _joined(rows: list[TunerRow], row: TunerRow) -> list[TunerRow]:
    """Add a row, joined to the last one where that is the same choice at the size before."""
    last = rows[-1] if rows else None
    same = last and (last.op, last.algorithm, last.protocol) == (row.op, row.algorithm, row.protocol)
    if last is None or not same or last.max_bytes + 1 != row.min_bytes:
        return [*rows, row]
    was = last.instead_of if last.instead_of == row.instead_of else f"{last.instead_of} or {row.instead_of}"
    flow = last.flow if last.flow == row.flow else "mixed"
    joined = TunerRow(row.op, last.min_bytes, row.max_bytes, row.algorithm, row.protocol, row.num_hosts, row.num_ranks,
                      was, max(last.gain, row.gain), flow)  # fmt: skip
    return [*rows[:-1], joined]


class _Flow:
    """Ring against tree at flow level, where both can be simulated."""

    def __init__(self, fabric: Fabric, num_ranks: int) -> None:
        self._fabric, self._num_ranks = fabric, num_ranks
        self._contest: Contest | None = None
        self._tried = False

    def says(self, op: str, better: str, chosen: str, size: int) -> str:
        """Return "yes", "no" or "cannot say" to: is `better` better than `chosen` at this size?"""
        families = {"Ring": "rail-rings", "Tree": "double-tree"}
        if op != "all_reduce" or {better, chosen} != set(families):
            return "cannot say"  # NVLS and CollNet reduce in switches, which the flow level does not price for NCCL
        contest = self._open(tuple(families.values()))
        if contest is None:
            return "cannot say"
        return (
            "yes" if contest.one(families[better], size).time_s < contest.one(families[chosen], size).time_s else "no"
        )

    def _open(self, names: tuple[str, ...]) -> Contest | None:
        if not self._tried:
            self._tried = True
            try:
                schedules = {name: find(self._fabric, Kind.ALL_REDUCE, self._num_ranks, name) for name in names}
                placed = place("packed", self._fabric, self._num_ranks)
                self._contest = Contest.of(schedules, placed, Network(self._fabric, NetworkOptions()))
            except SynclineError:
                self._contest = None
        return self._contest
