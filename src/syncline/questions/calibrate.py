"""What does a system really give, by one measured step or one sweep of NCCL, kept as a profile?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.bench.step_log import StepLog, read_step_log
from syncline.describe import units
from syncline.describe.model import Handle, handle
from syncline.errors import UsageError
from syncline.explaining.observed import observed_trace
from syncline.fabric import Fabric
from syncline.program import place
from syncline.questions.answer import Answer, Output, Parameter, question
from syncline.questions.inputs import Cluster, ClusterArgument, JobSource, built, job_of
from syncline.questions.simulated.log_ranks import ranks_of
from syncline.schedule import Kind
from syncline.sim.collective.price import CollectivePricer
from syncline.sim.nccl.measured import read_log, read_text
from syncline.sim.profile import (
    MeasuredCollective,
    MeasuredStep,
    SystemProfile,
    load_profile,
    save_profile,
    split_words,
)
from syncline.sim.shared import levels_of
from syncline.sim.step.calibrate import Observation, calibrate, check_plausible
from syncline.sim.step.step import StepResult, kind_of
from syncline.sim.step.step import step as price
from syncline.sim.swept import seen_in
from syncline.workload.job import Job

PROFILE_OUTPUT = Output("Write the profile.", lambda answer, path: answer.save(path), names=("--out", "-o"))


class SavedProfile(Answer):
    """An answer that holds a profile, which can be written."""

    outputs: ClassVar[Mapping[str, Output]] = {"out": PROFILE_OUTPUT}
    profile: SystemProfile

    def save(self, path: str | Path) -> None:
        """Write the profile."""
        save_profile(self.profile, path)


@dataclass(frozen=True)
class Multiplier:
    """How many times as long as the model says, and how sure that is."""

    value: float
    log_sigma: float


@dataclass(frozen=True)
class StepProfile(SavedProfile):
    """A profile with one measured step more, and what the model says of that step before and after."""

    schema_name: ClassVar[str] = "calibrate-step"

    cluster: str
    gpu: str
    job: str
    measured_s: float
    measured_parts_s: dict[str, float]
    read: str | None
    """What was read of a log."""
    shipped_s: float
    calibrated_s: float
    multipliers: dict[str, Multiplier]
    measured_runs: int
    remarks: tuple[str, ...]
    profile: Handle[SystemProfile] = handle()


@dataclass(frozen=True)
class SweptSize:
    """One size of a sweep: measured, and by the model as it ships."""

    size_bytes: int
    measured_s: float
    shipped_s: float


@dataclass(frozen=True)
class CollectiveProfile(SavedProfile):
    """A profile with one sweep of nccl-tests more."""

    schema_name: ClassVar[str] = "calibrate-collective"

    cluster: str
    gpu: str
    collective: str
    ranks: int
    hosts: int
    log: str
    rows: tuple[SweptSize, ...]
    profile: Handle[SystemProfile] = handle()


OpOption = Annotated[str, Parameter("The operation, if the log does not name it: all_reduce.")]
ProfileOption = Annotated[str | Path | None, Parameter("A profile to add this run to.")]


@question(
    "syncline calibrate step h100-64-rail job.yaml --measured 4.6s --out profile.yaml",
    "syncline calibrate step cluster.yaml job.yaml --log train.log --out profile.yaml",
    "syncline calibrate step cluster.yaml job.yaml --trace rank0.pt.trace.json.gz --out profile.yaml",
    "syncline step cluster.yaml other-job.yaml --profile profile.yaml",
    help="""Fit the model to one measured step of a job, for predictions of its other splits, sizes and scales.

    One time says how far off the whole step is: other splits of the job share nearly all of that, other models less. A
    trace tells matrix products, attention, passes over memory, exchanges and the host apart.
    """,
)
def calibrate_step(
    cluster: ClusterArgument,
    job: Annotated[JobSource, Parameter("The job that was measured: a file, or one that ships.", kind=str)],
    *,
    measured: Annotated[str | float | None, Parameter("The time of one step, with its unit: 4.6s, 830ms.")] = None,
    trace: Annotated[str | Path | None, Parameter("A trace: PyTorch profiler, Nsight, Chakra.")] = None,
    log: Annotated[str | Path | None, Parameter("A training log with step lines.")] = None,
    steps: Annotated[int | None, Parameter("Steps that the trace holds, if it does not say.", min=1)] = None,
    profile: ProfileOption = None,
) -> StepProfile:
    """Fit the model to one measured step of a job on a cluster.

    Exactly one of `measured` ("4.6s"), `trace` and `log` is given; `profile` is one to add to.

    >>> found = calibrate_step("h100-64-rail", "llama3-70b", measured="30s")
    >>> round(found.calibrated_s)
    30
    """
    if sum(value is not None for value in (measured, trace, log)) != 1:
        raise UsageError("give one measurement: `measured`, `trace` or `log`.", hint="For example `measured` 4.6s.")
    described, fabric = job_of(job), built(cluster)
    shipped = shipped_step(fabric, described)
    read: StepLog | None = None
    if log is not None:
        read = read_step_log(read_text(log), str(log), described, shipped.num_gpus)
        seen = Observation(read.step_s)
    elif trace is not None:
        seen = observed_trace(trace, steps=steps, pipelined=shipped.job.parallel.pp > 1)
    else:
        seen = Observation(_seconds(measured))
    before = load_profile(profile) if profile is not None else None
    return fitted_step(fabric, described, shipped, seen, str(log or trace or "stated"), before, read)


def shipped_step(fabric: Fabric, job: Job) -> StepResult:
    """Return the step of a job as the model ships, where it has multipliers."""
    if job.kind == "decode":
        raise UsageError("a decode job has no training step to calibrate.", hint="Give a job of kind: train.")
    shipped = price(fabric, job)
    if shipped.case is None:
        raise UsageError(f"{job.model.name} is a list of layers; multipliers are those of a transformer.")
    return shipped


def fitted_step(
    fabric: Fabric, job: Job, shipped: StepResult, seen: Observation, source: str,
    before: SystemProfile | None = None, read: StepLog | None = None,
) -> StepProfile:  # fmt: skip
    """Return a profile with one measured step more."""
    assert shipped.case is not None
    before = before or SystemProfile(fabric.name, shipped.machine.gpu.name)
    before.check(shipped.machine.gpu.name)
    check_plausible(seen.step_s, shipped.step_time_s)
    found = calibrate(before.steps, shipped.case, seen)
    run = MeasuredStep(
        job=job.name,
        model=job.model.name,
        gpus=shipped.num_gpus,
        precision=job.precision,
        split=split_words(shipped.job),
        measured_s=seen.step_s,
        predicted_s=shipped.step_time_s,
        source=source,
        own=round(found.own, 5),
    )
    after = replace(before, steps=found, measured=(*before.measured, run))
    sigma = found.sigma()
    return StepProfile(
        cluster=after.cluster,
        gpu=after.gpu,
        job=job.name,
        measured_s=seen.step_s,
        measured_parts_s=seen.parts_s,
        read=str(read) if read else None,
        shipped_s=shipped.step_time_s,
        calibrated_s=price(fabric, job, after.constants(shipped.job, shipped.num_gpus)).step_time_s,
        multipliers={name: Multiplier(value, sigma[name]) for name, value in asdict(found.multipliers).items()},
        measured_runs=len(after.measured),
        remarks=_remarks(seen.step_s, shipped),
        profile=after,
    )


def _remarks(measured_s: float, shipped: StepResult) -> tuple[str, ...]:
    levels = levels_of("experts" if kind_of(shipped.job) == "experts" else "step")
    if abs(math.log(measured_s / shipped.step_time_s)) < 3 * levels.prior:
        return ()
    return ("further from the shipped model than systems of one description differ: check that the job file is "
            "the job that ran",)  # fmt: skip


@question(
    "syncline calibrate collective h100-64-rail all_reduce.log --out profile.yaml",
    "syncline calibrate collective cluster.yaml alltoall.json --ranks 16 --profile profile.yaml --out profile.yaml",
    "syncline simulate allreduce --cluster h100-64-rail --algorithm nccl --profile profile.yaml",
)
def calibrate_collective(
    cluster: ClusterArgument,
    log: Annotated[str | Path, Parameter("The output of nccl-tests, text or JSON.")],
    *,
    op: OpOption = "",
    ranks: Annotated[
        int | None, Parameter("Ranks of the run (default: as the log says, else the whole cluster).", min=1)
    ] = None,
    profile: ProfileOption = None,
) -> CollectiveProfile:
    """Fit NCCL's model to one nccl-tests log of this cluster, on so many ranks (default: those of the log, or all)."""
    fabric = built(cluster)
    ranks = ranks_of(Path(log), op, ranks, fabric)
    series = read_log(read_text(log), str(log), op)
    pricer = CollectivePricer(Kind(series.op), place("packed", fabric, ranks))
    system = pricer.system
    gpu = price_gpu(fabric)
    before = load_profile(profile) if profile is not None else SystemProfile(fabric.name, gpu)
    before.check(gpu)
    added = MeasuredCollective(series.op, system.num_ranks, system.num_hosts, str(log), seen_in(system, series))
    plain = pricer.prediction(series.sizes.tolist())
    rows = tuple(
        SweptSize(int(size), float(seen / 1e6), float(was / 1e6))
        for size, seen, was in zip(series.sizes, series.time_us, plain.time_us, strict=True)
    )
    return CollectiveProfile(
        cluster=before.cluster,
        gpu=before.gpu,
        collective=added.op,
        ranks=added.ranks,
        hosts=added.hosts,
        log=added.source,
        rows=rows,
        profile=before.with_collective(added),
    )


def price_gpu(fabric: Cluster) -> str:
    """Return the part whose rates a step on this cluster is priced with."""
    from syncline.sim.step.machine import machine_from_fabric

    return machine_from_fabric(built(fabric)).gpu.name


def _seconds(text: str | float | None) -> float:
    if isinstance(text, str) and text.strip().replace(".", "", 1).isdigit():
        raise UsageError(f'`measured` "{text}" has no unit.', hint=f"Write {text.strip()}s or {text.strip()}ms.")
    value = units.time(text or 0.0)
    if not value > 0:
        raise UsageError(f"`measured` must be above 0, got {text}.", hint="For example 4.6s.")
    return value


COMMANDS = {"step": calibrate_step, "collective": calibrate_collective}
UNNAMED = "hosts"
HELP = (
    "Fit predictions to what was measured: a step, a log of nccl-tests, a sweep of the hosts, a script.\n\n"
    "`syncline calibrate CLUSTER` is short for `syncline calibrate hosts CLUSTER`."
)
EXAMPLES = (
    "syncline calibrate step h100-64-rail job.yaml --measured 4.6s --out profile.yaml",
    "syncline calibrate collective h100-64-rail all_reduce.log --out profile.yaml",
    "syncline calibrate cluster.yaml --out calibrated.yaml",
)
