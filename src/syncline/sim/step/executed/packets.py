"""Steps and traces packet by packet: the graph that the flow level runs, with every message cut into packets.

An exchange is the same messages as at flow level, all of them posted when it may begin; queues, marks, pauses and the
transport's rate control decide when the last has arrived. Training reaches `e_net` of a link and `e_nvl` of NVLink
(`docs/method/step.md`), for reasons of hosts that packets do not show, so messages are longer by that, headers not
counted twice. What repeats itself window after window is counted instead of run, so a limit is one of the packets
that are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncline.describe.progress import Progress
from syncline.errors import SimulationError, UsageError
from syncline.fabric.fabric import Fabric
from syncline.sim.flow.detours import dragonfly_routing
from syncline.sim.flow.routing import Routing
from syncline.sim.packet.graph import Flows, PacketGraph
from syncline.sim.packet.network import packet_network
from syncline.sim.packet.options import PacketOptions
from syncline.sim.packet.outcome import Outcome
from syncline.sim.packet.outcome import Progress as PacketProgress
from syncline.sim.packet.run import simulate
from syncline.sim.step.executed.footprint import Floats, Longs

MOST_PACKETS = 300_000_000
"""Ten CPU minutes at the slower of what `benchmarks/packet_htsim.py` measured."""
IGNORES = ("packets inside hosts", "stragglers", "other jobs", "drift between the ranks of a stage")


@dataclass(frozen=True)
class PacketCounts:
    """What befell the packets of a step or a trace."""

    data_packets: int
    skipped_packets: int
    """Of them, those counted as the packets before them went."""
    resent_packets: int
    drops: int
    marks: int
    pauses: int
    transport: str
    cpu_s: float
    peak_queue_bytes: int
    busiest_link: str


@dataclass(frozen=True, eq=False)
class PacketCourse:
    """A graph as packets ran it: when each task began and ended, and what happened to packets."""

    begin_s: Floats
    end_s: Floats
    outcome: Outcome

    def counted(self) -> PacketCounts:
        """Return what befell the packets."""
        found, deepest = self.outcome, int(self.outcome.ports["peak_bytes"].max(initial=0))
        names = ("data_packets", "skipped_packets", "resent_packets", "drops", "marks", "pauses")
        sent, skipped, resent, drops, marks, pauses = (int(found.counters[name]) for name in names)
        busiest = found.network.port_name(found.busiest)
        return PacketCounts(
            sent, skipped, resent, drops, marks, pauses, found.options.transport, found.cpu_s, deepest, busiest
        )


def packet_options(fabric: Fabric, routing: Routing) -> PacketOptions:
    """Return the packets' treatment for a routing of steps: balanced is adaptive, or a dragonfly's, queue by queue."""
    choice = dragonfly_routing(fabric)
    known = {"spray": "adaptive", "adaptive": "adaptive", "ecmp": "ecmp"}
    if choice in ("ugal", "valiant"):
        known |= {"spray": choice, "adaptive": "ugal"}
    if routing not in known:
        raise UsageError(f'packets of a step are not routed as "{routing}".', hint="Use --routing spray or ecmp.")
    return PacketOptions(routing=known[routing], cross_rail="nvlink", skips_steady=True)  # type: ignore[arg-type]


def run_packets(
    fabric: Fabric, tasks: tuple[Floats, Floats, Longs, Sequence[Sequence[int]]], flows: Sequence[Flows],
    routing: Routing, *, e_net: float = 1.0, e_nvl: float = 1.0, most: int | None = None, name: str = "the step",
    progress: Progress | None = None,
) -> PacketCourse:  # fmt: skip
    """Run tasks (delay, bytes, flows, what each waits for) packet by packet, until more than `most` were run."""
    options = packet_options(fabric, routing)
    network = packet_network(fabric)
    payload, header = options.payload_bytes, options.header_bytes[0]
    graph = PacketGraph(*tasks, flows, name, max(payload / (payload + header) / e_net, 1.0), 1 / e_nvl)
    most = MOST_PACKETS if most is None else most

    def report(now: PacketProgress) -> None:
        if now.packets > most:
            raise SimulationError(
                f"{name} has run {now.packets:,} packets of {payload:,} bytes for {now.share:.1%} of its bytes; the "
                f"limit is {most:,}.",
                hint="Use --level flow, raise --max-packets, or `simulate` one collective with --level packet.",
            )
        if progress is not None:
            progress(round(1000 * now.share), 1000)

    outcome = simulate(network, [graph], options, progress=report)
    done = outcome.done_tasks[0]
    if not outcome.finished:
        raise SimulationError(f"{name} does not end: {outcome.state} after {outcome.now_s:.3g} s.",
                              hint="Repair what is down.")  # fmt: skip
    gate = _gates(outcome)
    return PacketCourse(outcome.begin_s[gate], outcome.end_s[done], outcome)


def _gates(outcome: Outcome) -> Longs:
    """Return the engine's task at which each task of the graph begins: before its messages, or itself."""
    gate = np.array(outcome.done_tasks[0], dtype=np.int64)
    for block in outcome.blocks:
        gate[block.round] = block.first - 1
    return gate
