"""Is a job faster in time slots that hosts keep by their clocks than when everyone sends as soon as it can?"""

from __future__ import annotations

from dataclasses import dataclass, field

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.fabric import Fabric
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.simulated.packet_job import read_job
from syncline.questions.simulated.packets import PacketQuestion
from syncline.sim.packet import packet_network
from syncline.sim.packet.slots import SlotComparison, compare_slots


@dataclass(frozen=True, eq=False)
class SlotAnswer(Answer):
    """A job in time slots beside best effort, with clocks as good as stated and worse."""

    fabric: Fabric = field(repr=False)
    job: str
    transport: str
    """What best effort used."""
    routing: str
    seed: int
    asked: JsonObject
    comparison: SlotComparison = field(repr=False)

    @property
    def break_even_s(self) -> float:
        """The clock error at which slots take as long as best effort; 0: they are never as fast."""
        return self.comparison.break_even_s

    def to_json(self) -> JsonObject:
        return {
            "cluster": self.fabric.name, "job": self.job, "transport": self.transport, "routing": self.routing,
            "seed": self.seed, **self.asked, **self.comparison.to_json(),
        }  # fmt: skip


def slots(
    cluster: Cluster,
    job: str,
    *,
    clock_error: str = "100ns",
    transport: str = "dcqcn",
    routing: str = "auto",
    seed: int = 0,
    packets: PacketQuestion | None = None,
) -> SlotAnswer:
    """Lay a job into time slots that hosts keep by their clocks, and run it against best effort.

    >>> cluster = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
    >>> slots(cluster, "incast:3:64KiB").comparison.num_messages
    3
    """
    asked = packets or PacketQuestion()
    fabric = built(cluster)
    network = packet_network(fabric)
    options = asked.options(network, transport, routing, seed)
    load = read_job(network, job, seed)
    found = compare_slots(network, load, options, units.time(clock_error), beside=asked.beside())
    return SlotAnswer(fabric, job, options.transport, options.routing, seed, asked.shown(), found)
