"""What do patterns of messages take, packet by packet?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

from syncline.describe import units
from syncline.describe.model import Handle, handle
from syncline.describe.progress import Progress
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import ClusterOption, built
from syncline.questions.simulated.figures import PacketFigures
from syncline.questions.simulated.packets import (
    PacketArgument,
    PacketQuestion,
    RoutingArgument,
    TransportArgument,
    run_progress,
)
from syncline.sim.packet import Outcome, all_to_all, incast, packet_network, permutation
from syncline.sim.packet.chronicle import QueueRow, packet_timeline, queue_rows
from syncline.sim.packet.loaded import least_s, simulate_loaded
from syncline.timeline import Timeline, save

PATTERNS = ("incast", "permutation", "all-pairs")
SHOWN_QUEUES = 3


@dataclass(frozen=True)
class PatternTraffic(Answer):
    """A pattern of messages between all NICs of a cluster: when they arrived, and what queues did."""

    schema_name: ClassVar[str] = "simulate-traffic"
    outputs: ClassVar[Mapping[str, Output]] = {
        "trace": Output(
            "Write the timeline (.json for Perfetto, .parquet).", lambda answer, path: save(answer.timeline, path)
        ),
        **page_output("Write a page: queues, marks and rates over time."),
    }

    cluster: str
    pattern: str
    title: str
    messages: int
    size: str
    size_bytes: float
    transport: str
    routing: str
    seed: int
    packets: PacketQuestion
    figures: PacketFigures
    queues: tuple[QueueRow, ...]
    fabric: Handle[Fabric] = handle()
    outcome: Handle[Outcome] = handle()

    @property
    def time_s(self) -> float:
        """When the last message arrived, or when the run ended without it."""
        return self.figures.time_s

    @property
    def timeline(self) -> Timeline:
        """What every port did."""
        return packet_timeline(self.outcome)


@question(
    "syncline simulate {0} --cluster fat-tree-1024 --transport dctcp --level packet --html page.html",
    "syncline simulate {0} --cluster fat-tree-1024 --transport ndp --json",
    "syncline simulate {0} --cluster fat-tree-1024 --loss 0.0001 --recovery selective --background 0.2",
    help="Simulate this pattern of messages between all NICs of a cluster, packet by packet.",
    line="Simulate {0}, packet by packet.",
)
def traffic(
    cluster: ClusterOption,
    pattern: Annotated[str, Parameter(f"One of {', '.join(PATTERNS)}.")],
    size: Annotated[str | int, Parameter("Bytes of each message.", names=("--size",), kind=str)] = "2MB",
    *,
    senders: Annotated[int, Parameter("incast: how many send to one.")] = 16,
    transport: TransportArgument = "dcqcn",
    routing: RoutingArgument = "auto",
    level: Annotated[str, Parameter("packet; a pattern without a program has no other.", rare=True)] = "packet",
    seed: Annotated[int, Parameter("Seed of hashes, marks, losses, background and the permutation.", rare=True)] = 0,
    packets: PacketArgument = None,
    progress: Progress | None = None,
) -> PatternTraffic:
    """Simulate how messages of a pattern (incast, permutation, all-pairs) fare between all NICs, packet by packet."""
    if pattern not in PATTERNS:
        raise UsageError(f'no pattern of messages is called "{pattern}".', hint=f"One of: {', '.join(PATTERNS)}.")
    if level != "packet":
        raise UsageError(f"{pattern} is simulated at packet level only, not at level {level}.",
                         hint="Leave `level` out, or simulate a collective (allreduce, alltoall ...).")  # fmt: skip
    asked = packets or PacketQuestion()
    fabric = built(cluster)
    network = packet_network(fabric)
    options = asked.options(network, transport, routing, seed)
    bytes_each = units.size(size) if isinstance(size, str) else size
    if not 0 < bytes_each < inf:
        raise UsageError(f"messages of {size} have no packets.", hint="Write `size` as 2MB.")
    if pattern == "incast":
        messages = incast(fabric, senders, bytes_each)
    elif pattern == "permutation":
        messages = permutation(fabric, bytes_each, seed=seed)
    else:
        messages = all_to_all(fabric, bytes_each)
    outcome = simulate_loaded(
        network, [messages], options, asked.beside(), least_s(network, messages),
        changes=asked.changes(network), progress=run_progress(progress),
    )  # fmt: skip
    name = f"{senders}-to-1 incast" if pattern == "incast" else pattern
    queues = tuple(queue_rows(outcome, SHOWN_QUEUES))
    return PatternTraffic(
        fabric.name, pattern, f"{name} of {size} each on {fabric.name}", len(messages), str(size), bytes_each,
        options.transport, options.routing, seed, asked, PacketFigures.of(outcome), queues,
        fabric=fabric, outcome=outcome,
    )  # fmt: skip
