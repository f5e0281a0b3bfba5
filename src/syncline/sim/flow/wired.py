"""A program on a network: every flow of every round with the connection it uses. The common ground of all solvers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.codec.codec import Codec
from syncline.errors import SimulationError
from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Tier
from syncline.program import Program, VendorStep
from syncline.program.program import ProgramStep
from syncline.sim.flow.engine import Paths
from syncline.sim.flow.rounds import FlowLane, lanes
from syncline.sim.flow.routing import Floats, FlowNetwork, SentTogether, Wires
from syncline.timeline.columns import sum_by

Longs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WiredProgram:
    """Lanes of one program with the connection of each flow: `connection[lane][phase][flow]` indexes `wires`."""

    program: Program
    network: FlowNetwork
    lanes: tuple[FlowLane, ...]
    wires: Wires
    connection: tuple[tuple[Longs, ...], ...]
    num_vertices: int
    codec: Codec
    busy_s: tuple[tuple[Floats | None, ...], ...] = ()  # each vertex's own time to post a round; None: one message each
    unit: WiredProgram | None = None  # what one of its chunks does, where several follow each other
    pieces: int = 1

    @property
    def num_flows(self) -> int:
        """Count the flows of all rounds of all lanes."""
        return sum(lane.num_flows for lane in self.lanes)

    @property
    def on_all_links(self) -> WiredProgram:
        """The program with links that nothing is slowed by, alone and undisturbed, put back into its paths."""
        if self.wires.whole is None:
            return self
        unit = None if self.unit is None else self.unit.on_all_links
        return replace(self, wires=replace(self.wires, paths=self.wires.whole, whole=None), unit=unit)

    @property
    def single_path(self) -> bool:
        """Whether every connection has one path only."""
        return bool((self.wires.count == 1).all())

    @cached_property
    def solo_Bps(self) -> Floats:
        """The rate of each connection when it is alone (of its first path, if it has several)."""
        paths = self.wires.paths
        rate = self.network.capacity_Bps[paths.link] / paths.shares()
        solo = np.full(len(paths), np.inf)
        np.minimum.at(solo, paths.row_of_crossing(), rate)
        return solo[self.wires.first]

    @cached_property
    def latency_s(self) -> Floats:
        """The latency of each connection, with the transport's cost per message."""
        return self.wires.latency_s[self.wires.first]

    def flow_bytes(self, lane: int, phase: int, size_bytes: float) -> Floats:
        """Return the wire bytes of each flow of a phase."""
        one = self.lanes[lane].phases[phase]
        return one.share * (size_bytes * self.codec.wire_ratio)

    def coding_s(self, lane: int, phase: int, size_bytes: float) -> Floats:
        """Return the time that encoding and decoding each flow costs."""
        one = self.lanes[lane].phases[phase]
        return one.share * (size_bytes * self.codec.host_s_per_byte())

    def posting_s(self, lane: int, phase: int) -> Floats | None:
        """Return how long each vertex is busy posting a phase's messages; None where each has one at most."""
        return self.busy_s[lane][phase] if self.busy_s else None

    def link_bytes(self, size_bytes: float) -> Floats:
        """Return the bytes that every link carries in all rounds together; of links to choose from, none."""
        per_connection = np.zeros(len(self.wires.first))
        for i, lane in enumerate(self.lanes):
            for j, phase in enumerate(lane.phases):
                np.add.at(per_connection, self.connection[i][j], self.flow_bytes(i, j, size_bytes) * phase.repeat)
        paths = self.wires.counted.take(self.wires.first)
        carried = per_connection[paths.row_of_crossing()] * paths.shares()
        if not self.single_path:
            carried = np.where(self._unavoidable(paths), carried, 0.0)
        return sum_by(paths.link, carried, len(self.network.capacity_Bps))

    def _unavoidable(self, first: Paths) -> NDArray[np.bool_]:
        """Return which crossings of the first paths are on every path that their connection may take."""
        paths, count, width = self.wires.paths, self.wires.count, len(self.network.capacity_Bps)
        owner = np.repeat(np.arange(len(count)), count)[paths.row_of_crossing()]
        keys, times = np.unique(owner * width + paths.link, return_counts=True)
        connection = first.row_of_crossing()
        return np.asarray(times[np.searchsorted(keys, connection * width + first.link)] == count[connection])


def wire(program: Program, network: FlowNetwork) -> WiredProgram:
    """Return a program of one step with the paths of all its flows."""
    if len(program.steps) != 1:
        raise SimulationError("programs of several steps are simulated as jobs that follow each other.")
    step = program.steps[0]
    if isinstance(step, VendorStep):
        raise SimulationError(
            f"{step.name} is left to its library; flows cannot be seen.", hint="Use --algorithm nccl."
        )
    schedule = step.proved.schedule
    found = lanes(schedule)
    device = _place_helpers(program, network, found)
    width = len(network.fabric.devices)
    keys = [
        [(device[phase.src] * width + device[phase.dst]) * len(found) + number for phase in lane.phases]
        for number, lane in enumerate(found)
    ]
    moments = _moments(found, keys) if network.by_load else ()
    if moments:  # what is sent at other moments is another connection, as it may go another way
        count = max(moments) + 1
        keys = [[key * count + moment for key, moment in zip(lane, moments, strict=False)] for lane in keys]
    unique, index = _numbered([key for lane in keys for key in lane])
    sent = _sent(found, index, unique % count) if moments else None
    pair, channel = np.divmod(unique // count if moments else unique, len(found))
    rail = np.array([-1 if lane.rail is None else lane.rail for lane in found], dtype=np.int64)
    wires = network.wire(pair // width, pair % width, channel, rail[channel], sent)
    parts = iter(index)
    connection = tuple(tuple(next(parts) for _ in lane) for lane in keys)
    wired = WiredProgram(program, network, found, wires, connection, schedule.num_vertices, step.codec)
    return replace(with_posting(wired), **_unit(program, step, network))


def _unit(program: Program, step: ProgramStep, network: FlowNetwork) -> dict[str, Any]:
    """Return the program of one chunk, where all strands are cut in equally many."""
    schedule = step.proved.schedule
    pieces = {strand.pieces for strand in schedule.strands}
    if pieces == {1} or len(pieces) > 1:
        return {}
    whole = replace(schedule, strands=tuple(strand.whole() for strand in schedule.strands))
    uncut = replace(step, proved=replace(step.proved, schedule=whole))
    unit = with_posting(wire(replace(program, steps=(uncut,)), network), every=True)
    return {"unit": unit, "pieces": pieces.pop()}


def _moments(found: tuple[FlowLane, ...], keys: list[list[Longs]]) -> tuple[int, ...]:
    """Return the moment of every phase: strands go side by side, and phases that send alike to the same are one."""
    known: dict[bytes, int] = {}
    moments = []
    for j in range(max((len(lane.phases) for lane in found), default=0)):
        digest = hashlib.blake2b()
        for lane, key in zip(found, keys, strict=True):
            if j < len(key):
                digest.update(np.ascontiguousarray(key[j]).data)
                digest.update(np.ascontiguousarray(lane.phases[j].share).data)
        moments.append(known.setdefault(digest.digest(), len(known)))
    return tuple(moments)


def _sent(found: tuple[FlowLane, ...], index: list[Longs], moment: Longs) -> SentTogether:
    """Return what each connection sends in one phase of its moment."""
    amount, phases = np.zeros(len(moment)), np.zeros(len(moment))
    for phase, at in zip((phase for lane in found for phase in lane.phases), index, strict=True):
        np.add.at(amount, at, phase.share)
        phases[np.unique(at)] += 1
    return SentTogether(amount / np.maximum(phases, 1), moment)


def fingerprint(wired: WiredProgram) -> bytes:
    """Return what two programs share whose flows, paths and codec are the same; kept on the wired program."""
    if "_fingerprint" not in wired.__dict__:
        digest = hashlib.blake2b(repr((wired.codec, wired.num_vertices, wired.program.collective)).encode())
        paths, wires = wired.wires.paths, wired.wires
        columns = [paths.start, paths.link, paths.share, wires.first, wires.count, wires.latency_s]
        for lane, connections in zip(wired.lanes, wired.connection, strict=True):
            for phase, connection in zip(lane.phases, connections, strict=True):
                digest.update(f"{lane.rail} {phase.repeat} {phase.groups.shape}".encode())
                columns += [phase.src, phase.dst, phase.share, phase.groups, connection]
        for column in columns:
            digest.update(np.ascontiguousarray(column).data)
        wired.__dict__["_fingerprint"] = digest.digest()
    found: bytes = wired.__dict__["_fingerprint"]
    return found


def with_posting(wired: WiredProgram, *, every: bool = False) -> WiredProgram:
    """Return the program with the time that posting its messages takes each vertex, where that costs anything.

    With `every`, a single message counts, too: there the next chunk's is posted after it.
    """
    return replace(wired, busy_s=_busy_s(wired, every) if wired.network.messages.any else ())


def _busy_s(wired: WiredProgram, every: bool) -> tuple[tuple[Floats | None, ...], ...]:
    """Return how long every vertex posts the messages of each phase that leave its host, one after the other."""
    leaving = _Leaving.of(wired)
    known: dict[int, Floats | None] = {}
    found = []
    for lane, connections in zip(wired.lanes, wired.connection, strict=True):
        for phase, connection in zip(lane.phases, connections, strict=True):
            if id(phase) not in known:
                known[id(phase)] = leaving.busy_s(phase.src, connection, wired.num_vertices, every)
        found.append(tuple(known[id(phase)] for phase in lane.phases))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Leaving:
    """Connections that leave their host: what a message of each costs its sender, and the cards it goes through."""

    outside: NDArray[np.bool_]
    overhead_s: Floats
    row: Longs  # a connection for each card of it
    nic: Longs
    gap_s: Floats  # by device; empty where no card can be slower than its senders

    @staticmethod
    def of(wired: WiredProgram) -> _Leaving:
        network, costs = wired.network, wired.network.messages
        fabric, paths = network.fabric, wired.wires.paths.take(wired.wires.first)
        real = np.flatnonzero(paths.link < network.num_links)
        row, link = paths.row_of_crossing()[real], paths.link[real]
        tier, src = fabric.links.tier[link], fabric.links.src[link]
        outside = np.zeros(len(paths), dtype=bool)
        outside[row[np.isin(tier, [int(each) for each in NETWORK_TIERS])]] = True
        card = (tier == Tier.ACCESS) & (fabric.devices.kind[src] == DeviceKind.NIC)
        overhead = np.zeros(len(paths))
        np.maximum.at(overhead, row[card], costs.overhead_s[src[card]])
        bare = outside.copy()
        bare[row[card]] = False
        overhead[bare] = network.carrier.post_s
        sharing = np.bincount(fabric.devices.host[fabric.gpus]).max()  # GPUs that may send through one card
        slow = (costs.gap_s * sharing > costs.overhead_s).any()
        return _Leaving(outside, overhead, row[card], src[card].astype(np.int64), costs.gap_s if slow else _NONE)

    def busy_s(self, src: Longs, connection: Longs, num_vertices: int, every: bool) -> Floats | None:
        out = self.outside[connection]
        sender, used = src[out], connection[out]
        cards = self._cards_s(sender, used, num_vertices) if len(self.gap_s) else None
        if np.bincount(sender, minlength=num_vertices).max(initial=0) <= (0 if every else 1):
            return cards
        busy = sum_by(sender, self.overhead_s[used], num_vertices)
        return busy if cards is None else np.maximum(busy, cards)

    def _cards_s(self, sender: Longs, used: Longs, num_vertices: int) -> Floats:
        """Return for each vertex how long the busiest of its cards needs for the messages of all that share it."""
        messages = np.bincount(used, minlength=len(self.outside))
        each = sum_by(self.nic, messages[self.row] * self.gap_s[self.nic], len(self.gap_s))
        longest = np.zeros(len(self.outside))
        np.maximum.at(longest, self.row, each[self.nic])
        found = np.zeros(num_vertices)
        np.maximum.at(found, sender, longest[used])
        return found


_NONE: Floats = np.empty(0)


def _numbered(keys: list[Longs]) -> tuple[Longs, list[Longs]]:
    """Return all keys that occur, sorted, and each column as numbers into them."""
    unique = np.unique(np.concatenate([np.unique(key) for key in keys])) if keys else np.empty(0, np.int64)
    return unique, [np.searchsorted(unique, key) for key in keys]


def _place_helpers(program: Program, network: FlowNetwork, found: tuple[FlowLane, ...]) -> Longs:
    device = program.vertex_devices(0).astype(np.int64)
    loose = np.flatnonzero(device < 0)
    if len(loose) == 0:
        return device
    if getattr(program.steps[0], "proved").schedule.family != "in-network":  # noqa: B009
        raise SimulationError(f"{len(loose)} helpers of {program.name} have no device.",
                              hint="Give them devices in Placement.helpers, or let them live with ranks.")  # fmt: skip
    fabric = network.fabric
    devices, links = fabric.devices, fabric.links
    access = np.flatnonzero((links.tier == Tier.ACCESS) & (devices.kind[links.dst] == DeviceKind.SWITCH))
    leaf_of = np.full(len(devices), -1, np.int64)
    leaf_of[links.src[access][::-1]] = links.dst[access][::-1]
    top = np.flatnonzero((devices.kind == DeviceKind.SWITCH) & (devices.level == devices.level[fabric.switches].max()))
    nic = network.routes.inside.nic_of_gpu
    for phase in found[0].phases:
        near = np.flatnonzero((phase.dst >= program.num_ranks) & (phase.src < program.num_ranks))
        gpu = device[phase.src[near]]
        device[phase.dst[near[::-1]]] = leaf_of[nic[gpu[::-1]]]
    for order, helper in enumerate(np.flatnonzero(device < 0)):
        device[helper] = top[order % len(top)]
    return device


MAX_SIDE = 128


def traffic_matrix(wired: WiredProgram, size_bytes: float) -> tuple[Floats, list[str]]:
    """Return bytes from row to column and the names of the rows; hosts past the limit are grouped."""
    program = wired.program
    host = np.concatenate((program.placement.host, np.full(wired.num_vertices - program.num_ranks, -1))).astype(
        np.int64
    )
    by_rank = wired.num_vertices <= MAX_SIDE
    group = np.arange(wired.num_vertices) if by_rank else np.where(host < 0, host.max() + 1, host)
    wide = max(1, -(-(int(group.max()) + 1) // MAX_SIDE))
    group //= wide
    side = int(group.max()) + 1
    total = np.zeros((side, side))
    for i, lane in enumerate(wired.lanes):
        for j, phase in enumerate(lane.phases):
            size = wired.flow_bytes(i, j, size_bytes) * phase.repeat
            np.add.at(total, (group[phase.src], group[phase.dst]), size)
    word = "rank" if by_rank else "host"
    names = [f"{word} {k * wide}" if wide == 1 else f"{word}s {k * wide}-{(k + 1) * wide - 1}" for k in range(side)]
    return total, names
