"""A traced step executed on a fabric: compute as measured, every collective on the flow engine beside the others.

Ranks of the trace take the GPUs of the fabric in order; a group of n is n consecutive ranks, which traces of the usual
tools number so. Each rank's part of a collective is a task that crosses links with its share of what the collective's
Program puts there, so that ranks which come late make the others wait, and collectives slow each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.errors import SimulationError
from syncline.fabric.fabric import Fabric
from syncline.schedule.collective import Kind
from syncline.sim.bound import bound_of
from syncline.sim.flow.engine import Tasks, run
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions, Routing
from syncline.sim.step.constants import default_constants
from syncline.sim.step.executed.footprint import (
    Floats,
    Flows,
    Longs,
    Rails,
    fold_links,
    pass_flows,
)
from syncline.sim.step.executed.packets import PacketCounts, run_packets
from syncline.sim.step.floor import check_floor
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.replay import priced, sent_bytes, unpriced
from syncline.timeline.collective import operation_of
from syncline.workload.graph import Op, Workload, previous_in_stream

_BOUNDED = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)
IGNORES = ("what the host did", "queues and packet loss", "algorithm changes of the collective library")


@dataclass(frozen=True)
class TracedCollective:
    """One kind of communication of a trace, on the rank that spent most time in it."""

    name: str
    calls: int
    total_s: float
    limiting_link: str


@dataclass(frozen=True, eq=False)
class ExecutedTrace:
    """When each operation of a trace begins and ends on a fabric, and what slowed its collectives."""

    start_s: Floats
    end_s: Floats
    collectives: tuple[TracedCollective, ...]
    routing: str
    floor_s: float = 0.0  # what the busiest group's collectives need at least
    packets: PacketCounts | None = None  # what befell them; None: executed at flow level

    @property
    def level(self) -> str:
        return "flow" if self.packets is None else "packet"

    @property
    def step_time_s(self) -> float:
        return float(self.end_s.max(initial=0.0))


def execute_trace(
    workload: Workload, fabric: Fabric, routing: Routing = "spray", *,
    level: str = "flow", max_packets: int | None = None,
) -> ExecutedTrace:  # fmt: skip
    """Return a traced step as the flow engine runs it, or packet by packet (`level="packet"`)."""
    if workload.num_ranks > fabric.num_gpus:
        raise SimulationError(
            f"the trace has {workload.num_ranks:,} ranks, but {fabric.name} has {fabric.num_gpus:,} GPUs.",
            hint="Name a larger cluster.",
        )
    laid = _Laid(fabric, workload, routing if level == "flow" else "ecmp")
    num = len(workload)
    before = previous_in_stream(workload.rank, workload.stream)
    kept = unpriced(workload)
    delay, size, path = np.zeros(num), np.zeros(num), np.full(num, -1, np.int64)
    alone, sent = priced(workload, machine_from_fabric(fabric), default_constants()), sent_bytes(workload)
    for op in range(num):
        if workload.kind[op] not in (Op.COLLECTIVE, Op.SEND) or kept[op] or workload.ranks[op] < 2:
            delay[op] = alone[op]
            continue
        # Alone it takes what the library takes: what its bytes do not need of that comes before them.
        path[op] = laid.path(op)
        each_s = laid.per_byte_s(int(path[op]))
        size[op] = min(float(sent[op]), alone[op] / each_s)
        delay[op] = alone[op] - size[op] * each_s
    waits = [
        [*workload.dependencies(op).tolist(), *([int(before[op])] if before[op] >= 0 else [])] for op in range(num)
    ]
    if level == "packet":
        return _packets(laid, (delay, size, path, waits), routing, max_packets)
    table = np.stack(laid.rows) if laid.rows else np.zeros((0, len(laid.rails.capacity_Bps)))
    paths, links, capacity_Bps = fold_links(table, laid.rails.capacity_Bps)
    tasks = Tasks.of(
        paths, size_bytes=size, first_path=np.maximum(path, 0), num_paths=(path >= 0).astype(np.int32), delay_s=delay,
        wait_for=waits,
    )  # fmt: skip
    course = run(capacity_Bps if len(links) else np.ones(1), tasks)
    collectives = _collectives(workload, course.begin_s, course.end_s, course.bottleneck, path, links, laid.rails)
    found = ExecutedTrace(course.begin_s, course.end_s, collectives, routing, laid.floor_s(path))
    check_floor(found.step_time_s, found.floor_s, "the trace, executed")
    return found


def _packets(
    laid: _Laid, tasks: tuple[Floats, Floats, Longs, list[list[int]]], routing: Routing, most: int | None
) -> ExecutedTrace:
    """Return a trace packet by packet: each rank's operation sends its own messages."""
    workload = laid.workload
    delay, size, path, waits = tasks
    order = workload.order()
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    keys, flows, own = list(laid.number), [], {}  # type: list[tuple[Any, ...]], list[Flows], dict[tuple[int, int], int]
    mine = np.full(len(path), -1, np.int64)
    for op in np.flatnonzero(path >= 0).tolist():
        what = int(path[op]), int(workload.rank[op])
        if what not in own:
            own[what] = len(flows)
            flows.append(laid.own_flows(keys[what[0]], what[1]))
        mine[op] = own[what]
    ordered = [place[waits[op]].tolist() if waits[op] else [] for op in order.tolist()]
    drawn = run_packets(
        laid.fabric, (delay[order], size[order], mine[order], ordered), flows, routing, most=most, name="the trace"
    )
    begin, end = np.empty(len(order)), np.empty(len(order))
    begin[order], end[order] = drawn.begin_s, drawn.end_s
    collectives = _collectives(workload, begin, end, np.full(len(path), -1), path, np.empty(0, np.int64), laid.rails)
    found = ExecutedTrace(begin, end, collectives, routing, laid.floor_s(path), drawn.counted())
    check_floor(found.step_time_s, found.floor_s, "the trace, packet by packet")
    return found


class _Laid:
    """The footprints of the groups and pairs that a trace has."""

    def __init__(self, fabric: Fabric, workload: Workload, routing: Routing) -> None:
        network = FlowNetwork(fabric, NetworkOptions())
        self.fabric, self.workload = fabric, workload
        self.rails = Rails.on(fabric, network.capacity_Bps[: network.num_links], network.carrier.efficiency, routing)
        self.gpus: Longs = fabric.gpus.astype(np.int64)
        self.number: dict[tuple[Any, ...], int] = {}
        self.rows: list[Floats] = []
        self.traced = np.unique(workload.rank)
        owner = np.repeat(np.arange(len(workload)), np.diff(workload.dep_start))
        received = workload.kind[owner] == Op.RECV
        self.to = dict(zip(workload.deps[received].tolist(), workload.rank[owner[received]].tolist(), strict=True))

    def path(self, op: int) -> int:
        """Return the path of an operation, laid when it is first asked for."""
        w = self.workload
        rank, n = int(w.rank[op]), min(int(w.ranks[op]), self.fabric.num_gpus)
        key: tuple[Any, ...]
        if w.kind[op] == Op.SEND:
            key = ("send", rank, int(self.to.get(op, (rank + 1) % max(w.num_ranks, 2))))
        else:
            operation = operation_of(w.names[int(w.label[op])])
            what = {"all-to-all": "pairs", "all-reduce": "sums"}.get(operation, "ring")
            key = (what, rank // n * n, n)
        if key not in self.number:
            self.number[key] = len(self.rows)
            self.rows.append(self._laid(key))
        return self.number[key]

    def per_byte_s(self, path: int) -> float:
        """Return how long a byte of every rank takes on the busiest link of a group's path."""
        carried = self.rows[path] * self.present(list(self.number)[path])
        return self.rails.longest_s(carried, "traffic of the trace")

    def _laid(self, key: tuple[Any, ...]) -> Floats:
        return self.rails.carried(*self.flows(key)) / self.present(key)

    def present(self, key: tuple[Any, ...]) -> int:
        """Return how many ranks of a group the trace has; where it is one only, that stands for all of them."""
        what, first, last = key
        return 1 if what == "send" else max(1, int(((self.traced >= first) & (self.traced < first + last)).sum()))

    def flows(self, key: tuple[Any, ...]) -> Flows:
        """Return who sends what to whom of a byte that a rank sends."""
        what, first, last = key
        if what == "send":
            return pass_flows(self.gpus[[first]], self.gpus[[last]])
        first = min(first, self.fabric.num_gpus - last)
        group = self.gpus[first : first + last][None, :]
        if what != "pairs":
            return self.rails.gathers(group, sums=what == "sums")
        return self.rails.pairs(group)

    def own_flows(self, key: tuple[Any, ...], rank: int) -> Flows:
        """Return the flows that one rank's operation stands for: its own where all ranks of the group are there."""
        src, dst, weight = self.flows(key)
        present = self.present(key)
        if key[0] == "send" or present < key[2]:
            return src, dst, weight / present
        mine = src == self.gpus[rank]
        return src[mine], dst[mine], weight[mine]

    def floor_s(self, path: Longs) -> float:
        """Return what one group's collectives need at least: they share its links, whatever they overlap with."""
        w, most = self.workload, 0.0
        known = {kind.value.replace("_", "-"): kind for kind in _BOUNDED}
        kinds = [known.get(operation_of(name)) for name in w.names]
        for (what, first, n), number in self.number.items():
            mine = np.flatnonzero(path == number)
            if what == "send" or not len(mine):
                continue
            group = self.gpus[first : first + n] if first + n <= len(self.gpus) else self.gpus[-n:]
            mine = mine[w.rank[mine] == w.rank[mine].min()]
            need: dict[Kind, float] = {}
            for op in mine.tolist():
                kind = kinds[int(w.label[op])]
                if kind is not None:
                    need[kind] = need.get(kind, 0.0) + float(w.size_bytes[op])
            most = max(most, sum(bound_of(self.fabric, kind, group).s_per_byte * size for kind, size in need.items()))
        return most


def _collectives(
    workload: Workload, begin: Floats, end: Floats, bottleneck: Any, path: Longs, links: Longs, rails: Rails
) -> tuple[TracedCollective, ...]:
    """Return, by name, what collectives took on the rank that spent most, and the link that slowed them."""
    found: list[TracedCollective] = []
    for number, name in enumerate(workload.names):
        mine = np.flatnonzero((workload.label == number) & (path >= 0))
        if not len(mine):
            continue
        spent = np.bincount(workload.rank[mine], weights=end[mine] - begin[mine])
        known = bottleneck[mine][bottleneck[mine] >= 0]
        link = rails.link_name(int(links[int(np.bincount(known).argmax())])) if len(known) else ""
        per_rank = int(np.bincount(workload.rank[mine]).max())
        found.append(TracedCollective(name, per_rank, float(spent.max()), link))
    return tuple(found)
