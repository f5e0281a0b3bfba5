"""Time-scheduled sending: a collective as time slots that hosts keep by their clocks, against sending when ready.

plan = slot_plan(network, job, clock_error_s=100e-9)
found = compare_slots(network, job, PacketOptions("dcqcn"), clock_error_s=100e-9)
found.best_effort.time_s, found.scheduled[0].time_s, found.break_even_s

Every message has each of its ports to itself, from when its first packet gets there until its last has left. Clocks
are at most `clock_error_s` from the truth, so two may differ by twice that: so long a guard stands between two messages
of a port, and between a message and what waits for it. Messages are laid in the order of their rounds, each as early as
its ports and what it waits for allow.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from syncline.errors import SimulationError
from syncline.sim.packet.loaded import RandomLoad, simulate_loaded
from syncline.sim.packet.network import Floats, Longs, PacketNetwork
from syncline.sim.packet.options import PacketOptions
from syncline.sim.packet.outcome import Outcome
from syncline.sim.packet.posting import PacketJob, RoundTransfers
from syncline.sim.packet.run import PacketRun, prepare
from syncline.sim.packet.traffic import Traffic

TRANSPORT = "line-rate"
"""Slots replace congestion control: in its slot a sender has the line."""
WORSE = (1.0, 3.0, 10.0, 30.0)
"""Times the stated error that clocks are really off."""
_ACK_BYTES = 64
_ROUNDING_S = 1e-13


@dataclass(frozen=True, eq=False)
class SlotPlan:
    """When every message begins, round by round in the order of the run's blocks, by a clock without error."""

    starts_s: tuple[Floats, ...]
    clocks: tuple[Longs, ...]
    """The host whose clock each message goes by."""
    clock_error_s: float
    end_s: float
    """When the last message arrives, if clocks are exact."""

    @property
    def guard_s(self) -> float:
        """What every slot waits so that clocks may differ."""
        return 2 * self.clock_error_s


@dataclass(frozen=True)
class SlotTrial:
    """One run: how far off clocks were, how long it took, and what met in queues or came too late for its slot."""

    real_error_s: float
    time_s: float
    deepest_queue_bytes: int
    p99_s: float
    pauses: int
    marks: int
    lost: int
    late: int
    """Messages that could not begin in their slot because what they wait for had not arrived."""
    worst_late_s: float


@dataclass(frozen=True, eq=False)
class SlotComparison:
    """The same job when ready, with a congestion control, and by slots, with clocks as stated and worse."""

    plan: SlotPlan
    bare_s: float
    """The planned end with exact clocks, which need no guards."""
    num_messages: int
    best_effort: SlotTrial
    scheduled: tuple[SlotTrial, ...]

    @property
    def break_even_s(self) -> float:
        """The clock error at which slots take as long as best effort; 0: they are never as fast."""
        return max(0.0, (self.best_effort.time_s - self.bare_s) / self.guards)

    @property
    def guards(self) -> float:
        """How many times the clock error is on the way to the end: two for each guard, and the start."""
        return (self.plan.end_s - self.bare_s) / self.plan.clock_error_s


def slot_plan(
    network: PacketNetwork, load: PacketJob | Traffic, clock_error_s: float, options: PacketOptions | None = None
) -> SlotPlan:
    """Return when each message of a load begins."""
    if isinstance(load, Traffic) and (load.start_s.max(initial=0.0) > 0 or load.num_waits.any()):
        raise SimulationError(
            f"the messages of {load.name} have start times or an order of their own.",
            hint="Slots are laid for messages that may all begin at once, or for the rounds of a collective.",
        )
    laid = _Layout(prepare(network, [load], _scheduled(options or PacketOptions())), clock_error_s)
    return laid.plan()


def compare_slots(
    network: PacketNetwork,
    load: PacketJob | Traffic,
    options: PacketOptions,
    clock_error_s: float,
    *,
    worse: Sequence[float] = WORSE,
    beside: RandomLoad | None = None,
) -> SlotComparison:
    """Run a load when ready with `options`, and by slots with clocks as far off as stated, and further."""
    if not clock_error_s > 0:
        raise SimulationError(
            f"the clock error must be above 0, got {clock_error_s:g} s.", hint="Write 100ns; no clock is exact."
        )
    plan = slot_plan(network, load, clock_error_s, options)
    bare = slot_plan(network, load, 0.0, options)
    ready = simulate_loaded(network, [load], options, beside, plan.end_s)
    rows = []
    for times in worse:
        real_s = times * clock_error_s
        slotted = with_slots(load, plan, real_s, seed=options.seed)
        rows.append(_trial(simulate_loaded(network, [slotted], _scheduled(options), beside, plan.end_s), real_s))
    count = sum(len(block.src) for block in ready.blocks if block.job == 0)
    return SlotComparison(plan, bare.end_s, count, _trial(ready, 0.0), tuple(rows))


def with_slots(load: PacketJob | Traffic, plan: SlotPlan, real_error_s: float, *, seed: int = 0) -> PacketJob | Traffic:
    """Return the load with slots as hosts keep them: each has a clock of its own, off by up to `real_error_s`."""
    most = max(int(clock.max(initial=0)) for clock in plan.clocks)
    off = np.random.default_rng(seed).uniform(-real_error_s, real_error_s, most + 1)
    starts = tuple(
        np.maximum(start_s + off[clock], 0.0) for start_s, clock in zip(plan.starts_s, plan.clocks, strict=True)
    )
    if isinstance(load, Traffic):
        return replace(load, start_s=starts[0])
    return replace(load, slots_s=starts)


def _scheduled(options: PacketOptions) -> PacketOptions:
    """Return the options of a run by slots: one drawn path a message, its line in its slot, lossless as before."""
    lossless = options.sets[0].lossless if options.lossless is None else options.lossless
    if options.sprayed or options.queue_pairs > 1 or options.routing not in ("ecmp", "first"):
        options = replace(options, routing="ecmp", queue_pairs=1)
    return replace(options, transport=TRANSPORT, changes={}, marks=None, law=None, lossless=lossless)


def _trial(outcome: Outcome, real_error_s: float) -> SlotTrial:
    late = np.zeros(0)
    load = outcome.jobs[0]
    if isinstance(load, PacketJob) and load.slots_s:
        mine = (block for block in outcome.blocks if block.job == 0)
        begins = (outcome.begin_s[block.first : block.first + len(block.src)] for block in mine)
        late = np.concatenate([begin - slot for begin, slot in zip(begins, load.slots_s, strict=True)])
    # Messages that begin a picosecond late have been rounded, not missed.
    late = late[late > 2e-12]
    times = outcome.times_s(0)
    tally = outcome.tally(0)
    return SlotTrial(
        real_error_s, outcome.job_end_s(0), int(outcome.ports["peak_bytes"][outcome.network.src >= 0].max(initial=0)),
        float(np.quantile(times, 0.99, method="inverted_cdf")) if len(times) else float("nan"),
        outcome.counters["pauses"], int(tally["marks"]), int(tally["drops"]), len(late), float(late.max(initial=0.0)),
    )  # fmt: skip


@dataclass
class _Layout:
    """A prepared run whose messages are laid into ports one after the other, round by round."""

    run: PacketRun
    clock_error_s: float
    taken: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """When each port, or bus inside a host (-1 - bus), is taken: from, until, in order, guards included."""
    end_s: float = 0.0

    def plan(self) -> SlotPlan:
        """Return the slots of every message."""
        starts: dict[int, Floats] = {}
        ready: dict[tuple[int, int], float] = {}
        for step in _steps(self.run.blocks):
            done: dict[tuple[int, int], float] = {}
            before = {vertex: at for (_, vertex), at in sorted(ready.items(), key=lambda row: row[1])}
            for block in step:
                began = np.zeros(len(block.src))
                arrive: dict[tuple[int, int], float] = {}
                for i, (src, dst) in enumerate(zip(block.src.tolist(), block.dst.tolist(), strict=True)):
                    ends = ((block.lane, src), (block.lane, dst))
                    known = [done.get(end, before.get(end[1])) for end in ends]
                    after = max((at + 2 * self.clock_error_s for at in known if at is not None), default=0.0)
                    began[i], arrived = self._lay(block.first + i, max(after, self.clock_error_s))
                    for end in ends if isinstance(self.run.jobs[block.job], PacketJob) else ():
                        arrive[end] = max(arrive.get(end, 0.0), arrived)
                done.update(arrive)
                starts[block.first] = began
            ready = done
        blocks = self.run.blocks
        clocks = tuple(self._clock(block) for block in blocks)
        return SlotPlan(tuple(starts[block.first] for block in blocks), clocks, self.clock_error_s, self.end_s)

    def _clock(self, block: RoundTransfers) -> Longs:
        """Return the host whose clock says when each message begins; a helper without one has its own."""
        load, fabric = self.run.jobs[block.job], self.run.network.fabric
        if not isinstance(load, PacketJob):
            host = fabric.devices.host[block.src].astype(np.int64)
            return np.where(host < 0, fabric.num_hosts + block.src, host)
        host = load.program.placement.host.astype(np.int64)
        known = host[np.minimum(block.src, len(host) - 1)]
        return np.where(block.src < len(host), known, fabric.num_hosts + block.src)

    def _lay(self, task: int, after_s: float) -> tuple[float, float]:
        """Return when a message begins, at the earliest when its ports are free, and when it has arrived."""
        columns = self.run.posted.columns["tasks"]
        flow, size = int(columns["over"][task]), int(columns["size_bytes"][task])
        delay = float(columns["delay_ps"][task]) / 1e12
        if flow == -1 or size == 0:
            return after_s, after_s + delay
        over, reach, line, lasts, guard = self._way(flow, size)
        start = self._earliest(over, [delay + each for each in reach], line + guard, after_s)
        self.end_s = max(self.end_s, start + delay + lasts)
        return start, start + delay + lasts

    def _earliest(self, over: Sequence[int], reach: Sequence[float], holds: float, after_s: float) -> float:
        """Take all ports from the first moment on at which each is free when the message gets there."""
        start, moved = after_s, True
        while moved:
            moved = False
            for port, at in zip(over, reach, strict=True):
                rows = self.taken.get(port, ())
                place = bisect_right(rows, (start + at, np.inf))
                if place and rows[place - 1][1] > start + at + _ROUNDING_S:
                    place -= 1
                elif place == len(rows) or rows[place][0] >= start + at + holds - _ROUNDING_S:
                    continue
                start, moved = rows[place][1] - at, True
        for port, at in zip(over, reach, strict=True):
            insort(self.taken.setdefault(port, []), (start + at, start + at + holds))
        return start

    def _way(self, flow: int, size: int) -> tuple[list[int], list[float], float, float, float]:
        """Return a message's ports, when it reaches each, how long it has them, when it has arrived, and the guard.

        Acknowledgements of what comes the other way go before it: 64 bytes for every so many packets. What stays inside
        a host goes by one clock and needs no guard.
        """
        network, options, posted = self.run.network, self.run.options, self.run.posted
        if flow < 0:
            buses = posted.columns["buses"]
            row = buses["path_bus"][buses["path_start"][-2 - flow] : buses["path_start"][-1 - flow]]
            line = size / float(buses["rate_Bps"][row].min())
            return [-1 - int(bus) for bus in row], [0.0] * len(row), line, line, 0.0
        ports = posted.ways.row(flow)
        cap = float(posted.columns["connections"]["cap_Bps"][flow])
        payload, header = options.payload_bytes, options.header_bytes[0]
        slowest = min(float(network.rate_Bps[ports].min()), cap or np.inf)
        packets = -(-size // payload)
        acks = -(-packets // int(options.sets[0].numbers.get("ack_every", 1))) * _ACK_BYTES / slowest
        step = network.latency_ps[ports] / 1e12 + (min(size, payload) + header) / network.rate_Bps[ports]
        reach = [0.0, *np.cumsum(step)[:-1].tolist()]
        line = (size + packets * header) / slowest + acks
        alone = network.alone_s(ports, size, payload, header, cap) + acks
        return ports.tolist(), reach, line, alone, 2 * self.clock_error_s


def _steps(blocks: Sequence[RoundTransfers]) -> list[list[RoundTransfers]]:
    """Return the rounds of each step, those of lanes side by side in turn; a step begins when lanes begin again."""
    found: list[list[RoundTransfers]] = []
    before = (-1, -1)
    for block in blocks:
        place = (block.lane, block.round)
        if place <= before or not found:
            found.append([])
        found[-1].append(block)
        before = place
    return [sorted(step, key=lambda block: (block.round, block.lane)) for step in found]
