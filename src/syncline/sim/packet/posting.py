"""Programs and traffic as what the packet engine works off: connections, and tasks that wait for each other.

The rules are the executor's and the flow level's: a rank posts all transfers of a round, waits for them, and goes on; a
transfer starts when both ends have posted it; lanes do not wait for each other. What lies inside a host (PCIe to the
NIC) is a delay and a cap of the rate; a message that never leaves its host goes over the host's links, undivided.
Under `ecmp` a connection takes the path that the fabric's routes, and so the flow level, draw for it and the seed.
Where GPUs have several NICs of their own, a program's connection is a flow on each, and its messages are cut over them;
raw traffic goes from NIC to NIC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import SimulationError
from syncline.fabric.distance import chips_forward
from syncline.program import Program
from syncline.sim.flow.engine import Paths
from syncline.sim.flow.expand import participants
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.flow.wired import WiredProgram, wire
from syncline.sim.packet.network import Floats, Ints, Longs, PacketNetwork
from syncline.sim.packet.options import PacketOptions
from syncline.sim.packet.traffic import Traffic
from syncline.sim.transport import message_costs, transport


@dataclass(frozen=True, eq=False)
class PacketJob:
    """One program, when it starts, after which other jobs, and in which traffic class it sends.

    `cap_Bps` is the most a connection may have; `slow` divides the rate of all that a rank sends or receives.
    """

    program: Program
    size_bytes: float
    name: str = ""
    start_s: float = 0.0
    after: tuple[int, ...] = ()
    compute_s: float = 0.0
    traffic_class: int = 0
    cap_Bps: float = np.inf
    slow: Mapping[int, float] = field(default_factory=dict)
    slots_s: tuple[Floats, ...] = ()
    """For each round, in the order of `Outcome.blocks`: when each of its messages may begin at the earliest."""


@dataclass(frozen=True, eq=False)
class ConnectionWays:
    """How each connection goes: `over` is a flow (>= 0), a path inside a host (-2 - path) or nothing (-1)."""

    over: Longs
    delay_ps: Longs
    parts: int = 1  # flows of a connection, one after the other, which its messages are cut over


@dataclass(frozen=True, eq=False)
class RoundTransfers:
    """Transfers of one round: tasks `first .. first + parts * len(src) - 1`, part by part."""

    job: int
    lane: int
    round: int
    first: int
    parts: int
    src: Longs
    dst: Longs
    size_bytes: Longs


@dataclass(frozen=True, eq=False)
class PostedColumns:
    """What the engine was given: columns of tasks, connections and buses, and the ports of each connection.

    Load i has connections `first_flow[i] .. first_flow[i + 1] - 1`.
    """

    columns: Mapping[str, Mapping[str, NDArray[Any]]]
    ways: Paths
    first_flow: Longs


@dataclass
class Posting:
    """Connections and tasks under construction."""

    network: PacketNetwork
    options: PacketOptions
    blocks: list[RoundTransfers] = field(default_factory=list)
    num_tasks: int = 0
    num_flows: int = 0
    ways: Paths = field(default_factory=lambda: Paths.of([]))
    """The ports of each connection, its own first."""
    _flows: list[dict[str, NDArray[np.generic]]] = field(default_factory=list)
    _paths: list[Ints] = field(default_factory=list)
    _columns: list[tuple[Longs, Longs, Longs, Longs]] = field(default_factory=list)
    _wait_count: list[Longs] = field(default_factory=list)
    _wait_for: list[Longs] = field(default_factory=list)

    @cached_property
    def plain(self) -> FlowNetwork:
        """The fabric's routes, one path a connection and NIC: they say through which NICs a message goes."""
        return self._routed("apart")

    @cached_property
    def raw(self) -> FlowNetwork:
        """The same with one path a connection."""
        return self._routed("first")

    def _routed(self, stripes: Literal["apart", "first"]) -> FlowNetwork:
        seed = self.options.seed % (1 << 31)
        options = NetworkOptions("ecmp", seed, "ideal", cross_rail=self.options.cross_rail, stripes=stripes)
        network = FlowNetwork(self.network.fabric, options)
        network.routes = self.network.routes
        network.messages = message_costs(self.network.fabric, transport(self.options.hosts or "ideal"))
        return network

    def tasks(
        self,
        over: ArrayLike,
        size_bytes: ArrayLike,
        delay_ps: ArrayLike,
        waits: tuple[Longs, Longs],
        start_ps: ArrayLike = 0,
    ) -> int:
        """Append tasks and return the number of the first; `waits` are how many each waits for, and for whom."""
        first, count = self.num_tasks, len(waits[0])
        row = tuple(
            np.broadcast_to(np.asarray(column, np.int64), (count,)) for column in (over, size_bytes, delay_ps, start_ps)
        )
        self._columns.append((row[0], row[1], row[2], row[3]))
        self._wait_count.append(waits[0])
        self._wait_for.append(waits[1])
        self.num_tasks += count
        return first

    def connect(self, paths: Paths, label: Longs, traffic_class: int, cap_Bps: ArrayLike = np.inf) -> ConnectionWays:
        """Return the ways of connections with these paths of the fabric: `queue_pairs` flows a path, in order.

        Paths of one connection, a NIC each, follow each other. Between the ends of a path the switches decide, unless
        routing is by hash: then the path is the one drawn.
        """
        stripes = len(paths) // max(len(label), 1)
        if stripes <= 1:
            return self._connect(paths, label, traffic_class, cap_Bps)
        cap = np.broadcast_to(np.asarray(cap_Bps, np.float64), label.shape) / stripes
        each = np.repeat(label * stripes, stripes) + np.arange(len(paths)) % stripes
        ways = self._connect(paths, each, traffic_class, np.repeat(cap, stripes))
        delay = ways.delay_ps.reshape(-1, stripes).max(axis=1)
        return ConnectionWays(ways.over[::stripes], delay, stripes * self.options.queue_pairs)

    def _connect(self, paths: Paths, label: Longs, traffic_class: int, cap_Bps: ArrayLike) -> ConnectionWays:
        links, count = self.network.fabric.links, len(paths)
        port, row = self.network.port_of_link[paths.link], paths.row_of_crossing()
        crossing = np.flatnonzero(port >= 0)
        first, last = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        first[row[crossing][::-1]] = crossing[::-1]
        last[row[crossing]] = crossing
        outside = first >= 0
        _refuse_slow_inside(paths, ~outside, cap_Bps)
        # Links before the first and after the last network link are inside hosts.
        place = np.arange(len(paths.link))
        inner = (place < first[row]) | (place > last[row]) | ~outside[row]
        delay, cap = np.zeros(count), np.broadcast_to(np.asarray(cap_Bps, np.float64), (count,)).copy()
        np.add.at(delay, row[inner], links.latency_s[paths.link[inner]])
        np.minimum.at(cap, row[inner], links.rate_Bps[paths.link[inner]])
        over = np.full(count, -1, np.int64)
        begins, ends = paths.link[first[outside]], paths.link[last[outside]]
        over[outside] = self._add_flows(
            links.src[begins], links.dst[ends], port[first[outside]], label[outside], cap[outside], traffic_class
        )
        counts = np.where(outside, last - first + 1, 0)[outside]
        self._add_ways(Paths(np.concatenate(([0], np.cumsum(counts))), port[~inner].astype(np.int32)))
        local = np.flatnonzero(~outside & (np.diff(paths.start) > 0))
        over[local] = -2 - (len(self._paths) + np.arange(len(local)))
        self._paths.extend(paths.link[paths.start[i] : paths.start[i + 1]] for i in local)
        message = np.where(outside, self.options.message_s, 0.0)
        return ConnectionWays(over, np.round((delay + message) * 1e12).astype(np.int64), self.options.queue_pairs)

    def _add_flows(self, src: Ints, dst: Ints, port: Longs, label: Longs, cap: Floats, traffic_class: int) -> Longs:
        network, pairs = self.network, self.options.queue_pairs
        if chips_forward(network.fabric):
            port = network.access_port[network.endpoint_of[src]].astype(np.int64)
        count = len(port)
        many, pair = np.divmod(np.arange(count * pairs), pairs)
        goal = network.endpoint_of[dst]
        slot = (goal - network.endpoint_of[src]) % max(1, len(network.endpoints))
        self._flows.append({
            "port": port[many].astype(np.int32),
            "dst": goal[many].astype(np.int32),
            "profile": np.full(count * pairs, traffic_class, np.uint8),
            "slot": slot[many].astype(np.int32),
            "label": ((label[many] * 64 + pair) * 2_654_435_761 % (1 << 32)).astype(np.uint32),
            "cap_Bps": np.where(cap < network.rate_Bps[port], cap, 0.0)[many] / pairs,
        })  # fmt: skip
        first = self.num_flows + np.arange(count) * pairs
        self.num_flows += count * pairs
        return first

    def _add_ways(self, ways: Paths) -> None:
        """Append the ports of connections, `queue_pairs` times each; a chip that forwards has a port inside, too."""
        network = self.network
        if chips_forward(network.fabric):
            up, down = (network.access_port[network.endpoint_of[ends]] for ends in _ends(network, ways))
            rows = [np.array([up[i], *ways.row(i), network.back[down[i]]]) for i in range(len(ways))]
            ways = Paths.of(rows)
        self.ways = self.ways.then(ways.take(np.repeat(np.arange(len(ways)), self.options.queue_pairs)))

    def post(
        self, over: Longs, size_bytes: Longs, delay_ps: Longs, waits: tuple[Longs, Longs], start_ps: ArrayLike = 0,
        pairs: int = 1,
    ) -> tuple[int, int]:  # fmt: skip
        """Append messages, each cut over `pairs` flows; returns the first task and the parts a message."""
        if pairs == 1 or not (over >= 0).any():
            return self.tasks(over, size_bytes, delay_ps, waits, start_ps), 1
        starts = np.broadcast_to(np.asarray(start_ps, np.int64), (len(over),))
        first = self.num_tasks
        for part in range(pairs):
            flows = over >= 0
            share = size_bytes // pairs + (part < size_bytes % pairs)
            mine = np.where(flows, share, size_bytes if part == 0 else 0)
            self.tasks(np.where(flows, over + part, over if part == 0 else -1), mine, delay_ps, waits, starts)
        return first, pairs

    def columns(self) -> dict[str, dict[str, NDArray[np.generic]]]:
        """Return everything as the engine takes it."""
        over, size, delay, start = (np.concatenate([row[i] for row in self._columns]) for i in range(4))
        count = np.concatenate(self._wait_count)
        bus, path_start, path_bus = self._buses()
        empty: dict[str, type] = {
            "port": np.int32, "dst": np.int32, "profile": np.uint8, "slot": np.int32, "label": np.uint32,
            "cap_Bps": np.float64,
        }  # fmt: skip
        return {
            "connections": {
                name: np.concatenate([np.zeros(0, kind), *(part[name] for part in self._flows)]).astype(kind)
                for name, kind in empty.items()
            }
            | self._drawn_ways(),
            "buses": {"rate_Bps": bus, "path_start": path_start, "path_bus": path_bus},
            "tasks": {
                "over": over.astype(np.int32),
                "size_bytes": size.astype(np.int64),
                "delay_ps": delay.astype(np.int64),
                "start_ps": start.astype(np.int64),
                "wait_start": np.concatenate(([0], np.cumsum(count))).astype(np.int64),
                "wait_for": np.concatenate(self._wait_for).astype(np.int32),
            },
        }

    def _drawn_ways(self) -> dict[str, NDArray[np.generic]]:
        """Return the ports after its own that a connection takes by hash; queue pairs of one draw each for itself."""
        start, port = self.ways.start, self.ways.link
        if self.options.queue_pairs > 1:
            return {"way_start": np.zeros(len(start), np.int64), "way_port": np.zeros(0, np.int32)}
        after = np.delete(port, start[:-1])
        return {"way_start": start - np.arange(len(start)), "way_port": after}

    def _buses(self) -> tuple[Floats, Longs, Ints]:
        lengths = np.array([len(path) for path in self._paths], np.int64)
        links = np.concatenate([np.zeros(0, np.int32), *self._paths]).astype(np.int64)
        used, bus = np.unique(links, return_inverse=True)
        rate = self.network.fabric.links.rate_Bps[used].astype(np.float64)
        return rate, np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), bus.astype(np.int32)


def _ends(network: PacketNetwork, ways: Paths) -> tuple[Longs, Longs]:
    """Return the devices at which ways over links begin and end."""
    links = network.fabric.links
    first, last = (network.link[ways.link[at]] for at in (ways.start[:-1], ways.start[1:] - 1))
    return links.src[first].astype(np.int64), links.dst[last].astype(np.int64)


def add_traffic(into: Posting, traffic: Traffic, number: int) -> Longs:
    """Append raw messages; returns their tasks, at whose end they have arrived."""
    if len(traffic) == 0:
        return np.zeros(0, np.int64)
    width = len(into.network.fabric.devices)
    key = (traffic.src * width + traffic.dst) * 8 + traffic.traffic_class
    unique, at = np.unique(key, return_inverse=True)
    turn = np.zeros(len(unique), np.int64)
    if traffic.connections == "own":
        unique, turn, at = key, _turns(at), np.arange(len(key))
    pair, kind = np.divmod(unique, 8)
    over, delay = np.zeros(len(unique), np.int64), np.zeros(len(unique), np.int64)
    for each in np.unique(kind).tolist():
        rows = np.flatnonzero(kind == each)
        wires = into.raw.wire(pair[rows] // width, pair[rows] % width, turn[rows])
        ways = into.connect(wires.paths, pair[rows] + 104_729 * turn[rows], each, traffic.cap_Bps)
        over[rows], delay[rows] = ways.over, ways.delay_ps
    if traffic.num_waits.any() and into.options.queue_pairs > 1:
        raise SimulationError("messages that wait for each other go over one queue pair.", hint="Use queue_pairs=1.")
    waits = (traffic.num_waits, into.num_tasks + traffic.waits_for)
    start = np.round(traffic.start_s * 1e12).astype(np.int64)
    first, parts = into.post(over[at], traffic.size_bytes, delay[at], waits, start, into.options.queue_pairs)
    into.blocks.append(RoundTransfers(number, 0, 0, first, parts, traffic.src, traffic.dst, traffic.size_bytes))
    return first + np.arange(parts * len(traffic))


def _turns(group: Longs) -> Longs:
    """Return for each row how many of its group came before it.

    >>> _turns(np.array([5, 7, 5, 5])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    first = np.searchsorted(ordered, ordered)
    turn = np.zeros(len(group), np.int64)
    turn[order] = np.arange(len(group)) - first
    return turn


def add_job(into: Posting, job: PacketJob, number: int, after: Longs) -> Longs:
    """Append a program, step after step; returns the tasks at whose end it is done. `after` are tasks it waits for."""
    compute = round(job.compute_s * 1e12)
    start = round(job.start_s * 1e12)
    gate = into.tasks(-1, 0, compute, (np.array([len(after)]), after), start)
    last = np.zeros(0, np.int64)
    slots = iter(job.slots_s)
    for step in job.program.steps:
        wired = wire(Program(job.program.name, (step,), job.program.placement), into.plain)
        previous = np.full(wired.num_vertices, gate, np.int64)
        previous[: len(last)] = last[: wired.num_vertices]
        last = _add_step(into, wired, job, number, previous, slots)
    return last


def _add_step(
    into: Posting, wired: WiredProgram, job: PacketJob, number: int, start: Longs, slots: Iterator[Floats]
) -> Longs:
    finals: list[Longs] = []
    label = np.arange(len(wired.wires.first)) + 65_537 * number
    ways = into.connect(wired.wires.paths, label, job.traffic_class, _caps(wired, job))
    for i, lane in enumerate(wired.lanes):
        last, round_ = start.copy(), 0
        for j, phase in enumerate(lane.phases):
            if len(phase) == 0:
                continue
            at = wired.connection[i][j]
            size = np.round(wired.flow_bytes(i, j, job.size_bytes)).astype(np.int64)
            late = ways.delay_ps[at] + np.round(wired.coding_s(i, j, job.size_bytes) * 1e12).astype(np.int64)
            vertices, (vertex, flow) = participants(phase)
            joined = np.bincount(np.searchsorted(vertices, vertex), minlength=len(vertices))
            posting = wired.posting_s(i, j)
            for _ in range(phase.repeat):
                waits = np.stack((last[phase.src], last[phase.dst]), axis=1).ravel()
                open_ps = np.round(next(slots) * 1e12).astype(np.int64) if job.slots_s else 0
                waits_of = (np.full(len(phase), 2), waits)
                first, parts = into.post(ways.over[at], size, late, waits_of, open_ps, ways.parts)
                rows = (first + flow[:, None] + len(phase) * np.arange(parts)).ravel()
                ends = joined * parts
                if posting is not None:  # a rank is not done before it has posted all its messages
                    busy = np.round(posting[vertices] * 1e12)
                    posted = into.tasks(-1, 0, busy, (np.ones_like(ends), last[vertices]))
                    rows, ends = np.insert(rows, np.cumsum(ends), posted + np.arange(len(vertices))), ends + 1
                joins = into.tasks(-1, 0, 0, (ends, rows))
                last[vertices] = joins + np.arange(len(vertices))
                into.blocks.append(RoundTransfers(number, i, round_, first, parts, phase.src, phase.dst, size))
                round_ += 1
        finals.append(last)
    if len(finals) == 1:
        return finals[0]
    together = np.stack(finals, axis=1)
    done = into.tasks(-1, 0, 0, (np.full(len(together), len(finals)), together.ravel()))
    return done + np.arange(len(together))


def _caps(wired: WiredProgram, job: PacketJob) -> Floats:
    """Return the most each connection of a job may have."""
    cap = np.full(len(wired.wires.first), job.cap_Bps)
    slow, last = np.ones(wired.num_vertices), job.program.num_ranks - 1
    for rank, factor in job.slow.items():
        if not 0 <= rank <= last or factor < 1:
            raise SimulationError(f"rank {rank} cannot be slower by {factor}: factors start at 1, ranks end at {last}.")
        slow[rank] = factor
    for i, lane in enumerate(wired.lanes):
        for j, phase in enumerate(lane.phases):
            times, at = np.maximum(slow[phase.src], slow[phase.dst]), wired.connection[i][j]
            np.minimum.at(cap, at[times > 1], (wired.solo_Bps[at] / times)[times > 1])
    return cap


def _refuse_slow_inside(paths: Paths, inside: NDArray[np.bool_], cap_Bps: ArrayLike) -> None:
    if (inside & (np.diff(paths.start) > 0) & np.isfinite(cap_Bps)).any():
        raise SimulationError(
            "a message that stays inside its host cannot be slowed or capped: it never becomes packets.",
            hint="Slow or cap ranks that have a host each, or use the flow level.",
        )
