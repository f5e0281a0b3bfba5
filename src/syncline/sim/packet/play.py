"""Play a scenario packet by packet: its jobs together as the cluster fares, each alone, and the flow level beside.

report = play_packets(load_scenario("shared.yaml"), packet_network(fabric), PacketOptions("dcqcn"))
report.jobs[0].slowdown, report.jobs[0].completion.p99_s, report.jobs[0].tally["marks"]

What packets cannot honour is refused: guarantees of tenants, half-duplex links, GPUs without direct access, traffic
that moves to another NIC, and weights that switches cannot be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, lcm

from syncline.errors import SimulationError
from syncline.fabric.faults import FailedPart, links_of_fault
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.packet.levels import flow_options
from syncline.sim.packet.loaded import RandomLoad, simulate_loaded
from syncline.sim.packet.network import PacketNetwork
from syncline.sim.packet.options import LinkChange, PacketOptions, TrafficClass
from syncline.sim.packet.outcome import Completion, Outcome, Progress
from syncline.sim.packet.posting import PacketJob
from syncline.sim.packet.run import simulate
from syncline.sim.packet.traffic import Traffic, messages
from syncline.sim.play import JobReport, Report, gpu, play, repetitions
from syncline.sim.scenario import Event, Scenario, Treatment
from syncline.sim.scenario import SteadyTraffic as Stream


def cables(network: PacketNetwork, link: str | None, device: str | None, which: int | None = None) -> list[int]:
    """Return the network cables of a link or a device, each by its first link."""
    found = links_of_fault(network.fabric, FailedPart(link=link, device=device, which=which))
    kept = sorted({int(each) & ~1 for each in found if network.port_of_link[each] >= 0})
    if not kept:
        raise SimulationError(
            f'"{link or device}" has no network cable; inside hosts there are no packets.',
            hint="Name a NIC, a switch, or a cable between them.",
        )
    return kept


def is_access(network: PacketNetwork, cable: int) -> bool:
    """Say whether a cable is that of a NIC."""
    return any(int(network.src[network.port_of_link[link]]) < 0 for link in (cable, cable ^ 1))


def link_changes(network: PacketNetwork, events: Sequence[Event]) -> list[LinkChange]:
    """Return the changes of links that events mean; a repair is learned of as fast as the failure before it was."""
    found: list[LinkChange] = []
    down: dict[int, Event] = {}
    for event in sorted(events, key=lambda each: each.at):
        for cable in cables(network, event.link, event.device, event.which):
            full = float(network.fabric.links.rate_Bps[cable])
            factor = 1.0 if event.rate == "full" else min(1.0, event.rate / full)
            before = down.pop(cable, None)
            reroute = event.reroute if event.reroute is not None or before is None else before.reroute
            if factor == 0:
                down[cable] = event
            found.append(LinkChange(event.at, cable, factor, reroute))
    for cable in down:
        if is_access(network, cable):
            raise SimulationError(
                f"{network.fabric.link_name(cable)} fails and is never repaired; packets do not move to another NIC.",
                hint="Add its repair, or use --level flow, where traffic moves.",
            )
    return found


_MOST_CLASSES = 7
_MOST_WEIGHT = 1000


@dataclass(frozen=True)
class PacketJobReport(JobReport):
    """What came of one job packet by packet, and how long it takes at flow level."""

    traffic_class: int
    flow_s: float
    completion: Completion
    tally: Mapping[str, float]


@dataclass(frozen=True)
class Other:
    """What came of traffic that is no job's, until the jobs were done."""

    name: str
    completion: Completion
    tally: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class PacketReport:
    """A scenario played packet by packet; `flow` is the same at flow level, without what only packets have."""

    outcome: Outcome
    jobs: tuple[PacketJobReport, ...]
    others: tuple[Other, ...]
    classes: tuple[str, ...]
    flow: Report

    @property
    def makespan_s(self) -> float:
        """When the last job is done."""
        return max(job.end_s for job in self.jobs)


def play_packets(
    scenario: Scenario,
    network: PacketNetwork,
    options: PacketOptions,
    *,
    beside: RandomLoad | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> PacketReport:
    """Return what came of the jobs packet by packet, each also run alone on the healthy cluster."""
    _refuse(scenario, network)
    ranks = _ranks([*scenario.jobs, *scenario.traffic])
    options = _with_classes(options, ranks)
    changes = link_changes(network, scenario.events)
    near = replace(flow_options(options), transport=options.hosts or "ideal")
    flow = play(scenario, network.fabric, options=near)
    jobs, numbers = repetitions(
        scenario,
        FlowNetwork(network.fabric, near),
        lambda part, program, start, after: PacketJob(
            program,
            part.size,
            part.name,
            start,
            after,
            part.compute,
            ranks[_key(part)],
            part.share.cap_Bps,
            part.slow,
        ),
    )
    streams = [_stream(network, each, ranks[_key(each)]) for each in scenario.traffic]
    if beside is not None:
        beside = replace(beside, traffic_class=len(options.classes))
    outcome = simulate_loaded(
        network, jobs, options, beside, flow.outcome.makespan_s, others=streams, changes=changes, progress=progress
    )
    if not outcome.done(*range(len(jobs))):
        late = next(job.name for i, job in enumerate(jobs) if not outcome.done(i))
        raise SimulationError(
            f'job "{late}" does not end: {outcome.state} after {outcome.now_s:.3g} s.',
            hint="Ports that wait for each other: " + ", ".join(outcome.cycle)
            if outcome.cycle
            else "Repair what fails.",
        )
    reports = []
    for part, at_flow in zip(scenario.jobs, flow.jobs, strict=True):
        mine = numbers[part.name]
        begin = max([part.start, *(outcome.job_end_s(numbers[other][-1]) for other in part.after)])
        alone = simulate(network, [_alone(jobs[n], mine[0]) for n in mine], options)
        reports.append(
            PacketJobReport(
                part.name,
                part.tenant,
                at_flow.num_ranks,
                begin,
                outcome.job_end_s(mine[-1]),
                alone.job_end_s(len(mine) - 1),
                jobs[mine[0]].traffic_class,
                at_flow.took_s,
                Completion.of(outcome.times_s(*mine)),
                outcome.tally(*mine),
            )
        )
    others = [
        Other(outcome.jobs[n].name, Completion.of(outcome.times_s(n)), outcome.tally(n))
        for n in range(len(jobs), len(outcome.jobs))
    ]
    return PacketReport(outcome, tuple(reports), tuple(others), _class_names(ranks), flow)


def _refuse(scenario: Scenario, network: PacketNetwork) -> None:
    part = scenario.network
    for wrong, what, hint in (
        (scenario.tenants, f"guarantee tenant {next(iter(scenario.tenants), '')} a part of every link",
         "Use priority or weight, or --level flow."),
        (part.half_duplex, "halve links that go one way at a time", "Use --level flow."),
        (part.gpudirect is False, "send through host memory (gpudirect: false)", "Use --level flow."),
    ):  # fmt: skip
        if wrong:
            raise SimulationError(f"the packet level cannot {what}.", hint=hint)
    for event in scenario.events:
        for cable in cables(network, event.link, event.device, event.which):
            if event.rate == 0 and event.reroute is not None and is_access(network, cable):
                raise SimulationError(
                    f"the packet level cannot move traffic of {network.fabric.link_name(cable)} to another NIC.",
                    hint="Leave `reroute` out of that event, so that it waits for the repair, or use --level flow.",
                )


Key = tuple[int, Fraction]


def _key(part: Treatment) -> Key:
    return part.priority, -Fraction(str(part.weight))  # as it is written: 0.1 is a tenth


def _ranks(parts: Sequence[Treatment]) -> dict[Key, int]:
    """Return the traffic class of each priority and weight; the lower priorities come last, and the lower weights."""
    found = {key: number for number, key in enumerate(sorted({_key(part) for part in parts}))}
    if len(found) > _MOST_CLASSES:
        raise SimulationError(
            f"{len(found)} different priorities and weights; ports have room for {_MOST_CLASSES} classes.",
            hint="Give some jobs the same priority and weight.",
        )
    last = max(priority for priority, _ in found)
    for priority in {priority for priority, _ in found if priority != last}:
        if len([key for key in found if key[0] == priority]) > 1:
            raise SimulationError(
                f"priority {priority} has several weights; packets are weighted in the last priority only ({last}).",
                hint=f"Give jobs of priority {priority} one weight, or use --level flow.",
            )
    return found


def _weights(ranks: Mapping[Key, int]) -> list[int]:
    """Return the weight of each class as switches are told it: whole numbers, 0 where priority alone decides."""
    last = max(priority for priority, _ in ranks)
    weighted = [-weight for priority, weight in ranks if priority == last]
    if len(weighted) == 1:
        return [0] * len(ranks)
    scale = lcm(*(weight.denominator for weight in weighted))
    scaled = [int(weight * scale) for weight in weighted]
    whole = [weight // gcd(*scaled) for weight in scaled]
    if max(whole) > _MOST_WEIGHT:
        raise SimulationError(
            f"weights {', '.join(f'{float(weight):g}' for weight in weighted)} are no ratio of numbers up to "
            f"{_MOST_WEIGHT}, which switches need.",
            hint="Use rounder weights, or --level flow.",
        )
    return [0] * (len(ranks) - len(whole)) + whole


def _class_names(ranks: Mapping[Key, int]) -> tuple[str, ...]:
    return tuple(f"priority {priority}, weight {float(-weight):g}" for priority, weight in ranks)


def _with_classes(options: PacketOptions, ranks: Mapping[Key, int]) -> PacketOptions:
    first, *more = zip(_class_names(ranks), _weights(ranks), strict=True)
    classes = (TrafficClass(name, options.transport, weight, options.changes) for name, weight in more)
    return replace(options, weight=first[1], classes=tuple(classes))


def _alone(job: PacketJob, first: int) -> PacketJob:
    """Return a repetition of a job as it would be with the cluster to itself, from time 0."""
    after = tuple(other - first for other in job.after if other >= first)
    return PacketJob(job.program, job.size_bytes, job.name, 0.0, after, job.compute_s, job.traffic_class)


def _stream(network: PacketNetwork, stream: Stream, number: int) -> Traffic:
    """Return steady traffic as one message that may not go faster than its rate."""
    ends = gpu(network.fabric, stream.source), gpu(network.fabric, stream.target)
    name = f"{stream.source} -> {stream.target}"
    found = messages(*ends, stream.rate * stream.duration, stream.start, name=name)
    return replace(found.in_class(number), cap_Bps=min(stream.rate, stream.share.cap_Bps))
