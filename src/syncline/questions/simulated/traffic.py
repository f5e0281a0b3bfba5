"""What do patterns of messages take, packet by packet, and how do packets differ from flows?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.simulated.packets import PacketQuestion, ProgressBlock
from syncline.sim.flow.estimate import Estimate, bus_factor
from syncline.sim.packet import Completion, Outcome, PacketJob, all_to_all, incast, packet_network, permutation
from syncline.sim.packet.levels import beside as beside_flow
from syncline.sim.packet.levels import difference
from syncline.sim.packet.loaded import least_s, simulate_loaded
from syncline.sim.sweep import Contest

if TYPE_CHECKING:
    from syncline.sim.packet import PacketNetwork, PacketOptions
    from syncline.timeline import Timeline

PATTERNS = ("incast", "permutation", "all-pairs")


@dataclass(frozen=True, eq=False)
class PatternTraffic(Answer):
    """A pattern of messages between all NICs of a cluster: when they arrived, and what queues did."""

    fabric: Fabric = field(repr=False)
    pattern: str
    title: str
    figures: Mapping[str, Any] = field(repr=False)
    outcome: Outcome = field(repr=False)

    @property
    def time_s(self) -> float:
        """When the last message arrived, or when the run ended without it."""
        return float(self.figures["time_s"])

    @property
    def timeline(self) -> Timeline:
        """What every port did."""
        from syncline.sim.packet.chronicle import packet_timeline

        return packet_timeline(self.outcome)

    def to_json(self) -> JsonObject:
        return dict(self.figures)


def traffic(
    cluster: Cluster,
    pattern: str,
    size: str | int = "2MB",
    *,
    senders: int = 16,
    transport: str = "dcqcn",
    routing: str = "auto",
    seed: int = 0,
    packets: PacketQuestion | None = None,
    shown: ProgressBlock = lambda words: nullcontext(),
) -> PatternTraffic:
    """Say how messages of a pattern (incast, permutation, all-pairs) fare between all NICs, packet by packet."""
    if pattern not in PATTERNS:
        raise UsageError(f'no pattern of messages is called "{pattern}".', hint=f"One of: {', '.join(PATTERNS)}.")
    asked = packets or PacketQuestion()
    fabric = built(cluster)
    network = packet_network(fabric)
    options = asked.options(network, transport, routing, seed)
    bytes_each = units.size(size) if isinstance(size, str) else size
    if not 0 < bytes_each < inf:
        raise UsageError(f"messages of {size} have no packets.", hint="Write --size 2MB.")
    if pattern == "incast":
        messages = incast(fabric, senders, bytes_each)
    elif pattern == "permutation":
        messages = permutation(fabric, bytes_each, seed=seed)
    else:
        messages = all_to_all(fabric, bytes_each)
    with shown(pattern) as report:
        outcome = simulate_loaded(
            network, [messages], options, asked.beside(), least_s(network, messages),
            changes=asked.changes(network), progress=report,
        )  # fmt: skip
    figures = {"cluster": fabric.name, "pattern": pattern, "messages": len(messages), "size": str(size),
               "size_bytes": bytes_each,
               "transport": options.transport, "routing": options.routing, "seed": seed,
               "asked": asked.shown()} | outcome.to_json() | by_load(outcome)  # fmt: skip
    name = f"{senders}-to-1 incast" if pattern == "incast" else pattern
    return PatternTraffic(fabric, pattern, f"{name} of {size} each on {fabric.name}", figures, outcome)


def packet_rows(
    contest: Contest,
    flows: list[Estimate],
    network: PacketNetwork,
    options: PacketOptions,
    asked: PacketQuestion,
    shown: ProgressBlock,
    shown_s: Sequence[float],
) -> tuple[list[JsonObject], Outcome]:
    """Return one row a size: the flow level's winner packet by packet, with both times and why they differ."""
    changes, beside = asked.changes(network), asked.beside()
    rows = []
    for flow, flow_s in zip(flows, shown_s, strict=True):
        wired = contest.at(flow)
        with shown(f"{flow.algorithm}, {flow.size_bytes:,} B") as report:
            job = PacketJob(wired.program, flow.size_bytes)
            outcome = simulate_loaded(network, [job], options, beside, flow.time_s, changes=changes, progress=report)
        found = beside_flow(difference(outcome, flow, wired), flow_s) if outcome.done(0) and flow.time_s > 0 else None
        figures = outcome.to_json()
        time_s = outcome.job_end_s(0)
        algbw = flow.size_bytes / time_s if time_s > 0 else 0.0
        rows.append({
            "size_bytes": flow.size_bytes, "time_s": time_s, "algbw_Bps": algbw,
            "busbw_Bps": algbw * bus_factor(flow.kind, flow.num_ranks), "wire_Bps": None, "algorithm": flow.algorithm,
            "chunks": flow.chunks,
            "limiting_link": figures["busiest_link"], "utilisation": figures["busiest_utilisation"],
            "method": "packets", "exact": True, "flow_time_s": flow_s,
            "over_flow": time_s / flow_s if flow_s > 0 else None,
            "why": found.lines() if found else [f"packets: {outcome.state}"],
            "difference": found.to_json() if found else None, "packet": figures | by_load(outcome),
        })  # fmt: skip
    return rows, outcome


def by_load(outcome: Outcome) -> JsonObject:
    """Return the state, end and completion of what was asked for, and the background beside it, if any."""
    done = outcome.done(0)
    found: JsonObject = {
        "state": "finished" if done else outcome.state, "time_s": outcome.job_end_s(0) if done else outcome.now_s,
        "completion": Completion.of(outcome.times_s(0)).to_json(), "tally": outcome.tally(0),
    }  # fmt: skip
    if len(outcome.jobs) > 1:
        found["background"] = Completion.of(outcome.times_s(1)).to_json() | outcome.tally(1)
    return found
