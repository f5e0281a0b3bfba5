"""What do several jobs on one cluster cost each other, and how should their bursts be steered?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

from syncline.describe.guide import cite
from syncline.describe.mistakes import blamed_on
from syncline.describe.progress import Meter, Progress
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import Cluster, built, job_of
from syncline.questions.simulated.packets import PacketQuestion
from syncline.sharing.epochs import Epoch, PatternCache, epochs
from syncline.sharing.hosts import assign
from syncline.sharing.jobs_file import SharedCluster, load_jobs
from syncline.sharing.packets import EpochPackets, play_epoch
from syncline.sharing.transition import Transition, transition
from syncline.sim.packet import packet_network
from syncline.sim.step.constants import default_constants
from syncline.sim.step.executed.execute import IGNORES as STEP_IGNORES

IGNORES = tuple(each for each in STEP_IGNORES if each != "other jobs")


@dataclass(frozen=True)
class TenantShare:
    """A tenant, and the part of every link that it is guaranteed."""

    name: str
    guarantee: float


@dataclass(frozen=True)
class ShareAnswer(Answer):
    """Each job's slowdown against running alone, with and without steering, epoch by epoch."""

    schema_name: ClassVar[str] = "share"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write a page with the timeline of every job.")

    cluster: str
    level: str
    epochs: tuple[Epoch, ...]
    transitions: tuple[Transition, ...]
    """What arrivals and departures cost the jobs that stay."""
    tenants: tuple[TenantShare, ...]
    packets: tuple[EpochPackets, ...]
    """The epochs packet by packet, those that do not stall, where that was asked for."""
    ignores: tuple[str, ...] = IGNORES


@question(
    "syncline share h100-64-rail jobs.yaml",
    "syncline share cluster.yaml jobs.yaml --html share.html --json",
    "syncline share cluster.yaml jobs.yaml --level packet --transport dctcp",
    help="""Say what several jobs on one cluster cost each other, and how to steer their bursts.

    Each job's executed steps run at flow level beside the others': slowdown against running alone, with and without
    steering, the busiest links, and what of them may be given away; epoch by epoch as jobs arrive and leave and parts
    fail, and what each arrival and departure costs while it happens. Slots are used by the jobs through SYNCLINE_SLOTS
    and `syncline.torch.StepSlots`.
    """,
)
def share(
    cluster: Annotated[Cluster | None, Parameter("A cluster file or a preset (`syncline fabric list`).", kind=str)],
    jobs: Annotated[str | Path | Mapping[str, Any], Parameter(f"The jobs ({cite('share')} has the keys).", kind=Path)],
    *,
    level: Annotated[str, Parameter("flow, or packet: measured steps with every packet as well.")] = "flow",
    transport: Annotated[str, Parameter("Packet level: auto, dcqcn, dctcp, roce, ndp ...")] = "auto",
    routing: Annotated[str, Parameter("Packet level: auto, ecmp, adaptive, spray ...")] = "auto",
    seed: Annotated[int, Parameter("Packet level: seed of hashes and marks.", rare=True)] = 0,
    progress: Progress | None = None,
) -> ShareAnswer:
    """Say what each of several jobs loses on one cluster, who gets which hosts, and when bursts should come.

    At level "packet" every epoch is played again with every packet of the measured steps, by `transport`.

    >>> step = {"compute": "60ms", "exchange": "125MB"}
    >>> jobs = [{"name": "a", "step": step, "hosts": "0,2"}, {"name": "b", "step": step, "hosts": "1,3"}]
    >>> network = {"topology": "leaf-spine", "link": "100GbE", "oversubscription": "8:1", "hosts_per_leaf": 2}
    >>> answer = share({"hosts": 4, "host": "8 x H100", "network": network}, {"jobs": jobs})
    >>> answer.epochs[0].how
    'slots'
    """
    shared = load_jobs(jobs)
    where = str(jobs) if isinstance(jobs, (str, Path)) else "jobs"
    fabric = _fabric(cluster, shared, where)
    folder = Path(where).parent if isinstance(jobs, (str, Path)) else Path()

    def read(source: Any) -> Any:
        beside = folder / source if isinstance(source, str) else None
        return job_of(beside if beside is not None and beside.is_file() else source)

    with blamed_on(where):
        given = dict(zip((job.name for job in shared.jobs), assign(fabric, shared.jobs), strict=True))
        found, room = epochs(shared, fabric, given, read, default_constants(), Meter(progress))
        played: tuple[EpochPackets, ...] = ()
        if level == "packet":
            options = PacketQuestion().options(packet_network(fabric), transport, routing, seed)
            played = tuple(play_epoch(shared, fabric, given, each, options) for each in found if not each.stalled)
        elif level != "flow":
            raise UsageError(f'no level is called "{level}" here.', hint="One of: flow, packet.")
        tenants = tuple(TenantShare(name, part) for name, part in shared.tenants.items())
        return ShareAnswer(fabric.name, level, tuple(found), _transitions(found, room), tenants, played)


def _transitions(found: Sequence[Epoch], room: PatternCache) -> tuple[Transition, ...]:
    """Return the changes between epochs in which jobs arrive or leave and others stay."""
    changes = []
    for old, new in pairwise(found):
        was, now = ({job.name for job in each.jobs} for each in (old, new))
        if was != now and was & now and old.end_s == new.begin_s and not old.stalled and not new.stalled:
            names = [job.name for job in room.shared.jobs if job.name in was | now]
            changes.append(transition(room.party(names, new.begin_s), names, old, new))
    return tuple(changes)


def _fabric(cluster: Cluster | None, shared: SharedCluster, where: str) -> Fabric:
    if cluster is not None:
        return built(cluster)
    if shared.cluster is None:
        raise UsageError(f"{where} names no cluster.", hint="Name one first: `syncline share CLUSTER jobs.yaml`.")
    beside = Path(where).parent / shared.cluster
    return built(beside if beside.is_file() else shared.cluster)


COMMANDS = {"": share}
