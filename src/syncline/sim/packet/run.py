"""Runs: programs and traffic on a fabric, packet by packet, in slices that return to Python.

network = packet_network(load("fat-tree-1024"))
outcome = simulate(network, [permutation(network.fabric, 2e6)], PacketOptions(transport="ndp"))
outcome.completion, outcome.counters["drops"], packet_timeline(outcome)
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline._native.packet import ClassRule, Draft, Engine, Profile
from syncline.describe import units
from syncline.errors import SimulationError
from syncline.sim.packet.graph import Load, PacketGraph, add_graph
from syncline.sim.packet.network import Floats, Longs, PacketNetwork
from syncline.sim.packet.options import ENGINE_ROUTING, LinkChange, PacketOptions
from syncline.sim.packet.outcome import Outcome, Progress, RunSamples
from syncline.sim.packet.parameters import Marks, TransportSet
from syncline.sim.packet.posting import PostedColumns, Posting, RoundTransfers, add_job, add_traffic
from syncline.sim.packet.traffic import Traffic

STATES = ("running", "finished", "deadlock", "stalled")
_SLICE_EVENTS = 1_000_000
_LIVELOCK_SLICES = 8
_LEAST_ARRIVING = 0.01
"""Of the bytes that are sent, what must arrive over so many slices: less is a livelock. Transports that trim get there
where headers, which go first, fill a link, so that all payload is cut off and sent again."""
_FOREVER = (1 << 62) - 1


@dataclass(frozen=True)
class Watching:
    """What is written down: queues of links and rates of connections every `every_s`, packets that `capture` sends."""

    every_s: float
    links: tuple[int, ...] = ()
    flows: tuple[int, ...] = ()
    capture: tuple[int, ...] = ()
    capture_most: int = 1_000_000


@dataclass(frozen=True, eq=False)
class PacketRun:
    """A run under way: `advance` it, or let `simulate` do so."""

    engine: Engine
    network: PacketNetwork
    options: PacketOptions
    blocks: tuple[RoundTransfers, ...]
    jobs: tuple[Load, ...]
    watching: Watching | None
    rtt_s: float
    done_tasks: tuple[Longs, ...]
    num_flows: int
    posted: PostedColumns
    changes: tuple[LinkChange, ...]

    def advance(self, *, until_s: float | None = None) -> str:
        """Work off events and return the state: running, finished, deadlock or stalled."""
        until = _FOREVER if until_s is None else round(until_s * 1e12)
        return STATES[self.engine.advance(until, _SLICE_EVENTS)]

    def outcome(self, state: str, cpu_s: float) -> Outcome:
        """Return what happened so far."""
        watched = self.watching
        sampled = None
        if watched is not None:
            ports = self.network.port_of_link[list(watched.links)] if watched.links else np.zeros(0, np.int64)
            sampled = RunSamples.of(self.engine.samples(), watched.links, ports, watched.flows)
        captured = self.engine.captured() if watched is not None and watched.capture else {}
        return Outcome(
            self.network, self.options, self.blocks, self.jobs, state,
            self.engine.begin_ps() / 1e12, self.engine.end_ps() / 1e12, self.engine.now_ps / 1e12,
            self.engine.counters(), self.engine.ports(), sampled, cpu_s, self.rtt_s,
            tuple(self.network.port_name(int(port)) for port in self.engine.cycle()), self.done_tasks,
            self.num_flows, self.posted, self.engine.last_sent_ps() / 1e12,
            self.engine.limited_ps() / 1e12, self.engine.flows(), self.changes, captured,
        )  # fmt: skip


def prepare(
    network: PacketNetwork,
    loads: Sequence[Load],
    options: PacketOptions | None = None,
    *,
    changes: Sequence[LinkChange] = (),
    watching: Watching | None = None,
) -> PacketRun:
    """Return a run that has not begun."""
    options = options or PacketOptions()
    posting = Posting(network, options)
    done: list[Longs] = []
    first_flow = [0]
    for number, load in enumerate(loads):
        _check_class(load, options)
        if isinstance(load, Traffic):
            done.append(add_traffic(posting, load, number))
        elif isinstance(load, PacketGraph):
            done.append(add_graph(posting, load, number))
        else:
            after = [done[other] for other in load.after]
            done.append(add_job(posting, load, number, np.concatenate([np.zeros(0, np.int64), *after])))
        first_flow.append(posting.num_flows)
    if posting.num_tasks == 0:
        raise SimulationError("there is nothing to send.", hint="Give a program or some traffic.")
    rtt_s = network.rtt_s(options.payload_bytes)
    draft = Draft()
    columns: Mapping[str, Any] = posting.columns()
    draft.connections(**columns["connections"])
    draft.buses(**columns["buses"])
    draft.tasks(**columns["tasks"])
    _add_network(draft, network, options)
    _add_rules(draft, network, options, rtt_s)
    _add_changes(draft, network, changes)
    if options.skips_steady:
        draft.skip_steady()
    if watching is not None:
        _add_watching(draft, network, watching, posting.num_flows)
    try:
        engine = Engine(draft)
    except ValueError as error:
        raise SimulationError(f"cannot send these packets: {error}.", hint="Change what it names.") from error
    return PacketRun(
        engine,
        network,
        options,
        tuple(posting.blocks),
        tuple(loads),
        watching,
        rtt_s,
        tuple(done),
        posting.num_flows,
        PostedColumns(columns, posting.ways, np.array(first_flow)),
        tuple(changes),
    )


def simulate(
    network: PacketNetwork,
    loads: Sequence[Load],
    options: PacketOptions | None = None,
    *,
    changes: Sequence[LinkChange] = (),
    watching: Watching | None = None,
    until_s: float | None = None,
    until_done: Sequence[int] = (),
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Run programs and traffic to their end and return what happened.

    It may stop at `until_s`, or when the loads `until_done` have all arrived, which is looked at now and then. Where
    nearly nothing of what is sent arrives, and no change of a link is to come, it ends with the state "livelock".
    """
    run = prepare(network, loads, options, changes=changes, watching=watching)
    began, cpu = time.monotonic(), time.process_time()
    awaited = np.concatenate([np.zeros(0, np.int64), *(run.done_tasks[number] for number in until_done)])
    state = "running"
    seen: deque[Mapping[str, int]] = deque(maxlen=_LIVELOCK_SLICES)
    while state == "running":
        before = run.engine.counters()["events"]
        state = run.advance(until_s=until_s)
        if run.options.law is not None:
            run.options.law.check()
        found = run.engine.counters()
        if progress is not None:
            progress(Progress.of(found, time.monotonic() - began))
        if found["events"] - before < _SLICE_EVENTS:  # nothing is left to do before `until_s`
            break
        if len(awaited) and (run.engine.end_ps()[awaited] >= 0).all():
            break
        settled = all(change.time_s + (change.reroute_s or 0.0) <= run.engine.now_ps / 1e12 for change in changes)
        if state == "running" and settled and len(seen) == _LIVELOCK_SLICES and not _progressed(seen[0], found):
            state = "livelock"
        seen.append(found)
    return run.outcome(state, time.process_time() - cpu)


def _progressed(then: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Return whether a fair part of what was sent meanwhile arrived; where nothing was sent, whether a task ended."""
    sent, arrived, done = (now[name] - then[name] for name in ("sent_bytes", "delivered_bytes", "tasks_done"))
    return arrived > _LEAST_ARRIVING * sent if sent else done > 0


def _check_class(load: Load, options: PacketOptions) -> None:
    top = int(load.traffic_class.max(initial=0)) if isinstance(load, Traffic) else load.traffic_class
    if top > len(options.classes):
        raise SimulationError(
            f"traffic class {top} is not described; there are {len(options.classes)} beside the main one.",
            hint="Add it to PacketOptions.classes.",
        )


def _add_network(draft: Draft, network: PacketNetwork, options: PacketOptions) -> None:
    region = network.fabric.devices.group[network.switches].astype(np.int32)
    loss = np.where(network.link >= 0, options.loss, 0.0)
    for link, rate in options.link_loss.items():
        loss[[port_of(network, link), port_of(network, link ^ 1)]] = rate
    draft.network(
        network.src, network.dst, network.rate_Bps, network.latency_ps, network.hops, loss.astype(np.float64),
        network.back,
        _buffers(network, options), region, len(network.endpoints),
    )  # fmt: skip


def _add_rules(draft: Draft, network: PacketNetwork, options: PacketOptions, rtt_s: float) -> None:
    control = ClassRule()
    control.alpha = 1e6
    profiles, rules = [], [control]
    spread = {"spray": "packet", "flowlet": "flowlet"}.get(options.routing, "")
    weights = (options.weight, *(each.weight for each in options.classes))
    for number, transport in enumerate(options.sets):
        profile = transport.profile(
            payload_bytes=options.payload_bytes, rate_Bps=network.access_Bps, rtt_s=rtt_s, data_class=number + 1,
            spread=spread if transport.spread == "flow" else "", num_hops=network.num_hops,
        )  # fmt: skip
        if transport.kind == "custom":
            if options.law is None or number != 0:
                raise SimulationError('kind "custom" needs a law.', hint="Use law.with_law, or --law FILE.")
            profile.law = options.law.address
        if transport.kind == "slotted":
            profile.num_slots = max(1, len(network.endpoints))
        if profile.slot_ps > 0:
            _check_slot(transport.name, profile, network.access_Bps)
        if options.routing in ("adaptive", "valiant", "ugal") and transport.recovery == "go-back-n":
            profile.recovery = 1  # packets may overtake each other: the receiver must keep them
            profile.duplicate_threshold = 1 << 20
        profiles.append(profile)
        rules.append(
            _class_rule(
                transport, options, network, rtt_s, weights[number], profile.payload_bytes + profile.header_bytes
            )
        )
    control.weight = max(each.headers_ahead for each in options.sets)
    headroom = options.headroom_bytes
    if headroom is None:
        headroom = _headroom(network, options) if any(rule.lossless for rule in rules) and not options.credits else 0
    else:
        _check_headroom(headroom, _buffers(network, options), max(p.payload_bytes + p.header_bytes for p in profiles))
    draft.rules(
        profiles, rules, ENGINE_ROUTING[options.routing], options.switching == "cut-through",
        _credit(network, options), options.ugal_bias_packets, headroom, options.seed,
    )  # fmt: skip


def _check_headroom(headroom_bytes: int, buffers: Floats, packet_bytes: int) -> None:
    smallest = float(buffers.min(initial=np.inf))
    if not 0 <= headroom_bytes <= smallest - packet_bytes:
        raise SimulationError(
            f"headroom_bytes is {headroom_bytes:,}; a switch has a buffer of {smallest:,.0f} bytes, and a packet of "
            f"{packet_bytes:,} bytes must fit beside the headroom.",
            hint="Headroom is a part of the buffer: reserve less, or use a larger buffer.",
        )


def _check_slot(name: str, profile: Profile, rate_Bps: float) -> None:
    size_bytes = profile.payload_bytes + profile.header_bytes
    if size_bytes / rate_Bps * 1e12 + profile.guard_ps > profile.slot_ps:
        slot, guard = (units.show_time(time_ps / 1e12) for time_ps in (profile.slot_ps, profile.guard_ps))
        raise SimulationError(
            f'a slot of "{name}" has no room for a packet: {slot} less a guard of {guard}, and {size_bytes:,} bytes '
            f"take {units.show_time(size_bytes / rate_Bps)}.",
            hint="Give a longer `slot`, a shorter `guard` or smaller packets.",
        )


def _class_rule(
    transport: TransportSet, options: PacketOptions, network: PacketNetwork, rtt_s: float, weight: int, wire_bytes: int
) -> ClassRule:  # fmt: skip
    rule = ClassRule()
    rule.lossless = transport.lossless if options.lossless is None else options.lossless
    rule.trims, rule.trim_tail = transport.trims, transport.trim_tail
    rule.limit_bytes = options.queue_bytes or transport.queue_packets * wire_bytes
    rule.alpha = options.alpha
    rule.weight = weight
    rule.pause_bytes = options.pause_bytes
    rule.resume_gap_bytes = 2 * wire_bytes
    marks = options.marks or transport.marks
    if marks is not None:
        low, high = mark_bytes(marks, network.access_Bps, rtt_s)
        rule.mark_low_bytes, rule.mark_high_bytes, rule.mark_probability = low, high, marks.probability
    return rule


def mark_bytes(marks: Marks, rate_Bps: float, rtt_s: float) -> tuple[int, int]:
    """Return the two depths of a queue at which marking begins and is full, in bytes."""
    if marks.step_bdp > 0:
        step = max(1, round(marks.step_bdp * rate_Bps * rtt_s))
        return step, step
    return max(1, round(marks.low_s * rate_Bps)), max(1, round(marks.high_s * rate_Bps))


def _credit(network: PacketNetwork, options: PacketOptions) -> float:
    """Return what a link may send ahead: both ways of the longest link, and room for what is told in eighths."""
    if not options.credits:
        return 0.0
    if options.credit_bytes is not None:
        return float(max(options.credit_bytes, 2 * (options.payload_bytes + 200)))
    flight = float((network.rate_Bps * network.latency_ps).max(initial=0.0)) * 2e-12
    return 1.25 * flight + 6 * (options.payload_bytes + 200)


def _buffers(network: PacketNetwork, options: PacketOptions) -> Floats:
    """Return the buffer of each switch."""
    if options.buffer_s == 0:
        return np.full(len(network.switches), float(options.buffer_bytes))
    own = network.src >= 0
    buffers = np.zeros(len(network.switches))
    np.add.at(buffers, network.src[own], network.rate_Bps[own] * options.buffer_s)
    return buffers


def port_of(network: PacketNetwork, link: int) -> int:
    """Return the port that sends into a link of the fabric."""
    if not 0 <= link < len(network.port_of_link) or network.port_of_link[link] < 0:
        raise SimulationError(f"link {link} is not in the network, or it is down.")
    return int(network.port_of_link[link])


def _headroom(network: PacketNetwork, options: PacketOptions) -> int:
    """Return what the ports of the largest switch can still send after they were told to pause."""
    into = network.dst >= 0
    flight = network.rate_Bps[into] * network.latency_ps[into] * 2e-12 + 3 * (options.payload_bytes + 200)
    per_switch = np.bincount(network.dst[into], weights=flight, minlength=max(1, len(network.switches)))
    wanted = float(per_switch.max(initial=0.0))
    smallest = float(_buffers(network, options).min(initial=np.inf))
    if wanted > 0.9 * smallest:
        raise SimulationError(
            f"lossless ports need {wanted / 1e6:.1f} MB of headroom a switch, "
            f"but a buffer has {smallest / 1e6:.1f} MB.",
            hint="Use a larger buffer, shorter links, or headroom_bytes of your own.",
        )
    return round(wanted)


def _add_changes(draft: Draft, network: PacketNetwork, changes: Sequence[LinkChange]) -> None:
    rows: list[tuple[float, int, float, float]] = []
    for change in sorted(changes, key=lambda each: each.time_s):
        wait = -1.0 if change.reroute_s is None else change.reroute_s * 1e12
        ports = (port_of(network, link) for link in (change.link, change.link ^ 1))
        rows.extend((change.time_s * 1e12, port, change.factor, wait) for port in ports)
    table = np.array(rows, np.float64).reshape(-1, 4)
    draft.changes(
        np.round(table[:, 0]).astype(np.int64), table[:, 1].astype(np.int32), np.ascontiguousarray(table[:, 2]),
        np.round(table[:, 3]).astype(np.int64),
    )  # fmt: skip


def _add_watching(draft: Draft, network: PacketNetwork, watching: Watching, num_flows: int) -> None:
    ports = network.port_of_link[list(watching.links)] if watching.links else np.zeros(0, np.int64)
    if (ports < 0).any():
        raise SimulationError(f"link {watching.links[int(np.argmin(ports))]} is not in the network, or it is down.")
    bad = [flow for flow in watching.flows if not 0 <= flow < num_flows]
    if bad or watching.every_s <= 0:
        raise SimulationError(
            f"cannot watch connection {bad[0]}; there are {num_flows}."
            if bad
            else "the time between two samples must be above 0."
        )
    draft.sampling(max(1, round(watching.every_s * 1e12)), ports.astype(np.int32), np.array(watching.flows, np.int32))
    caught = np.array([port_of(network, link) for link in watching.capture], np.int32)
    draft.capture(caught, watching.capture_most)
