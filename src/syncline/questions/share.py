"""What do several jobs on one cluster cost each other, and how should their bursts be steered?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from syncline.describe.mistakes import blamed_on
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.job import job_of
from syncline.questions.simulated.packets import PacketQuestion
from syncline.share.epochs import Epoch, PatternCache, epochs
from syncline.share.hosts import assign
from syncline.share.jobs_file import SharedCluster, load_jobs
from syncline.share.packets import EpochPackets, play_epoch
from syncline.share.transition import Transition, to_rows, transition
from syncline.sim.packet import packet_network
from syncline.sim.step.constants import default_constants
from syncline.sim.step.executed.execute import IGNORES as STEP_IGNORES

IGNORES = tuple(each for each in STEP_IGNORES if each != "other jobs")


@dataclass(frozen=True, eq=False)
class ShareAnswer(Answer):
    """Each job's slowdown against running alone, with and without steering, epoch by epoch."""

    fabric: Fabric = field(repr=False)
    shared: SharedCluster = field(repr=False)
    epochs: tuple[Epoch, ...]
    transitions: tuple[Transition, ...] = ()
    """What arrivals and departures cost the jobs that stay."""
    packets: tuple[EpochPackets, ...] = ()
    """Every epoch packet by packet, where that was asked for."""

    def to_json(self) -> JsonObject:
        shown = [_epoch(each) for each in self.epochs]
        for row, played in zip(shown, self.packets, strict=False):
            row["packets"] = _packets(played)
        return {
            "cluster": self.fabric.name, "level": "packet" if self.packets else "flow", "epochs": shown,
            "transitions": to_rows(self.transitions),
            "tenants": [{"name": name, "guarantee": part} for name, part in self.shared.tenants.items()],
            "ignores": list(IGNORES),
        }  # fmt: skip


def _epoch(epoch: Epoch) -> JsonObject:
    steering = epoch.steering
    return {
        "begin_s": epoch.begin_s, "end_s": epoch.end_s, "failed": list(epoch.failed), "stalled": epoch.stalled,
        "steering": epoch.how, "gain": steering.gain if steering and epoch.how != "nothing" else 0.0,
        "headroom": epoch.headroom,
        "jobs": [
            {
                "name": job.name, "tenant": job.tenant, "gpus": job.num_gpus, "hosts": list(job.hosts),
                "alone_s": job.alone_s, "step_s": job.step_s, "slowdown": job.slowdown,
                "unsteered_slowdown": job.unsteered_slowdown, "in_phase_slowdown": job.in_phase_slowdown,
                "offset_s": job.offset_s, "period_s": job.period_s,
                "class": job.priority,
                "slots": f"{job.period_s:.6g},{job.offset_s:.6g}" if job.period_s else "",
            }
            for job in epoch.jobs
        ],
        "traffic": [] if steering is None else [
            {"name": name, "figure": value, "steady": name in steering.course.steady}
            for name, value in steering.course.burst_s.items()
        ],
        "busiest_links": [
            {"link": link, "mean_utilisation": use} for link, use in (steering.course.use if steering else ())
        ],
    }  # fmt: skip


def _packets(played: EpochPackets) -> JsonObject:
    return {
        "transport": played.transport, "scale": played.scale, "marks": played.marks, "drops": played.drops,
        "pauses": played.pauses,
        "jobs": [
            {"name": job.name, "alone_s": job.alone_s, "in_phase_slowdown": job.in_phase_slowdown,
             "slowdown": job.slowdown}
            for job in played.jobs
        ],
    }  # fmt: skip


def share(
    cluster: Cluster | None, jobs: str | Path | Mapping[str, Any], *, level: str = "flow", transport: str = "auto",
    routing: str = "auto", seed: int = 0,
) -> ShareAnswer:  # fmt: skip
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
        found, room = epochs(shared, fabric, given, read, default_constants())
        played: tuple[EpochPackets, ...] = ()
        if level == "packet":
            options = PacketQuestion().options(packet_network(fabric), transport, routing, seed)
            played = tuple(play_epoch(shared, fabric, given, each, options) for each in found if not each.stalled)
        elif level != "flow":
            raise UsageError(f'no level is called "{level}" here.', hint="One of: flow, packet.")
        return ShareAnswer(fabric, shared, tuple(found), _transitions(found, room), played)


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
