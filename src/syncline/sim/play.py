"""Play a scenario: its jobs together on the cluster as it fares, and each alone on the healthy one.

report = play(load_scenario("shared.yaml"), fabric)
report.jobs[0].slowdown        # against the same job with the cluster to itself
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from syncline.describe.model import reported
from syncline.errors import SimulationError
from syncline.fabric import Fabric
from syncline.fabric.fabric import DeviceKind
from syncline.fabric.faults import FailedPart, links_of_fault
from syncline.program import Placement, Program, place
from syncline.program.placement import given
from syncline.sim.candidates import NAMES
from syncline.sim.collective.price import price
from syncline.sim.flow.flow import Background, FlowJob, FlowOutcome, LinkEvent, simulate
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.scenario import Event, JobPart, Scenario, SteadyTraffic
from syncline.sim.sweep import contest_of


@dataclass(frozen=True)
class JobReport:
    """What came of one job: when it began and ended, and what it would have taken alone."""

    name: str
    tenant: str
    num_ranks: int
    start_s: float
    end_s: float
    alone_s: float
    library_s: float | None = field(default=None, kw_only=True)
    """What NCCL, or the library that the cluster names, takes for one of its collectives alone: it has no flows."""

    @reported
    def took_s(self) -> float:
        return self.end_s - self.start_s

    @reported
    def slowdown(self) -> float:
        """How many times longer it took than alone on the healthy cluster."""
        return self.took_s / self.alone_s if self.alone_s > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Report:
    """A played scenario."""

    outcome: FlowOutcome
    jobs: tuple[JobReport, ...]

    @cached_property
    def busiest(self) -> list[tuple[str, float]]:
        """The ten busiest links with their mean utilisation until the last job is done; of equal ones the first."""
        network, moved = self.outcome.network, self.outcome.course.link_bytes
        with np.errstate(divide="ignore", invalid="ignore"):
            use = np.nan_to_num(moved / (network.capacity_Bps * self.outcome.makespan_s))
        order = np.argsort(-np.round(use, 9), kind="stable")[:10]
        return [(network.link_name(int(link)), float(min(use[link], 1.0))) for link in order if moved[link] > 0]


def play(scenario: Scenario, fabric: Fabric, *, record: bool = False, options: NetworkOptions | None = None) -> Report:
    """Return what came of the jobs on this cluster, each also run alone on the healthy cluster.

    `options` are used instead of the scenario's own.
    """
    network = FlowNetwork(fabric, options or scenario.network.options)
    jobs, numbers = repetitions(
        scenario,
        network,
        lambda part, program, start_s, after: FlowJob(
            program, part.size, part.name, start_s, after, part.compute, part.share, dict(part.slow)
        ),
    )
    outcome = simulate(
        jobs,
        network,
        events=[found for event in scenario.events for found in _events_of(fabric, event)],
        background=[_background(fabric, traffic) for traffic in scenario.traffic],
        guarantees=scenario.tenants,
        record=record,
    )
    ends = outcome.job_end_s
    reports = []
    for part in scenario.jobs:
        first, end = numbers[part.name][0], numbers[part.name][-1]
        begin = max([part.start, *(ends[numbers[other][-1]] for other in part.after)])
        alone = simulate([_alone(job, first) for job in jobs[first : end + 1]], network).makespan_s
        reports.append(JobReport(part.name, part.tenant, jobs[end].program.num_ranks, begin, ends[end], alone,
                                 library_s=_library_s(part, network)))  # fmt: skip
    return Report(outcome, tuple(reports))


Job = TypeVar("Job")


def repetitions(
    scenario: Scenario, network: FlowNetwork, make: Callable[[JobPart, Program, float, tuple[int, ...]], Job]
) -> tuple[list[Job], dict[str, range]]:
    """Return an engine's jobs, and by name the numbers of each part's repetitions.

    `make` gets a part, its program, when it may start and the numbers of the jobs that it waits for.
    """
    jobs: list[Job] = []
    numbers: dict[str, range] = {}
    for part in scenario.jobs:
        program, first = program_of(network, part), len(jobs)
        for repetition in range(part.repeat):
            after = (len(jobs) - 1,) if repetition else tuple(numbers[other][-1] for other in part.after)
            jobs.append(make(part, program, part.start + repetition * part.period, after))
        numbers[part.name] = range(first, len(jobs))
    return jobs, numbers


def _alone(job: FlowJob, first: int) -> FlowJob:
    """Return a repetition of a job as it would be with the cluster to itself, from time 0."""
    after = tuple(other - first for other in job.after if other >= first)
    return FlowJob(job.program, job.size_bytes, job.name, 0.0, after, job.compute_s)


def program_of(network: FlowNetwork, part: JobPart) -> Program:
    """Return the program of a job on the GPUs it names: the best known schedule, in chunks that suit it alone."""
    placed = _placement(network.fabric, part)
    contest = contest_of(part.algorithm, NAMES[part.collective], placed, network)
    return contest.at(contest.executed(contest.best(part.size))).program


def _library_s(part: JobPart, network: FlowNetwork) -> float | None:
    if part.algorithm != "auto":
        return None
    found = price(NAMES[part.collective], int(part.size), _placement(network.fabric, part), options=network.options)
    return None if found.nccl is None else found.nccl.time_s


def _placement(fabric: Fabric, part: JobPart) -> Placement:
    if part.hosts is None:
        return place(part.placement, fabric, part.ranks)
    chosen = set(read_hosts(part.hosts, fabric.num_hosts))
    whole = place(part.placement, fabric)
    mine = whole.device[np.isin(whole.host, list(chosen))]
    if part.ranks is not None and part.ranks > len(mine):
        raise SimulationError(f'job "{part.name}" wants {part.ranks} ranks; hosts {part.hosts} have {len(mine)} GPUs.')
    return given(fabric, [int(device) for device in mine[: part.ranks]])


def read_hosts(text: str, num_hosts: int) -> list[int]:
    """Read "0-3,8" as host numbers.

    >>> read_hosts("0-2,5", 8)
    [0, 1, 2, 5]
    """
    found: list[int] = []
    for piece in text.split(","):
        low, dash, high = piece.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise SimulationError(f'hosts "{text}" cannot be read.', hint='Write numbers and ranges: "0-3,8".')
        found.extend(range(int(low), int(high or low) + 1))
    if not found or max(found) >= num_hosts:
        raise SimulationError(f'hosts "{text}" are not all there: the cluster has hosts 0 to {num_hosts - 1}.')
    return found


def _events_of(fabric: Fabric, event: Event) -> list[LinkEvent]:
    # Several cables of a device: each is one event; both directions of a cable are the engine's affair.
    links = links_of_fault(fabric, FailedPart(link=event.link, device=event.device, which=event.which))
    cables = sorted({int(link) & ~1 for link in links})
    full = fabric.links.rate_Bps
    factor = {cable: 1.0 if event.rate == "full" else min(1.0, event.rate / float(full[cable])) for cable in cables}
    return [LinkEvent(event.at, cable, factor[cable], event.reroute) for cable in cables]


def _background(fabric: Fabric, traffic: SteadyTraffic) -> Background:
    source, target = gpu(fabric, traffic.source), gpu(fabric, traffic.target)
    return Background(source, target, traffic.rate, traffic.start, traffic.duration, traffic.share)


def gpu(fabric: Fabric, name: str) -> int:
    """Return a GPU by its name, or the first GPU of a host by the host's number."""
    if name.isdecimal():
        if int(name) >= fabric.num_hosts:
            raise SimulationError(f"there is no host {name}: the cluster has hosts 0 to {fabric.num_hosts - 1}.")
        return int(fabric.gpus[fabric.gpu_host == int(name)][0])
    device = fabric.device(name)
    if fabric.devices.kind[device] != DeviceKind.GPU:
        raise SimulationError(
            f'"{name}" is not a GPU; traffic starts and ends at GPUs.', hint="Name host-00/gpu-0, or a host."
        )
    return device
