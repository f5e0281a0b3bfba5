"""How much buffer does a job need, where to mark and where to pause?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from syncline.describe.progress import Meter, Progress
from syncline.questions.answer import Answer, Parameter, question
from syncline.questions.inputs import ClusterArgument, built
from syncline.questions.simulated.packet_job import PacketJobArgument, read_job
from syncline.questions.simulated.packets import PacketQuestion, RoutingArgument, TransportArgument
from syncline.sim.packet import packet_network
from syncline.sim.packet.sizing import BufferSizing, size_buffers


@dataclass(frozen=True)
class BufferAnswer(BufferSizing, Answer):
    """The smallest buffer of a switch, the lowest marks and the pauses that keep a job near its ideal."""

    schema_name: ClassVar[str] = "simulate-buffers"

    cluster: str
    job: str
    transport: str
    routing: str
    seed: int


@question(
    "syncline simulate buffers fat-tree-1024 incast:32:2MB --transport dctcp",
    "syncline simulate buffers cluster.yaml allreduce:64MiB --transport roce --within 0.02 --json",
)
def buffers(
    cluster: ClusterArgument,
    job: PacketJobArgument,
    *,
    transport: TransportArgument = "dcqcn",
    routing: RoutingArgument = "auto",
    within: Annotated[float, Parameter("How much longer than with ample buffers the job may take.")] = 0.05,
    pfc: Annotated[bool | None, Parameter("Pause instead of dropping.", names=("--pfc/--no-pfc",))] = None,
    seed: Annotated[int, Parameter("Seed of hashes and marks.", rare=True)] = 0,
    progress: Progress | None = None,
) -> BufferAnswer:
    """Find the smallest switch buffer, the ECN marks and the PFC thresholds that a job needs, by simulation.

    >>> cluster = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
    >>> buffers(cluster, "incast:3:64KiB", transport="dctcp").buffer_bytes < 1e6
    True
    """
    fabric, meter = built(cluster), Meter(progress)
    network = packet_network(fabric)
    options = PacketQuestion(pfc=pfc).options(network, transport, routing, seed)
    load = read_job(network, job, seed)
    found = size_buffers(network, [load], options, within=within, tried=lambda row: meter.advance())
    return BufferAnswer(**vars(found), cluster=fabric.name, job=job, transport=options.transport,
                        routing=options.routing, seed=seed)  # fmt: skip
