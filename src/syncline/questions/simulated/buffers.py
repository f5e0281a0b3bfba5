"""How much buffer does a job need, where to mark and where to pause?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from syncline.describe.plain import JsonObject
from syncline.fabric import Fabric
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.simulated.packet_job import read_job
from syncline.questions.simulated.packets import PacketQuestion
from syncline.sim.packet import packet_network
from syncline.sim.packet.sizing import BufferSizing, BufferTrial, size_buffers


@dataclass(frozen=True, eq=False)
class BufferAnswer(Answer):
    """The smallest buffer of a switch, the lowest marks and the pauses that keep a job near its ideal."""

    fabric: Fabric = field(repr=False)
    job: str
    transport: str
    routing: str
    seed: int
    sizing: BufferSizing

    @property
    def buffer_bytes(self) -> float:
        """Of a switch, headroom included."""
        return self.sizing.buffer_bytes

    def to_json(self) -> JsonObject:
        return {
            "cluster": self.fabric.name, "job": self.job, "transport": self.transport, "routing": self.routing,
            "seed": self.seed, **self.sizing.to_json(),
        }  # fmt: skip


def buffers(
    cluster: Cluster,
    job: str,
    *,
    transport: str = "dcqcn",
    routing: str = "auto",
    within: float = 0.05,
    pfc: bool | None = None,
    seed: int = 0,
    tried: Callable[[BufferTrial], None] | None = None,
) -> BufferAnswer:
    """Find the smallest switch buffer, the ECN marks and the PFC thresholds that a job needs, by simulation.

    >>> cluster = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
    >>> buffers(cluster, "incast:3:64KiB", transport="dctcp").buffer_bytes < 1e6
    True
    """
    fabric = built(cluster)
    network = packet_network(fabric)
    options = PacketQuestion(pfc=pfc).options(network, transport, routing, seed)
    found = size_buffers(network, [read_job(network, job, seed)], options, within=within, tried=tried)
    return BufferAnswer(fabric, job, options.transport, options.routing, seed, found)
