"""What a program takes on shaped links between real hosts: the flow engine with the costs of a host around it.

    wiring = Wiring.of(rates, paths, host_of_rank, burst_bytes=20_000)     # the lab exports these; so can a cluster
    script = script_of(program, 1 << 20, wiring)
    predict(script, costs)                                                 # seconds
    chronicle(script, costs)                                               # the same as a Timeline

The program is executed as the runtime's executor executes it: a rank posts the receives of a round, then its sends, one
after the other; a message moves when both ends have posted it; what is reduced is added in order of arrival. Five
numbers describe the hosts and are fitted by `fit` (`sim/emulate/host_fit.py`); everything else is the description.
docs/method/emulation.md says where each comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import SimulationError
from syncline.fabric.spec import ClusterSpec
from syncline.program import Placement
from syncline.program.program import Program, RankRound, VendorStep
from syncline.sim.emulate.marks import Mark, timeline_of
from syncline.sim.flow.engine import Course, Floats, Paths, Tasks, run
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.timeline import SpanKind, Timeline

IGNORES = ("other processes on the hosts", "packet loss and retransmission", "slow start", "queues beyond the shapers'")


@dataclass(frozen=True)
class HostCosts:
    """What hosts add to the wire: fitted for a number of ranks on a machine, not for a fabric."""

    latency_s: float = 3e-4
    """From the moment both ends have posted a message until its first byte moves."""
    post_s: float = 1e-4
    """The processor's time to post one message; a rank posts them one after the other."""
    add_s_per_byte: float = 5e-10
    """The processor's time to add one received byte to the buffer."""
    start_s: float = 5e-4
    """From the common start until a rank has woken and begun: once an operation."""
    efficiency: float = 0.985
    """Payload over line rate: headers, acknowledgements and what the shaper loses."""

    def to_json(self) -> dict[str, float]:
        """Return the costs as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def costs_of(spec: ClusterSpec) -> HostCosts | None:
    """Return the costs that a calibrated cluster file remembers."""
    found = spec.calibration
    if found is None:
        return None
    return HostCosts(found.latency_s, found.post_s, found.add_s_per_byte, found.start_s, found.efficiency)


@dataclass(frozen=True, eq=False)
class HostLinks:
    """Links between hosts with their rates, and the links that a flow between two hosts crosses."""

    rate_Bps: Floats
    burst_bytes: Floats
    path: Mapping[tuple[int, int], tuple[int, ...]]
    host_of_rank: NDArray[np.int64]
    names: tuple[str, ...]
    delay_s: Floats
    head_start_bytes: float = 0.0
    """What one connection can put into its host's queue before others get a turn (tcp_limit_output_bytes)."""
    send_buffer_bytes: float = 0.0
    """A message of at most this size is done for its sender when it is in the socket, not when it has arrived."""

    @classmethod
    def of(
        cls,
        rate_Bps: ArrayLike,
        path: Mapping[tuple[int, int], Sequence[int]],
        host_of_rank: Sequence[int],
        *,
        burst_bytes: ArrayLike = 0.0,
        names: Sequence[str] = (),
        delay_s: ArrayLike = 0.0,
        head_start_bytes: float = 0.0,
        send_buffer_bytes: float = 0.0,
    ) -> HostLinks:
        """Return a wiring; one burst and one delay may stand for all links."""
        rate = np.ascontiguousarray(rate_Bps, dtype=np.float64)
        if not (rate > 0).all():
            raise SimulationError("every link of a wiring needs a rate above 0.")
        burst, delay = (np.broadcast_to(np.asarray(each, float), rate.shape).copy() for each in (burst_bytes, delay_s))
        named = tuple(names) or tuple(f"link {i}" for i in range(len(rate)))
        paths = {pair: tuple(int(link) for link in links) for pair, links in path.items()}
        seats = np.asarray(host_of_rank, dtype=np.int64)
        return cls(rate, burst, paths, seats, named, delay, head_start_bytes, send_buffer_bytes)

    def links(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the links from one rank to another; none between ranks of one host."""
        a, b = int(self.host_of_rank[src]), int(self.host_of_rank[dst])
        if a == b:
            return ()
        if (a, b) not in self.path:
            raise SimulationError(f"the wiring has no path from host {a} to host {b}.")
        return self.path[a, b]

    def away_s(self, links: tuple[int, ...]) -> float:
        """Return how long a signal takes over these links."""
        return float(sum(self.delay_s[link] for link in links))


#: What a task's delay is made of: message latencies, posts, bytes added, seconds, seconds at line rate, wake-ups.
_DELAYS = ("latencies", "posts", "added_bytes", "fixed_s", "head_start_s", "starts")


@dataclass(frozen=True, eq=False)
class Script:
    """A program on a wiring at one size, as tasks whose delays are still to be priced: `delays` has a row a task."""

    wiring: HostLinks
    paths: Paths
    first_path: NDArray[np.int32]
    size_bytes: Floats
    delays: Floats
    waits: Paths
    label: str
    total_bytes: int
    marks: tuple[Mark, ...] = ()

    def tasks(self, costs: HostCosts) -> Tasks:
        """Return the tasks at these costs."""
        price = (costs.latency_s, costs.post_s, costs.add_s_per_byte, 1.0, 1 / costs.efficiency, costs.start_s)
        return Tasks.of(
            self.paths,
            size_bytes=self.size_bytes,
            first_path=self.first_path,
            num_paths=(self.size_bytes > 0).astype(np.int32),
            delay_s=self.delays @ np.array(price),
            wait_for=self.waits,
        )


def course(script: Script, costs: HostCosts, *, record: bool = False) -> Course:
    """Return the whole course of a script at these costs."""
    wiring = script.wiring
    capacity = wiring.rate_Bps * costs.efficiency
    return run(capacity, script.tasks(costs), burst_bytes=wiring.burst_bytes, record=record)


def predict(script: Script, costs: HostCosts) -> float:
    """Return the seconds from the common start until the last rank is done."""
    return course(script, costs).makespan_s


def chronicle(script: Script, costs: HostCosts) -> Timeline:
    """Return what every rank does when, as the executor would record it, and what every link carries."""
    wiring = script.wiring
    found = course(script, costs, record=True)
    return timeline_of(script.label, script.marks, found, wiring.names, wiring.rate_Bps, IGNORES)


def script_of(program: Program, size_bytes: int, wiring: HostLinks) -> Script:
    """Return a program of one or several steps as a script; a vendor's collective has none."""
    if len(wiring.host_of_rank) != program.num_ranks:
        raise SimulationError(
            f"the wiring seats {len(wiring.host_of_rank)} ranks and the program has {program.num_ranks}."
        )
    if any(isinstance(step, VendorStep) for step in program.steps):
        raise SimulationError(f"{program.name} leaves a step to the library: it has no rounds to follow.")
    draft = _Draft(wiring)
    start = [draft.task([], starts=1.0)] * program.num_ranks
    for number in range(len(program.steps)):
        start = _lay_step(draft, program, number, size_bytes, start)
    return draft.script(program.name, size_bytes)


@dataclass
class _Draft:
    """Tasks under construction: one row a task."""

    wiring: HostLinks
    rows: list[tuple[float, ...]] = field(default_factory=list)
    waits: list[list[int]] = field(default_factory=list)
    paths: dict[tuple[int, ...], int] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)

    def task(self, after: list[int], *, links: tuple[int, ...] = (), size_bytes: float = 0.0, **delays: float) -> int:
        """Append one task with its part of `_DELAYS` and return its number."""
        path = self.paths.setdefault(links, len(self.paths)) if links else 0
        self.rows.append((path, size_bytes if links else 0.0, *(delays.get(name, 0.0) for name in _DELAYS)))
        self.waits.append(after)
        return len(self.rows) - 1

    def script(self, label: str, size_bytes: int) -> Script:
        """Return the script."""
        table = np.array(self.rows, dtype=np.float64)
        paths, first = Paths.of(list(self.paths) or [[0]]), table[:, 0].astype(np.int32)
        waits, marks = Paths.of(self.waits), tuple(self.marks)
        return Script(self.wiring, paths, first, table[:, 1].copy(), table[:, 2:], waits, label, size_bytes, marks)


def _lay_step(draft: _Draft, program: Program, number: int, size_bytes: int, start: list[int]) -> list[int]:
    """Append one step's rounds, strand by strand and round by round; returns the task that ends each rank's step."""
    table: dict[tuple[int, int], dict[int, RankRound]] = {}
    for rank in range(program.num_ranks):
        for entry in program.rank_rounds(rank, size_bytes):
            if entry.step == number:
                table.setdefault((entry.strand, entry.round), {})[rank] = entry
    ends: dict[int, dict[int, int]] = {}
    before: dict[int, dict[tuple[int, int], int]] = {}
    for strand, round_ in sorted(table):
        ready = ends.setdefault(strand, dict(enumerate(start)))
        _lay_round(draft, table[strand, round_], ready, before.setdefault(strand, {}))
    return [draft.task([ready[rank] for ready in ends.values()] or [start[rank]]) for rank in range(program.num_ranks)]


def _lay_round(
    draft: _Draft, entries: dict[int, RankRound], ready: dict[int, int], before: dict[tuple[int, int], int]
) -> None:
    """Append one round of one strand and move `ready` to its end; `before` is the last flow of each connection."""
    sends = {rank: _by_peer(entry.sends.peer, entry.sends.size_bytes) for rank, entry in entries.items()}
    head = _head_starts(draft.wiring, sends)
    posted: dict[tuple[int, int, bool], int] = {}
    for rank, entry in entries.items():
        sources = list(_by_peer(entry.receives.peer, entry.receives.size_bytes))
        for place, peer in enumerate(sources, 1):
            posted[peer, rank, False] = draft.task([ready[rank]], posts=place)
        for place, peer in enumerate(sends[rank], len(sources) + 1):
            posted[rank, peer, True] = draft.task([ready[rank]], posts=place)
    flows: dict[tuple[int, int], int] = {}
    sent: dict[tuple[int, int], int] = {}
    for rank, peers in sends.items():
        for peer, size in peers.items():
            links = draft.wiring.links(rank, peer)
            away = draft.wiring.away_s(links)
            # The receiver says that it is ready, and data leaves when that has arrived.
            granted = draft.task(
                [posted[rank, peer, False]], fixed_s=draft.wiring.away_s(draft.wiring.links(peer, rank))
            )
            both = [posted[rank, peer, True], granted]
            # Bytes of one connection arrive in order: a flow waits for the one before it.
            agreed = draft.task(both, latencies=1.0)
            queue = [before[rank, peer]] if (rank, peer) in before else []
            flow = draft.task([agreed, *queue], links=links, size_bytes=size, fixed_s=away)
            before[rank, peer] = flow
            late = head.get(rank, 0.0) if links else 0.0
            flows[rank, peer] = draft.task([flow], head_start_s=late) if late else flow
            sent[rank, peer] = agreed if size <= draft.wiring.send_buffer_bytes else flows[rank, peer]
            number = entries[rank].round
            draft.marks += [
                Mark(rank, SpanKind.SEND, sent[rank, peer], posted[rank, peer, True], size, peer, number),
                Mark(peer, SpanKind.RECV, flows[rank, peer], posted[rank, peer, False], size, rank, number),
            ]
    for rank, entry in entries.items():
        own = [sent[rank, peer] for peer in sends[rank]]
        last = draft.task([ready[rank], *own])
        adds = entry.receives.size_bytes * entry.receives.reduce
        for peer, added in _by_peer(entry.receives.peer, adds).items():
            last = draft.task([last, flows[peer, rank]], added_bytes=added)
            if added:
                draft.marks.append(Mark(rank, SpanKind.REDUCE, last, -1, added, peer, entry.round))
        ready[rank] = last


def _by_peer(peers: NDArray[np.int64], sizes: NDArray[np.int64]) -> dict[int, float]:
    """Return the bytes by peer, in the order of first mention: messages of one pair in one round travel together."""
    found: dict[int, float] = {}
    for peer, size in zip(peers.tolist(), sizes.tolist(), strict=True):
        found[peer] = found.get(peer, 0.0) + float(size)
    return found


def _head_starts(wiring: HostLinks, sends: dict[int, dict[int, float]]) -> dict[int, float]:
    """Return by how much each sender's last connection starts late, where its own link is what limits the round.

    With k connections each may fill the host's queue with its budget before the others get a turn: some receivers idle
    for (k - 1) budgets' time, which nobody makes up for when the sender's link is the bottleneck.
    """
    if not wiring.head_start_bytes:
        return {}
    load = np.zeros(len(wiring.rate_Bps))
    for rank, peers in sends.items():
        for peer, size in peers.items():
            load[list(wiring.links(rank, peer))] += size
    load /= wiring.rate_Bps
    late = {}
    for rank, peers in sends.items():
        away = {peer: size for peer, size in peers.items() if wiring.links(rank, peer)}
        if len(away) < 2:
            continue
        first = wiring.links(rank, next(iter(away)))[0]
        busiest = max(load[link] for peer in away for link in wiring.links(rank, peer))
        if load[first] >= 0.99 * busiest:
            budget = min(wiring.head_start_bytes, float(np.mean(list(away.values()))))
            late[rank] = (len(away) - 1) * budget / float(wiring.rate_Bps[first])
    return late


def wiring_of_fabric(placement: Placement) -> HostLinks:
    """Return the wiring of a described cluster: rates and latencies of its links, static paths between hosts."""
    fabric = placement.fabric
    network = FlowNetwork(fabric, NetworkOptions(routing="static", transport="ideal", stripes="first"))
    hosts, first = np.unique(placement.host, return_index=True)
    device = placement.device[first].astype(np.int64)
    pairs = [(a, b) for a in range(len(hosts)) for b in range(len(hosts)) if a != b]
    src, dst = (device[[pair[end] for pair in pairs]] for end in (0, 1))
    wires = network.wire(src, dst, np.zeros(len(pairs), dtype=np.int64))
    path = {pair: wires.paths.row(int(wires.first[i])).tolist() for i, pair in enumerate(pairs)}
    number = {int(host): i for i, host in enumerate(hosts)}
    delay = np.zeros(len(network.capacity_Bps))
    delay[: len(fabric.links)] = fabric.links.latency_s
    names = [network.link_name(link) for link in range(len(network.capacity_Bps))]
    rate = np.where(network.capacity_Bps > 0, network.capacity_Bps, 1.0)
    return HostLinks.of(rate, path, [number[int(host)] for host in placement.host], names=names, delay_s=delay)
