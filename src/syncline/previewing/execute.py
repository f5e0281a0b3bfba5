"""A captured step executed on a fabric: kernels take their price, collectives share links on the flow engine.

Every collective is one task that crosses each link with what its Program puts there for all groups that do the same at
that time (`sim/step/executed/footprint.py`). What runs beside a collective loses `c_sm` of the time they share, found
in a second pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from syncline.codec.names import PLAIN
from syncline.errors import SimulationError
from syncline.fabric.fabric import Fabric
from syncline.previewing import cpus
from syncline.previewing.axes import axes_of, gradient_groups
from syncline.previewing.graph import StepGraph, durations
from syncline.previewing.place import Longs, groups_of, stages
from syncline.previewing.record import Capture
from syncline.sim.collective.columns import forced
from syncline.sim.flow.engine import Course, Paths, Tasks, run
from syncline.sim.flow.routing import Routing
from syncline.sim.nccl.measured import OPS
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.executed.footprint import Floats, Flows, Rails, fold_links, pass_flows
from syncline.sim.step.executed.stages import laid_group
from syncline.sim.step.machine import Machine
from syncline.sim.step.network import GroupNetwork
from syncline.timeline import intervals
from syncline.workload.graph import Op, previous_in_stream
from syncline.workload.volumes import wire_share

Bools = npt.NDArray[np.bool_]
IGNORES = (
    "queues and packet loss",
    "stragglers",
    "other jobs",
    "data loading",
    "differences between ranks that do the same",
)
ENCODED_BYTES = 12.0
"""What encoding and decoding read and write of one gradient, as in the step model."""
ALGORITHMS = ("ring", "tree")
TWICE, WHOLE = ("all_reduce",), ("broadcast", "reduce", "send", "recv", "gather", "scatter")


@dataclass(frozen=True)
class NetworkUse:
    """How the network is used: what a what-if changes, and the codec of gradients."""

    scale: float = 1.0
    codec: str = PLAIN
    codec_over: str = ""  # the one operation that it encodes; empty: every sum of gradients
    free: bool = False
    algorithm: str = ""  # of all-reduces; empty: what the library chooses
    cores: cpus.SharedCores | None = None  # that ranks on CPUs share; None: each rank has its own

    @classmethod
    def of(cls, captures: tuple[Capture, ...]) -> NetworkUse:
        """Return the network as the script uses it: with the codec that it asked syncline for."""
        facts = captures[0].facts
        return cls(codec=str(facts.get("codec", PLAIN)), codec_over=str(facts.get("codec_over", "")))


@dataclass(frozen=True, eq=False)
class GraphRun:
    """When each operation of two steps began and ended."""

    graph: StepGraph
    begin_s: Floats = field(repr=False)
    end_s: Floats = field(repr=False)
    limiting: dict[int, str] = field(default_factory=dict)  # row of a collective: the link that limited it
    encoded: dict[int, float] = field(default_factory=dict)  # row of a collective: the share of bytes a codec leaves

    @property
    def step_time_s(self) -> float:
        """Return what the last step adds: from the end of the step before it to its own."""
        last = self.graph.num_steps - 1
        ends = [float(self.end_s[self.graph.step == step].max(initial=0.0)) for step in (last - 1, last)]
        return ends[1] - ends[0] if last > 0 else ends[1]

    def rows(self, kinds: tuple[int, ...], rank: int) -> Longs:
        """Return the rows of the last step that are of these kinds, on a rank, beside the host's."""
        graph, work = self.graph, self.graph.workload
        chosen = (
            np.isin(work.kind, kinds) & (work.rank == rank) & (graph.source >= 0) & (graph.step == graph.num_steps - 1)
        )
        return np.flatnonzero(chosen)


def execute(
    graph: StepGraph,
    fabric: Fabric,
    machine: Machine,
    devices: Longs,
    network: NetworkUse | None = None,
    routing: Routing = "spray",
    constants: Constants | None = None,
) -> GraphRun:
    """Return a captured step as the flow engine runs it on the fabric, each rank on its device."""
    k = constants or default_constants()
    laid = _Laid(graph, fabric, machine, devices, k, network or NetworkUse.of(graph.captures), routing)
    delay = durations(graph) * laid.shared()
    size, path = laid.columns(delay)
    first = _run(graph, laid, delay, size, path)
    taken = laid.shared(first) / laid.shared() - 1.0 if laid.on_cpu else k.held.c_sm  # of multiprocessors, by NCCL
    slowed = delay + taken * _beside(graph, first)
    course = _run(graph, laid, slowed, size, path) if (slowed > delay).any() else first
    _, links, _ = laid.folded
    limited = np.flatnonzero((path >= 0) & (course.bottleneck >= 0))
    names = {row: laid.rails.link_name(int(links[course.bottleneck[row]])) for row in limited.tolist()}
    return GraphRun(graph, course.begin_s, course.end_s, names, laid.encoded)


def _run(graph: StepGraph, laid: _Laid, delay: Floats, size: Floats, path: Longs) -> Course:
    work = graph.workload
    before = previous_in_stream(work.rank, work.stream)
    start, deps = work.dep_start.tolist(), work.deps.tolist()
    waits = [
        [*deps[start[op] : start[op + 1]], *([last] if last >= 0 else [])] for op, last in enumerate(before.tolist())
    ]
    paths, _, capacity_Bps = laid.folded
    tasks = Tasks.of(
        paths,
        size_bytes=size,
        first_path=np.maximum(path, 0),
        num_paths=(path >= 0).astype(np.int32),
        delay_s=delay,
        wait_for=waits,
    )
    return run(capacity_Bps if len(capacity_Bps) else np.ones(1), tasks)


class _Laid:
    """The footprints of all groups that a captured step has."""

    def __init__(
        self, graph: StepGraph, fabric: Fabric, machine: Machine, devices: Longs, k: Constants, network: NetworkUse,
        routing: Routing,
    ) -> None:  # fmt: skip
        self.graph, self.devices, self.k, self.network = graph, devices, k, network
        self.on_cpu = graph.captures[0].on_cpu
        self.cores = network.cores
        self.costs = network.cores.costs if network.cores is not None else cpus.host_costs(fabric)
        payload = self.costs.efficiency if self.on_cpu else k.fitted.e_net
        rails, faster = Rails.of(fabric, payload, k.fitted.e_nvl, routing), network.scale
        self.rails = replace(rails, capacity_Bps=rails.capacity_Bps * faster)
        self.machine = replace(machine, nic_Bps=machine.nic_Bps * faster, nvlink_Bps=machine.nvlink_Bps * faster)
        self.members = stages(graph.captures)
        self.number: dict[tuple[str, int, int], int] = {}
        self.table: list[Floats] = []
        self.groups: list[GroupNetwork] = []
        self.each_s: list[float] = []  # what a byte of a rank needs on the busiest link
        self.encoded: dict[int, float] = {}
        self.sent_bytes = 0.0

    def shared(self, course: Course | None = None) -> float:
        """Return how much longer a rank's work takes where ranks share the cores; with a course, beside its messages.

        Else each rank has its own, and so does gloo's thread.
        """
        if self.cores is None or course is None:
            return self.cores.slower() if self.cores is not None else 1.0
        moves = np.flatnonzero(self.graph.group >= 0)
        busy = union(course.begin_s[moves], course.end_s[moves])
        return self.cores.slower(self.sent_bytes, float((busy[:, 1] - busy[:, 0]).sum()))

    def columns(self, delay: Floats) -> tuple[Floats, Longs]:
        """Return bytes and path of every operation, and write what a call costs into `delay`."""
        graph, work = self.graph, self.graph.workload
        size, path = np.zeros(len(work)), np.full(len(work), -1, np.int64)
        apart_s = self._apart_s() if self.on_cpu else np.zeros(len(work))
        for row in np.flatnonzero(graph.group >= 0).tolist():
            what, n = work.names[int(work.label[row])], int(work.ranks[row])
            if self.network.free or n < 2 or work.kind[row] == Op.RECV:
                continue
            whole, share = float(work.size_bytes[row]), self._shrunk(row, what)
            coding_s = self._coding_s(whole) if share < 1 else 0.0
            if share < 1:
                self.encoded[row] = share
            sent = (cpus.sent_bytes if self.on_cpu else sent_bytes)(what, whole, n) * share
            self.sent_bytes += sent
            if not self.on_cpu:  # alone it takes what the library takes; others share its links
                at, alone_s = self._priced(row, what, share * whole)
                each_s = self.each_s[at]
                delay[row] = coding_s + (alone_s if each_s == 0 else 0.0)
                size[row], path[row] = (alone_s / each_s, at) if each_s > 0 else (0.0, -1)
                continue
            delay[row] = cpus.call_s(self.costs, what, n) + coding_s
            delay[row] += cpus.waits_s(n, float(apart_s[row]), graph.noise_s[int(work.rank[row])])
            if self.network.algorithm == "tree" and what in TWICE:
                sent *= n / (n - 1)  # every rank passes the whole up and down
            if sent > 0:
                size[row], path[row] = sent, self._path(row, what)
        return size, path

    def _coding_s(self, size_bytes: float) -> float:
        if self.on_cpu:
            return cpus.CODING_S_PER_BYTE * size_bytes
        return ENCODED_BYTES * size_bytes / self._width / self.machine.hbm_Bps

    def _apart_s(self) -> Floats:
        """Return for each collective what its rank has worked since the one before it."""
        work = self.graph.workload
        found = np.zeros(len(work))
        for rank in range(len(self.graph.captures)):
            mine = np.flatnonzero(work.rank == rank)
            worked = np.cumsum(np.where(work.kind[mine] == Op.COMPUTE, np.nan_to_num(work.duration_s[mine]), 0.0))
            met = self.graph.group[mine] >= 0
            found[mine[met]] = np.diff(worked[met], prepend=0.0)
        return found

    def _priced(self, row: int, what: str, size_bytes: float) -> tuple[int, float]:
        """Return the path of a collective, and what the library takes for it."""
        sends = self.graph.workload.kind[row] == Op.SEND
        at = self._path(row, what)
        group, operation = self.groups[at], "send_recv" if sends else what if what in OPS else "all_gather"
        if what == "barrier":
            operation, size_bytes = "all_reduce", 4.0
        if self.network.algorithm and what in TWICE:
            columns = group.groups
            library = forced(columns.library, self.network.algorithm)
            group = replace(group, groups=columns._replace(library=library))
        return at, float(group.takes_s(operation, np.asarray(size_bytes)))

    def _shrunk(self, row: int, what: str) -> float:
        """Return the share of bytes that a codec leaves: of gradients that are summed."""
        if self.network.codec == PLAIN or what not in ("all_reduce", "reduce_scatter"):
            return 1.0
        if self.network.codec_over not in ("", what):
            return 1.0
        rank, source = int(self.graph.workload.rank[row]), int(self.graph.source[row])
        backward = self.graph.captures[rank].ops[source].phase == "backward"
        if not backward or int(self.graph.group[row]) not in self._gradients[rank]:
            return 1.0
        return wire_share(self.network.codec, self._width)

    @cached_property
    def _gradients(self) -> list[set[int]]:
        """Return the groups of each captured rank that sum gradients."""
        return [gradient_groups(captured) for captured in self.graph.captures]

    @cached_property
    def _width(self) -> float:
        """Return the bytes of a gradient on the wire."""
        return float(axes_of(self.graph.captures).gradient_bytes)

    def _path(self, row: int, what: str) -> int:
        work = self.graph.workload
        rank = int(work.rank[row])
        summed = "rings" if self.on_cpu else "sums"  # NCCL has trees too
        kind = "send" if work.kind[row] == Op.SEND else {"all_to_all": "pairs", "all_reduce": summed}.get(what, "rings")
        key = (kind, rank, int(self.graph.peer[row] if kind == "send" else self.graph.group[row]))
        if key not in self.number:
            self.number[key] = len(self.table)
            groups, flows = self._flows(*key)
            self.table.append(self.rails.carried(*flows))
            if not self.on_cpu:
                pairs, sums = kind == "pairs", kind == "sums"
                made = laid_group(self.rails, self.machine, self.k, groups, self.table[-1], pairs=pairs, sums=sums)
                self.groups.append(made)
                self.each_s.append(self.rails.longest_s(self.table[-1], "traffic of the script"))
        return self.number[key]

    def _flows(self, kind: str, rank: int, other: int) -> tuple[Longs, Flows]:
        captured, members = self.graph.captures[rank], self.members[rank]
        if kind == "send":
            away = members + (other - captured.rank)
            inside = (away >= 0) & (away < captured.world)
            ends = self.devices[members[inside]], self.devices[away[inside]]
            return np.stack(ends, axis=1), pass_flows(*ends)
        groups = self.devices[groups_of(captured, other, members)]
        return groups, self.rails.pairs(groups) if kind == "pairs" else self.rails.gathers(groups, sums=kind == "sums")

    @cached_property
    def folded(self) -> tuple[Paths, Longs, Floats]:
        """Return the paths of all that is sent over links of which those that carry alike are one."""
        table = np.stack(self.table) if self.table else np.zeros((0, len(self.rails.capacity_Bps)))
        paths, links, capacity_Bps = fold_links(table, self.rails.capacity_Bps)
        if (capacity_Bps <= 0).any():
            link = self.rails.link_name(int(links[int(np.argmin(capacity_Bps))]))
            raise SimulationError(f"{link} is down, and traffic of the script has no other way.")
        return paths, links, capacity_Bps


def sent_bytes(what: str, size_bytes: float, n: int) -> float:
    """Return what a rank sends: an all-reduce's buffer crosses the ring twice.

    >>> sent_bytes("all_reduce", 8.0, 4), sent_bytes("all_gather", 8.0, 4), sent_bytes("barrier", 0.0, 4)
    (12.0, 6.0, 0.0)
    """
    if what in WHOLE:
        return size_bytes
    return (2.0 if what in TWICE else 1.0) * (n - 1) / n * size_bytes


def _beside(graph: StepGraph, course: Course) -> Floats:
    """Return for each kernel how long a collective of its rank ran beside it."""
    work = graph.workload
    found = np.zeros(len(work))
    for rank in range(len(graph.captures)):
        mine = work.rank == rank
        moves = np.flatnonzero(mine & np.isin(work.kind, (Op.COLLECTIVE, Op.SEND)) & (course.end_s > course.begin_s))
        kernels = np.flatnonzero(mine & (work.kind == Op.COMPUTE) & (graph.source >= 0))
        busy = union(course.begin_s[moves], course.end_s[moves])
        found[kernels] = covered(busy, course.begin_s[kernels], course.end_s[kernels])
    return found


def union(begin: Floats, end: Floats) -> Floats:
    """Return disjoint intervals, in order, as rows."""
    joined = intervals.union(np.zeros(len(begin), np.int64), begin, end)
    return np.stack((joined.start_s, joined.end_s), axis=1)


def covered(spans: Floats, begin: Floats, end: Floats) -> Floats:
    """Return how much of each interval [begin, end] the disjoint spans cover."""
    if not len(spans):
        return np.zeros(len(begin))
    edges = spans.ravel()
    total = np.concatenate(([0.0], np.cumsum(np.diff(spans, axis=1).ravel())))

    def until(at: Floats) -> Floats:
        place = np.searchsorted(edges, at, side="right")
        whole = place // 2
        inside = np.where(place % 2 == 1, at - edges[np.minimum(place - 1, len(edges) - 1)], 0.0)
        return np.asarray(total[whole] + inside)

    return until(end) - until(begin)
