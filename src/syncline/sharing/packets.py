"""An epoch packet by packet: measured steps of all jobs with every queue, at the same time and in their slots.

Millions of packets take seconds each: steps that would send more than MOST are played at a fraction of their length,
computation and bytes alike, which leaves shares as they are and makes round trips count for more; `scale` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncline.describe.model import reported
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.placing.allocation import Allocation, from_list
from syncline.program import given as placed_on
from syncline.program import lower
from syncline.sharing.epochs import Epoch, faults_at
from syncline.sharing.jobs_file import Bursts, SharedCluster, SharedJob
from syncline.sharing.pattern import gpus_of
from syncline.sim.candidates import NAMES, find, usual
from syncline.sim.packet import PacketJob, PacketNetwork, PacketOptions, Traffic, messages, packet_network, simulate
from syncline.sim.packet.outcome import Outcome

STEPS = 5
MOST = 3e6
"""Packets of an epoch, all jobs and steps."""


@dataclass(frozen=True)
class PacketShare:
    """One job in an epoch, packet by packet."""

    name: str
    alone_s: float
    in_phase_s: float
    steered_s: float | None
    """In its slots; None where the flow level proposes none."""

    @reported
    def in_phase_slowdown(self) -> float:
        return self.in_phase_s / self.alone_s

    @reported
    def slowdown(self) -> float | None:
        return None if self.steered_s is None else self.steered_s / self.alone_s


@dataclass(frozen=True)
class EpochPackets:
    """An epoch with every packet: the jobs, how far steps were shortened, and what befell packets."""

    transport: str
    scale: float
    jobs: tuple[PacketShare, ...]
    marks: int
    drops: int
    pauses: int


def play_epoch(
    shared: SharedCluster, fabric: Fabric, given: Mapping[str, Allocation], epoch: Epoch, options: PacketOptions
) -> EpochPackets:
    """Return an epoch's jobs packet by packet, each alone, all in phase, and in the slots the flow level chose."""
    jobs = [next(job for job in shared.jobs if job.name == each.name) for each in epoch.jobs]
    for job in jobs:
        if job.step is None:
            raise UsageError(
                f'job "{job.name}" is a training job; packets are played for measured steps.',
                hint="Give its `step: {compute, exchange}` (`syncline step` says both), or use `level` flow.",
            )
    if shared.tenants:
        raise UsageError("the packet level cannot guarantee tenants a part of links.", hint="Use `level` flow.")
    network = packet_network(faults_at(fabric, shared, epoch.begin_s)[1])
    scale = max(1.0, _packets(jobs, given, options) / MOST)
    slots = [(job.offset_s / scale, job.period_s / scale) for job in epoch.jobs]
    free = [(0.0, 0.0)] * len(jobs)
    made = [_program(network, job, given[job.name], scale) for job in jobs]
    alone = [_steps(simulate(network, _repeated([one], [free[0]]), options), 1)[0] for one in made]
    horizon_s = STEPS * 2 * sum(alone)
    others = [_traffic(fabric, each, scale, horizon_s) for each in shared.traffic]
    together = _beside(network, _repeated(made, free), others, options)
    steered = None
    if epoch.how == "slots":
        steered = _steps(_beside(network, _repeated(made, slots), others, options), len(made))
    in_phase = _steps(together, len(made))
    rows = tuple(
        PacketShare(job.name, alone[n] * scale, in_phase[n] * scale, None if steered is None else steered[n] * scale)
        for n, job in enumerate(jobs)
    )
    counters = together.counters
    return EpochPackets(
        options.transport, scale, rows, counters["marks"], counters["drops"] + counters["lossless_drops"],
        counters["pauses"],
    )  # fmt: skip


def _packets(jobs: Sequence[SharedJob], given: Mapping[str, Allocation], options: PacketOptions) -> float:
    sent = sum(2 * (given[job.name].num_gpus - 1) * job.step.exchange for job in jobs if job.step is not None)
    return STEPS * sent / options.payload_bytes


def _program(network: PacketNetwork, job: SharedJob, hosts: Allocation, scale: float) -> PacketJob:
    """Return one step: the computation, then an all-reduce over all GPUs of the allocation."""
    assert job.step is not None
    fabric = network.fabric
    placed = placed_on(fabric, gpus_of(fabric, hosts).tolist())
    kind = NAMES["allreduce"]
    program = lower(find(fabric, kind, placed.num_ranks, usual(fabric, kind, placed.num_ranks)), placed)
    return PacketJob(
        program, job.step.exchange / scale, job.name, compute_s=job.step.compute / scale, cap_Bps=job.share.cap_Bps
    )


def _repeated(made: Sequence[PacketJob], slots: Sequence[tuple[float, float]]) -> list[PacketJob]:
    """Return STEPS of every job, each after the one before and not before its slot."""
    found: list[PacketJob] = []
    for job, (offset_s, period_s) in zip(made, slots, strict=True):
        for step in range(STEPS):
            after = (len(found) - 1,) if step else ()
            found.append(replace(job, start_s=offset_s + step * period_s, after=after))
    return found


def _beside(
    network: PacketNetwork, jobs: list[PacketJob], others: Sequence[Traffic], options: PacketOptions
) -> Outcome:
    return simulate(network, [*jobs, *others], options, until_done=range(len(jobs)) if others else ())


def _steps(outcome: Outcome, count: int) -> list[float]:
    """Return the mean distance between the ends of a job's steps, the first left out."""
    found = []
    for job in range(count):
        ends = [outcome.job_end_s(job * STEPS + step) for step in range(STEPS)]
        if not np.isfinite(ends).all():
            raise UsageError(
                f'job "{outcome.jobs[job * STEPS].name}" does not get through its steps: {outcome.state}.',
                hint="Another `transport`, or `level` flow.",
            )
        found.append((ends[-1] - ends[0]) / (STEPS - 1))
    return found


def _traffic(fabric: Fabric, each: Bursts, scale: float, horizon_s: float) -> Traffic:
    """Return other traffic for so long: its rate as one capped message a pair, or its bursts; scaled like the steps."""
    source, target = (gpus_of(fabric, from_list(fabric, text, "traffic"))[:1] for text in (each.source, each.target))
    if each.rate is not None:
        stream = messages(source, target, each.rate * horizon_s, each.start / scale, name=each.name)
        return replace(stream, cap_Bps=min(each.rate, each.share.cap_Bps))
    starts = np.arange(each.start / scale, horizon_s, float(each.every or horizon_s) / scale)
    return messages(source, target, float(each.size or 0) / scale, starts, name=each.name)
