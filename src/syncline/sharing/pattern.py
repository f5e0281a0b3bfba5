"""A pattern: one step of a job as tasks that wait for each other, on the links of the cluster.

Training jobs are executed as `syncline step --level flow` does; a measured step is its computation, then an all-reduce.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.placing.allocation import Allocation
from syncline.placing.judge import Judge
from syncline.sharing.jobs_file import StatedStep
from syncline.sim.step.constants import Constants
from syncline.sim.step.executed.footprint import Rails
from syncline.sim.step.executed.tasks import StepTasks
from syncline.workload.job import Job
from syncline.workload.step_graph import step_graph

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
MOST_MICRO = 48
"""Micro-batches of a step that are tasks of their own; more are joined into larger ones."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """One step: tasks with their delay, bytes and waits; task i crosses links as row `row[i]` of `table` says."""

    num_gpus: int
    delay_s: Floats
    size_bytes: Floats
    row: Longs
    """-1: the task crosses nothing."""
    waits: tuple[tuple[int, ...], ...]
    table: Floats
    """Bytes on every link per byte of a task, one row a kind of traffic."""

    @property
    def sinks(self) -> list[int]:
        """Tasks that nobody waits for: with them the step ends."""
        waited = {other for wait in self.waits for other in wait}
        return [task for task in range(len(self.waits)) if task not in waited]


def gpus_of(fabric: Fabric, given: Allocation) -> Longs:
    """Return the GPUs of an allocation."""
    return np.concatenate(
        [fabric.gpus[fabric.gpu_host == host][list(local)] for host, local in zip(given.hosts, given.gpus, strict=True)]
    ).astype(np.int64)


def measured_pattern(fabric: Fabric, rails: Rails, given: Allocation, step: StatedStep) -> Pattern:
    """Return a computation followed by an all-reduce over all GPUs of the allocation."""
    gpus = gpus_of(fabric, given)
    num = len(gpus)
    if num < 2:
        return Pattern(num, np.array([step.compute]), np.zeros(1), np.array([-1]), ((),), _no_rows(rails))
    table = rails.carried(*rails.gathers(gpus[None], sums=True))[None]
    sent = 2 * (num - 1) / num * step.exchange  # scatter, then gather
    return Pattern(num, np.array([step.compute, 0.0]), np.array([0.0, sent]), np.array([-1, 0]), ((), (0,)), table)


def training_pattern(fabric: Fabric, rails: Rails, given: Allocation, job: Job, k: Constants) -> Pattern:
    """Return the executed step of a training job with hosts in packed order."""
    if job.kind == "decode":
        raise UsageError(f"{job.name} decodes; only training jobs share a cluster here.")
    judge = Judge(fabric, given, job, constants=k, rails=rails)
    micro = judge.result.job.num_micro
    if micro > MOST_MICRO:  # fewer, larger micro-batches: the same bytes and work in fewer tasks
        factor = next(f for f in range(-(-micro // MOST_MICRO), micro + 1) if micro % f == 0)
        batch = job.batch.model_copy(update={"micro": job.batch.micro * factor})
        judge = Judge(fabric, given, job.model_copy(update={"batch": batch}), constants=k, rails=rails)
    result = judge.result
    stages = judge.stages(judge.seats.packed_order())
    tasks = StepTasks(stages, result, k, step_graph(result.job, max_micro=result.job.num_micro))
    delay_s, size_bytes, path, waits = tasks.columns.load
    return Pattern(
        judge.seats.num_ranks, delay_s, size_bytes, path, tuple(tuple(wait) for wait in waits), tasks.footprints()
    )


def _no_rows(rails: Rails) -> Floats:
    return np.zeros((0, len(rails.capacity_Bps)))
