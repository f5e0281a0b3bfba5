"""Why a packet run and the flow level differ, in seconds that add up to the difference.

* headers      the flow level's time with links slower by what headers take
* hops         a packet is received whole before a switch sends it on
* queues       what messages of the deciding chain waited behind others (`chain`)
* rates        what their senders waited for the rate or the window that the transport allowed: rate cuts, pulls
* senders      what they waited for another reason: their port sent other messages or was paused, a loss was found late
* sharing      what messages of the flow level lost by sharing links, which packets do not: they queue
* chain        what the messages of the deciding chain take by themselves, beyond the longest chain without waiting
* transport    what the flow level counts for hosts, and packets do not have: payload share
* rounds       what senders lose that begin a round when the last one has come; the flow level's have a window
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.describe import units
from syncline.fabric.fabric import NETWORK_TIERS, Fabric
from syncline.sim.flow.estimate import Estimate
from syncline.sim.flow.maxplus import max_plus_end_s
from syncline.sim.flow.routing import ROUTINGS, FlowNetwork, NetworkOptions
from syncline.sim.flow.wired import WiredProgram
from syncline.sim.packet.chain import chain
from syncline.sim.packet.options import PacketOptions
from syncline.sim.packet.outcome import Outcome
from syncline.sim.transport import AUTO, Transport, message_costs, transport, transports


@dataclass(frozen=True)
class Difference:
    """Seconds by which packets are later than flows, part by part; `evidence` says what else was counted."""

    flow_s: float
    packet_s: float
    parts: dict[str, float]
    evidence: tuple[str, ...]

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return the seconds of each part, and their share of the flow level's time."""
        return {name: {"s": part, "share": part / self.flow_s} for name, part in self.parts.items()}

    def lines(self) -> list[str]:
        """Return the parts in words, the largest first, then the evidence."""
        part, flow_s = self.parts, self.flow_s
        waits = sum(part[name] for name in ("queues", "rates", "senders", "sharing", "chain"))
        other = ""
        if abs(part["chain"]) >= 5e-4 * flow_s:
            by_itself = "shorter" if part["chain"] < 0 else "longer"
            other = f" in a chain {units.show_time(abs(part['chain']))} {by_itself} than the longest,"
        show = units.show_time
        shares = {
            f"messages wait {show(part['queues'])} in queues, {show(part['rates'])} for their rate or window and "
            f"{show(part['senders'])} for their port,{other} at flow level "
            f"{show(-part['sharing'])} by sharing links": waits,
            "a packet's time at every hop": part["hops"],
            "headers": part["headers"],
            "the flow level's own allowance for hosts (payload share)": part.get("transport", 0.0),
            "packets go round by round; the flow level's senders have a window": part.get("rounds", 0.0),
        }
        shown = sorted(shares.items(), key=lambda row: -abs(row[1]))
        large = [(words, 100 * seconds / flow_s) for words, seconds in shown if abs(seconds) >= 5e-4 * flow_s]
        lines = [f"{words}: {percent:+.1f} %" for words, percent in large]
        if waits < -0.03 * flow_s:
            lines.append("so messages that meet came to take turns; flows that begin together end together")
        return [*lines, *self.evidence]


def beside(found: Difference, by_rounds_s: float, shown_s: float) -> Difference:
    """Return a difference against the flow level as it is shown: with a transport's cost for hosts, and windows."""
    parts = found.parts | {"transport": found.flow_s - by_rounds_s, "rounds": by_rounds_s - shown_s}
    return Difference(shown_s, found.packet_s, parts, found.evidence)


def shown_options(options: PacketOptions, transport: str, routing: str) -> NetworkOptions:
    """Return the options of the flow level that answers the same question: `simulate` without `--level packet`.

    Hosts and cards are the same whatever congestion control their packets have.
    """
    near = flow_options(options)
    known = near.routing if routing not in ROUTINGS or (routing == AUTO and options.sprayed) else routing
    return replace(near, routing=known, transport=transport if transport in transports() else AUTO)  # type: ignore[arg-type]


def with_posting(options: PacketOptions, carrier: Transport) -> PacketOptions:
    """Return packets whose hosts take as long for a message as the flow level has it."""
    return replace(options, message_s=carrier.message_s, hosts=carrier.name)


def plain_network(fabric: Fabric, options: PacketOptions) -> FlowNetwork:
    """Return the flow level nearest to a packet run: the same paths, the same cost of a message, no headers."""
    near = flow_options(options)
    if options.routing in ("ugal", "valiant"):  # packets draw their own detours; flows are laid on them
        near = replace(near, routing=options.routing)
    network = FlowNetwork(fabric, near)
    network.carrier = replace(network.carrier, message_s=options.message_s)
    network.messages = message_costs(fabric, transport(options.hosts or "ideal"))
    return network


def flow_options(options: PacketOptions) -> NetworkOptions:
    """Return the flow level's options nearest to those of a packet run: the same seed draws the same paths."""
    return NetworkOptions(
        "spray" if options.sprayed else "ecmp", options.seed % (1 << 31), "ideal", cross_rail=options.cross_rail
    )


def difference(outcome: Outcome, flow: Estimate, wired: WiredProgram) -> Difference:
    """Return why a run of one job took another time than the flow level says for the same program."""
    packet_s = outcome.job_end_s(0)
    largest = max(
        float(wired.flow_bytes(i, j, flow.size_bytes).max(initial=0.0))
        for i, lane in enumerate(wired.lanes)
        for j in range(len(lane.phases))
    )
    payload = min(outcome.options.payload_bytes, max(largest, 1.0))
    wire = payload + outcome.options.header_bytes[0]
    slowed = _slowed(wired, payload / wire)
    plain_s, header_s, hop_s = (
        float(max_plus_end_s(each, flow.size_bytes).max(initial=0.0))
        for each in (wired, slowed, _hopped(slowed, 64.0 if outcome.options.switching == "cut-through" else wire))
    )
    shared_s = max(flow.time_s - plain_s, 0.0)
    decided = chain(outcome)
    parts = {
        "headers": header_s - plain_s + shared_s * (wire / payload - 1),
        "hops": hop_s - header_s,
        "queues": decided.queued_s,
        "rates": decided.limited_s,
        "senders": decided.held_s,
        "sharing": -shared_s * wire / payload,
    }
    parts["chain"] = packet_s - flow.time_s - sum(parts.values())
    return Difference(flow.time_s, packet_s, parts, _evidence(outcome, flow, wired))


def _slowed(wired: WiredProgram, factor: float) -> WiredProgram:
    """Return the program on a network whose links carry that much less payload."""
    slower = FlowNetwork(wired.network.fabric, wired.network.options)
    slower.carrier = replace(wired.network.carrier, efficiency=wired.network.carrier.efficiency * factor)
    return replace(wired, network=slower)


def _hopped(wired: WiredProgram, wire_bytes: float) -> WiredProgram:
    """Return the program with a packet's time on every network link of a path but the slowest, which is counted."""
    links, paths = wired.network.fabric.links, wired.wires.paths
    outside = np.isin(links.tier[paths.link], [int(tier) for tier in NETWORK_TIERS])
    each = np.where(outside, wire_bytes / links.rate_Bps[paths.link], 0.0)
    total, slowest = np.zeros(len(paths)), np.zeros(len(paths))
    np.add.at(total, paths.row_of_crossing(), each * paths.shares())
    np.maximum.at(slowest, paths.row_of_crossing(), each)
    later = np.maximum(total - slowest, 0.0)
    return replace(wired, wires=replace(wired.wires, latency_s=wired.wires.latency_s + later))


def _evidence(outcome: Outcome, flow: Estimate, wired: WiredProgram) -> tuple[str, ...]:
    """Return what was counted: load of the busiest link at both levels, packets sent again, pauses, marks, queues."""
    count = outcome.counters
    sent = max(count["data_packets"] + count["resent_packets"], 1)
    found = [] if flow.exact else ["the flow level's time is a bound: every round ends with a barrier"]
    if count["data_packets"]:
        found.append(_busiest(outcome, flow, wired))
    if count["resent_packets"]:
        found.append(f"{100 * count['resent_packets'] / sent:.2g} % of packets sent again")
    if count["pauses"]:
        paused_s = units.show_time(float(outcome.ports["paused_ps"].sum()) / 1e12)
        found.append(f"{count['pauses']:,} pauses, {paused_s} in all ports together")
    if count["marks"]:
        found.append(f"{100 * count['marks'] / sent:.2g} % of packets marked")
    if deepest := int(outcome.ports["peak_bytes"].max(initial=0)):
        found.append(f"queues up to {units.show_size(deepest)}")
    return tuple(found)


def _busiest(outcome: Outcome, flow: Estimate, wired: WiredProgram) -> str:
    """Return how many connections the busiest network link has and how busy it is, at both levels."""
    network = outcome.network
    real = np.flatnonzero(network.link >= 0)
    port = int(real[np.argmax(outcome.utilisation()[real])])
    link = int(real[np.argmax(flow.link_bytes[network.link[real]] / network.rate_Bps[real])])
    fluid = float(flow.link_bytes[network.link[link]] / network.rate_Bps[link] / max(flow.time_s, 1e-15))
    here, there = f"{100 * outcome.utilisation()[port]:.0f} %", f"{100 * fluid:.0f} %"
    if outcome.options.sprayed or outcome.options.routing in ("ugal", "valiant"):
        return f"the busiest link, {network.port_name(port)}, is sending {here} of the time, at flow level {there}"
    paths = wired.wires.paths.take(wired.wires.first)
    flows = int((paths.link == network.link[link]).sum())
    if outcome.options.routing == "ecmp" and outcome.options.queue_pairs == 1:
        packets = int((outcome.posted.ways.link == port).sum())
        return (
            f"the busiest link, {network.port_name(port)}, has {packets} connection{'s' * (packets != 1)} and is "
            f"sending {here} of the time; at flow level {flows} and {there}"
        )
    load = float(outcome.ports["wire_bytes"][port] / network.rate_Bps[port]) / max(fluid * flow.time_s, 1e-15)
    return (
        f"other paths: the busiest link, {network.port_name(port)}, carries {load:.2f} times as much as at flow level"
    )
