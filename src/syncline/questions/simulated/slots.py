"""Is a job faster in time slots that hosts keep by their clocks than when everyone sends as soon as it can?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from syncline.describe import units
from syncline.questions.answer import Answer, OptionGroup, Parameter, question
from syncline.questions.inputs import ClusterArgument, built
from syncline.questions.simulated.packet_job import PacketJobArgument, read_job
from syncline.questions.simulated.packets import PacketQuestion
from syncline.sim.packet import packet_network
from syncline.sim.packet.slots import SlotTrial, compare_slots


@dataclass(frozen=True)
class SlotAnswer(Answer):
    """A job in time slots beside best effort, with clocks as good as stated and worse."""

    schema_name: ClassVar[str] = "simulate-slots"

    cluster: str
    job: str
    transport: str
    """What best effort used."""
    routing: str
    seed: int
    packets: PacketQuestion
    clock_error_s: float
    guard_s: float
    guards: float
    """How many times the clock error is on the way to the end: two for each guard, and the start."""
    num_messages: int
    planned_s: float
    bare_s: float
    """The planned end with exact clocks, which need no guards."""
    break_even_s: float
    """The clock error at which slots take as long as best effort; 0: they are never as fast."""
    best_effort: SlotTrial
    scheduled: tuple[SlotTrial, ...]


@question(
    "syncline simulate slots h100-64-rail allreduce:16MiB --clock-error 100ns",
    "syncline simulate slots cluster.yaml all-pairs:64KiB --transport dctcp --buffer 2MB --background 0.2 --json",
)
def slots(
    cluster: ClusterArgument,
    job: PacketJobArgument,
    *,
    clock_error: Annotated[
        str, Parameter("How far a host's clock may be from the truth; guards are twice that.")
    ] = "100ns",
    transport: Annotated[str, Parameter("What best effort uses: dcqcn, dctcp, ndp, roce ...")] = "dcqcn",
    routing: Annotated[str, Parameter("Of best effort: auto, ecmp, adaptive ...; slots know paths.")] = "auto",
    seed: Annotated[int, Parameter("Seed of hashes and clocks.", rare=True)] = 0,
    packets: Annotated[PacketQuestion | None, OptionGroup(PacketQuestion, only=("buffer", "background"))] = None,
) -> SlotAnswer:
    """Schedule a job into time slots kept by the hosts' clocks, and compare it with best effort.

    >>> cluster = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
    >>> slots(cluster, "incast:3:64KiB").num_messages
    3
    """
    asked = packets or PacketQuestion()
    fabric = built(cluster)
    network = packet_network(fabric)
    options = asked.options(network, transport, routing, seed)
    load = read_job(network, job, seed)
    found = compare_slots(network, load, options, units.time(clock_error), beside=asked.beside())
    return SlotAnswer(
        fabric.name, job, options.transport, options.routing, seed, asked, found.plan.clock_error_s, found.plan.guard_s,
        found.guards, found.num_messages, found.plan.end_s, found.bare_s, found.break_even_s, found.best_effort,
        found.scheduled,
    )  # fmt: skip
