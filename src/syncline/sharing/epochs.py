"""Epochs: the times between arrivals, departures and failures, in each of which the same jobs share the same links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncline.describe.model import Handle, handle, reported
from syncline.describe.progress import Meter
from syncline.errors import DescriptionError, SynclineError
from syncline.fabric import Fabric
from syncline.fabric.faults import FailedPart, apply_faults
from syncline.placing.allocation import Allocation, from_list
from syncline.sharing.interleave import Steering, most_runs, steer
from syncline.sharing.jobs_file import Bursts, SharedCluster, SharedJob
from syncline.sharing.pattern import Pattern, measured_pattern, training_pattern
from syncline.sharing.together import Party, TrafficBurst
from syncline.sim.step.constants import Constants
from syncline.sim.step.executed.footprint import Rails
from syncline.workload.job import Job

MOST_LOST = 0.01
"""What no job may lose for headroom to be given away."""
HALVINGS = 5


@dataclass(frozen=True)
class JobShare:
    """What became of one job in an epoch."""

    name: str
    tenant: str
    hosts: tuple[str, ...]
    num_gpus: int
    alone_s: float
    """A step with the healthy cluster to itself."""
    step_s: float
    unsteered_s: float
    in_phase_s: float
    offset_s: float
    period_s: float
    priority: int

    @reported
    def slowdown(self) -> float:
        return self.step_s / self.alone_s

    @reported
    def unsteered_slowdown(self) -> float:
        return self.unsteered_s / self.alone_s

    @reported
    def in_phase_slowdown(self) -> float:
        return self.in_phase_s / self.alone_s

    @reported
    def slots(self) -> str:
        """What SYNCLINE_SLOTS is set to; nothing where the job is not steered by slots."""
        return f"{self.period_s:.6g},{self.offset_s:.6g}" if self.period_s else ""


@dataclass(frozen=True)
class OtherTraffic:
    """Traffic that is no job's: the share of its rate that arrives, or how long a burst takes."""

    name: str
    figure: float
    steady: bool


@dataclass(frozen=True)
class BusyLink:
    """A link, and the part of its rate that is used."""

    link: str
    mean_utilisation: float


@dataclass(frozen=True)
class Epoch:
    """A time in which nothing arrives, leaves, fails or is repaired."""

    begin_s: float
    end_s: float | None
    jobs: tuple[JobShare, ...]
    failed: tuple[str, ...]
    stalled: str
    """Why nothing moves, where a failure cuts a job in two."""
    headroom: float
    """The part of links between switches that may be given away, costing no job more than a hundredth."""
    steering: Handle[Steering | None] = handle()

    @reported
    def how(self) -> str:
        """How the jobs are steered: slots, classes or nothing."""
        return self.steering.how if self.steering else "nothing"

    @reported
    def gain(self) -> float:
        """The part of the mean slowdown that steering saves."""
        return self.steering.gain if self.steering and self.how != "nothing" else 0.0

    @reported
    def traffic(self) -> tuple[OtherTraffic, ...]:
        """Traffic that is no job's."""
        if self.steering is None:
            return ()
        course = self.steering.course
        return tuple(OtherTraffic(name, value, name in course.steady) for name, value in course.burst_s.items())

    @reported
    def busiest_links(self) -> tuple[BusyLink, ...]:
        """The links that are used most."""
        return tuple(BusyLink(link, use) for link, use in (self.steering.course.use if self.steering else ()))


def epochs(
    shared: SharedCluster, fabric: Fabric, given: Mapping[str, Allocation], job_of: Callable[[object], Job],
    k: Constants, meter: Meter | None = None,
) -> tuple[list[Epoch], PatternCache]:  # fmt: skip
    """Return what becomes of the jobs in each time between two changes, and the room they were laid in."""
    times = {0.0}
    for job in shared.jobs:
        times |= {job.arrives, *([job.leaves] if job.leaves is not None else [])}
    for failure in shared.failures:
        times |= {failure.at, *([failure.until] if failure.until is not None else [])}
    ordered = sorted(times)
    meter = meter or Meter()
    room = PatternCache(shared, fabric, given, job_of, k, meter)
    present = []
    for begin, end in zip(ordered, [*ordered[1:], None], strict=True):
        jobs = tuple(j for j in shared.jobs if j.arrives <= begin and (j.leaves is None or j.leaves > begin))
        if jobs:
            present.append((begin, end, jobs))
    # Each job alone on the healthy cluster, then each epoch steered and given away in part.
    runs = len(shared.jobs)
    meter.expect(runs + sum(most_runs(len(jobs)) + HALVINGS for _, _, jobs in present))
    made = []
    for begin, end, jobs in present:
        made.append(room.epoch(begin, end, jobs))
        runs += most_runs(len(jobs)) + HALVINGS
        meter.reach(runs)
    return made, room


def faults_at(fabric: Fabric, shared: SharedCluster, moment_s: float) -> tuple[tuple[FailedPart, ...], Fabric]:
    """Return what is down or slow at a moment, and the fabric with it."""
    active = [f for f in shared.failures if f.at <= moment_s and (f.until is None or f.until > moment_s)]
    parts = tuple(FailedPart(**{n: getattr(f, n) for n in FailedPart.model_fields}) for f in active)
    return parts, apply_faults(fabric, parts)


class PatternCache:
    """Builds patterns once for each state of the fabric."""

    def __init__(
        self, shared: SharedCluster, fabric: Fabric, given: Mapping[str, Allocation],
        job_of: Callable[[object], Job], k: Constants, meter: Meter,
    ) -> None:  # fmt: skip
        self.shared, self.fabric, self.given, self.job_of, self.k, self.meter = shared, fabric, given, job_of, k, meter
        self.laid: dict[tuple[FailedPart, ...], tuple[Fabric, Rails, dict[str, Pattern]]] = {}
        self.alone: dict[str, float] = {}

    def _at(self, faults: tuple[FailedPart, ...]) -> tuple[Fabric, Rails, dict[str, Pattern]]:
        if faults not in self.laid:
            fabric = apply_faults(self.fabric, faults)
            share = self.shared.network.efficiency
            rails = Rails.of(fabric, share or self.k.fitted.e_net, share or self.k.fitted.e_nvl)
            self.laid[faults] = (fabric, rails, {})
        return self.laid[faults]

    def _pattern(self, job: SharedJob, faults: tuple[FailedPart, ...]) -> Pattern:
        fabric, rails, known = self._at(faults)
        if job.name not in known:
            hosts = self.given[job.name]
            if job.step is not None:
                known[job.name] = measured_pattern(fabric, rails, hosts, job.step)
            else:
                known[job.name] = training_pattern(fabric, rails, hosts, self.job_of(job.job), self.k)
        return known[job.name]

    def _alone(self, job: SharedJob) -> float:
        if job.name not in self.alone:
            _, rails, _ = self._at(())
            self.alone[job.name] = Party(rails, (self._pattern(job, ()),), (job.share,), meter=self.meter).alone(0)
        return self.alone[job.name]

    def epoch(self, begin: float, end: float | None, jobs: tuple[SharedJob, ...]) -> Epoch:
        parts, _ = faults_at(self.fabric, self.shared, begin)
        names = tuple(part.link or part.device or "" for part in parts)
        healthy = tuple(self._alone(job) for job in jobs)
        try:
            fabric, rails, _ = self._at(parts)
            patterns = tuple(self._pattern(job, parts) for job in jobs)
            bursts = tuple(_burst(fabric, rails, each) for each in self.shared.traffic)
            shares = tuple(job.share for job in jobs)
            steering = steer(Party(rails, patterns, shares, self.shared.tenants, bursts, self.meter))
        except DescriptionError:
            raise
        except SynclineError as error:  # cut in two: reported, not raised, as the other epochs stand
            return Epoch(begin, end, (), names, error.message, 0.0)
        party = Party(rails, patterns, steering.shares, self.shared.tenants, bursts, self.meter)
        shown = tuple(self._shown(job, steering, i, patterns[i], healthy[i]) for i, job in enumerate(jobs))
        return Epoch(begin, end, shown, names, "", headroom(party, steering), steering=steering)

    def party(self, names: Sequence[str], moment_s: float) -> Party:
        """Return jobs by name on the fabric of a moment."""
        parts, _ = faults_at(self.fabric, self.shared, moment_s)
        fabric, rails, _ = self._at(parts)
        jobs = [next(job for job in self.shared.jobs if job.name == name) for name in names]
        bursts = tuple(_burst(fabric, rails, each) for each in self.shared.traffic)
        shares = tuple(job.share for job in jobs)
        return Party(rails, tuple(self._pattern(job, parts) for job in jobs), shares, self.shared.tenants, bursts)

    def _shown(self, job: SharedJob, steering: Steering, i: int, pattern: Pattern, alone_s: float) -> JobShare:
        steered = steering.course.step_s if steering.how != "nothing" else steering.unsteered_s
        slots = steering.slots[i]
        return JobShare(
            job.name, job.tenant, self.given[job.name].names, pattern.num_gpus, alone_s, steered[i],
            steering.unsteered_s[i], steering.in_phase_s[i], slots.offset_s, slots.period_s,
            steering.shares[i].priority,
        )  # fmt: skip


def headroom(party: Party, steering: Steering) -> float:
    """Return the part of links between switches that may go before a job is a hundredth slower, by halving."""
    low, high = 0.0, 0.99
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        course = party.run(steering.slots, steering.alone_s, given_away=middle)
        slower = max(a / b for a, b in zip(course.step_s, steering.course.step_s, strict=True))
        low, high = (middle, high) if slower <= 1 + MOST_LOST else (low, middle)
    return low


def _burst(fabric: Fabric, rails: Rails, traffic: Bursts) -> TrafficBurst:
    src, dst = (_gpus(fabric, end) for end in (traffic.source, traffic.target))
    a, b = np.repeat(src, len(dst)), np.tile(dst, len(src))
    carried = rails.carried(a, b, np.full(len(a), 1 / len(a)))
    share = replace(traffic.share, cap_Bps=traffic.share.cap_Bps)
    return TrafficBurst(traffic.name, carried, traffic.rate, float(traffic.size or 0), float(traffic.every or 0),
                 traffic.start, share)  # fmt: skip


def _gpus(fabric: Fabric, hosts: str) -> np.ndarray:
    given = from_list(fabric, hosts, "traffic")
    return np.array([fabric.gpu(host) for host in given.hosts], dtype=np.int64)
