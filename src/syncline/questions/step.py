"""How long is one training step of a job on a cluster, what limits it, and does it fit?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.guide import cite
from syncline.describe.mistakes import blamed_on
from syncline.describe.model import Handle, handle
from syncline.describe.progress import Progress
from syncline.errors import SimulationError, UsageError
from syncline.fabric import Fabric
from syncline.fabric.assumed import assumed_of
from syncline.planning.unstated import UnstatedKeys, unstated
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import ClusterArgument, JobSource, built, job_of
from syncline.questions.within.volumes import traffic
from syncline.sim.flow.routing import ROUTINGS
from syncline.sim.profile import SystemProfile, load_profile
from syncline.sim.step.calibrate import Multipliers
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.decode import DecodeResult, decode_step
from syncline.sim.step.executed.account import executed_account, executed_limit
from syncline.sim.step.executed.execute import StepRun, execute
from syncline.sim.step.executed.gap import causes
from syncline.sim.step.limit import Limit
from syncline.sim.step.step import IGNORES, StepResult
from syncline.sim.step.step import step as price
from syncline.sim.step.storage import Storage
from syncline.sim.uncertainty import Interval
from syncline.timeline import Timeline, save
from syncline.timeline.account import Account, StepCause
from syncline.workload.layer_list import LayerList
from syncline.workload.parallel import Parallel
from syncline.workload.software import Assumed
from syncline.workload.trace import is_trace

LEVELS = ("analytic", "flow", "packet")


TRACE = Output(
    "Write the timeline (.json or .json.gz for Perfetto, .parquet).", lambda answer, path: save(answer.timeline, path)
)


class UsedSplit(Parallel):
    """The split of a priced job, with nothing left open."""

    sp: bool
    micro_batches: int


@dataclass(frozen=True)
class MemoryUse:
    """Bytes on the fullest GPU by what they hold, and what the GPU has."""

    parameters: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    buffers: float = 0.0
    fragmentation: float = 0.0
    total: float = 0.0
    available: float = 0.0
    fits: bool = True


@dataclass(frozen=True)
class WarmUp:
    """The dense steps that come first (1-bit Adam)."""

    steps: int
    step_s: float


@dataclass(frozen=True)
class ProfileUse:
    """What a profile did to a prediction."""

    file: str
    measured_runs: int
    log_sigma: float
    """One standard deviation of the logarithm of the step time."""
    multipliers: Multipliers
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class ExchangePrice:
    """Whose price a step's gathers, scatters and sums have: that of `simulate`, times a residual."""

    library: str
    residual: float


@dataclass(frozen=True)
class StepPrediction(Answer):
    """One training step: its time, what it waits for, its memory and what limits it."""

    schema_name: ClassVar[str] = "step"
    outputs: ClassVar[Mapping[str, Output]] = {
        "trace": TRACE,
        **page_output("Write a page: where the time goes, and every pipeline stage."),
    }

    cluster: str
    assumed_of_cluster: tuple[str, ...]
    """What the cluster's file leaves open."""
    level: str
    job: str
    model: str
    gpu: str
    gpus: int
    step_time_s: float
    analytic_step_time_s: float
    """What closed forms give, also where the step was executed."""
    bound_s: float
    """No run of this step can beat it; 0 where that is not known."""
    warm_up: WarmUp | None
    token: str
    """What is counted: "token", or "sample" where a model has no tokens."""
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    """Model operations over peak."""
    mfu_peak_flops: float
    memory_bytes: MemoryUse
    parallel: UsedSplit
    account: Account
    """Where the step goes, and what networks without limits, in hosts and between them, would save."""
    exposed_comm_s: float
    parts_s: dict[str, float]
    """Where the time goes, without remainder; `execution` is what an executed step adds to closed forms, or spares."""
    exchanges: ExchangePrice | None
    """Whose price collectives have; None where a compiler lays them out."""
    comm_bytes: dict[str, dict[str, float]]
    limit: Limit
    storage: Storage
    assumed: dict[str, Assumed]
    interval: Interval
    memory_interval: Interval
    fit_chance: float
    """How likely the fullest GPU's memory suffices."""
    ignores: tuple[str, ...]
    warnings: tuple[str, ...]
    profile: ProfileUse | None
    """What was measured on this system, where a profile was given."""
    unstated: UnstatedKeys | None
    """Keys that the job leaves out and that would make it fit, or faster."""
    executed: StepRun | None
    """The step as executed at flow or packet level, where that was asked for."""
    result: Handle[StepResult] = handle()

    @property
    def fits(self) -> bool:
        """Whether the fullest rank's memory suffices."""
        return self.memory_bytes.fits

    @cached_property
    def timeline(self) -> Timeline:
        """What every pipeline stage does."""
        from syncline.sim.step.spans import step_timeline

        return step_timeline(self.result)


def prediction(
    fabric: Fabric, result: StepResult, executed: StepRun | None = None, profile: SystemProfile | None = None,
    unstated: UnstatedKeys | None = None, constants: Constants | None = None,
) -> StepPrediction:  # fmt: skip
    """Return the answer of a priced step, executed or not."""
    job, split, took_s = result.job, result.job.parallel, executed.step_time_s if executed else result.step_time_s
    faster = result.step_time_s / took_s
    filled = {"sp": result.facts.sequence_parallel and split.tp > 1, "micro_batches": job.num_micro}
    account = executed_account(result.account, executed) if executed else result.account
    return StepPrediction(
        cluster=fabric.name,
        assumed_of_cluster=tuple(assumed_of(fabric.spec)),
        level=executed.level if executed else "analytic",
        job=job.name,
        model=job.model.name,
        gpu=result.machine.gpu.name,
        gpus=result.num_gpus,
        step_time_s=took_s,
        analytic_step_time_s=result.step_time_s,
        bound_s=result.floor_s,
        warm_up=None if result.warm_up_s is None else WarmUp(job.sync.warmup, result.warm_up_s),
        token="sample" if isinstance(job.model, LayerList) else "token",
        tokens_per_s=result.tokens_per_s * faster,
        tokens_per_s_per_gpu=result.tokens_per_s * faster / result.num_gpus,
        mfu=result.mfu * faster,
        mfu_peak_flops=result.peak_flops,
        memory_bytes=MemoryUse(
            **result.memory_bytes, available=float(result.machine.gpu.memory_bytes), fits=result.fits
        ),
        parallel=UsedSplit.model_validate(split.model_dump() | filled),
        account=account,
        exposed_comm_s=account.seconds(StepCause.NETWORK),
        parts_s=dict(executed.parts_s) if executed else result.parts_s,
        exchanges=_exchanges(result, profile),
        comm_bytes=result.comm_bytes,
        limit=executed_limit(result, executed, constants or default_constants()) if executed else result.limit,
        storage=result.storage,
        assumed=result.facts.assumed,
        interval=result.interval(took_s, shared=profile.shared(job, result.num_gpus) if profile else ""),
        memory_interval=result.memory_interval,
        fit_chance=result.fit_chance,
        ignores=IGNORES,
        warnings=result.warnings,
        profile=None if profile is None else _profile_use(profile, result),
        unstated=unstated,
        executed=executed and replace(executed, differs=causes(result, executed)),
        result=result,
    )


def _exchanges(result: StepResult, profile: SystemProfile | None) -> ExchangePrice | None:
    found = result.machine.library
    if found is None:
        return None
    constants = default_constants() if profile is None else profile.steps.constants()
    return ExchangePrice(found.name, constants.held.library)


def _profile_use(profile: SystemProfile, result: StepResult) -> ProfileUse:
    sigma = profile.learnt(result.job, result.num_gpus)[1]
    remarks = profile.remarks(result.job.precision)
    return ProfileUse(profile.path, len(profile.measured), sigma, profile.steps.multipliers, remarks)


@dataclass(frozen=True)
class DecodePrediction(Answer):
    """One generated token: its time and what it is made of."""

    schema_name: ClassVar[str] = "step-decode"
    content: ClassVar[str] = "result"

    result: DecodeResult

    @property
    def token_time_s(self) -> float:
        return self.result.token_time_s


@question(
    "syncline step h100-64-rail job.yaml",
    "syncline step cluster.yaml job.yaml --json",
    "syncline step h100-64-rail job.yaml --trace step.json --html step.html",
    "syncline step h100-64-rail job.yaml --level flow --json",
    "syncline step h100-64-rail job.yaml --profile profile.yaml",
    help="""Predict one training step of a job on a cluster: time, MFU, memory, traffic, and what limits it.

    The job file fixes the parallelism; anything it leaves out is a default of the software's year and
    is listed with the answer. A job of `kind: decode` gives the time of one generated token instead. A trace of a real
    step is explained: `syncline explain TRACE --cluster CLUSTER`.
    """,
)
def step(
    cluster: ClusterArgument,
    job: Annotated[
        JobSource,
        Parameter(f"A job file ({cite('job-file')}).", kind=str),
    ],
    *,
    level: Annotated[
        str | None,
        Parameter("flow (executed on the fabric, the default), analytic (closed forms) or packet."),
    ] = None,
    routing: Annotated[
        str, Parameter("With flow: spray (balanced), ecmp (hashed) or static; with packet: spray or ecmp.")
    ] = "spray",
    profile: Annotated[str | Path | None, Parameter("Measurements of this system (`syncline calibrate`).")] = None,
    max_packets: Annotated[
        int | None, Parameter("With packet: stop once more than this many are run (300,000,000).", min=1, rare=True)
    ] = None,
    progress: Progress | None = None,
) -> StepPrediction | DecodePrediction:
    """Predict one training step of a job on a cluster, or one token of a decode job.

    `level` is "flow" (executed on the fabric, the default; closed forms where that cannot be done), "analytic"
    (closed forms) or "packet" (executed packet by packet, up to `max_packets`); `profile` is a file of what was
    measured on this system (`calibrate_step`).

    >>> answer = step("h100-64-rail", "llama3-70b")
    >>> answer.step_time_s > 0, answer.fits
    (True, False)
    """
    if routing not in ROUTINGS:
        raise UsageError(f'no routing is called "{routing}".', hint=f"One of: {', '.join(ROUTINGS)}.")
    if isinstance(job, (str, Path)) and is_trace(Path(job)):
        named = cluster if isinstance(cluster, str) else "CLUSTER"
        raise UsageError(
            f'"{job}" is a trace, which `step` does not predict.', hint=f"syncline explain {job} --cluster {named}"
        )
    asked, level = level, _level(level or "flow")
    described = job_of(job)
    fabric = built(cluster)
    with blamed_on(job if isinstance(job, (str, Path)) else described.name):
        if described.kind == "decode":
            if profile is not None:
                raise UsageError("`profile` calibrates training steps, not decode.", hint="Leave `profile` out.")
            return DecodePrediction(decode_step(fabric, described))
        measured = load_profile(profile) if profile is not None else None
        constants = None
        found = price(fabric, described)
        if measured is not None:
            measured.check(found.machine.gpu.name)
            constants = measured.constants(found.job, found.num_gpus)
            found = price(fabric, described, constants)
        executed = None
        if level != "analytic":
            try:
                executed = execute(
                    fabric, found, constants, routing=routing, level=level, max_packets=max_packets, progress=progress  # type: ignore[arg-type]
                )  # fmt: skip
            except SimulationError:
                if asked is not None:
                    raise

        def as_executed(priced: StepResult) -> StepResult:
            if executed is None:
                return priced
            return replace(priced, step_time_s=execute(fabric, priced, constants).step_time_s)

        better = unstated(described, found, constants, as_executed) if level != "packet" else None
        return prediction(fabric, found, executed, measured, better, constants)


def _level(name: str) -> str:
    if name not in LEVELS:
        raise UsageError(f'no level of a step is called "{name}".', hint=f"One of: {', '.join(LEVELS)}.")
    return name


COMMANDS = {"predict": step, "volumes": traffic}
UNNAMED = "predict"
HELP = (
    "Predict one training step of a job on a cluster, or count the bytes that it sends.\n\n"
    "`syncline step CLUSTER JOB` is short for `syncline step predict CLUSTER JOB`."
)
EXAMPLES = ("syncline step h100-64-rail job.yaml", "syncline step volumes job.yaml")
