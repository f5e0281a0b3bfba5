"""How long is one training step of a job on a cluster, what limits it, and does it fit?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from syncline.describe.guide import cite
from syncline.describe.mistakes import blamed_on
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.fabric.assumed import assumed_of
from syncline.plan.unstated import UnstatedKeys, unstated
from syncline.questions.answer import Answer, Output, page_output
from syncline.questions.inputs import ClusterArgument, JobSource, built, job_of
from syncline.questions.parameter import Parameter, question
from syncline.questions.volumes import traffic
from syncline.sim.flow.routing import ROUTINGS
from syncline.sim.profile import SystemProfile, load_profile
from syncline.sim.step.decode import DecodeResult, decode_step
from syncline.sim.step.executed.execute import StepRun, execute
from syncline.sim.step.executed.execute_trace import IGNORES as EXECUTED_IGNORES
from syncline.sim.step.executed.execute_trace import ExecutedTrace, execute_trace
from syncline.sim.step.executed.gap import causes
from syncline.sim.step.replay import OWN_WORK, replay, unpriced
from syncline.sim.step.step import StepResult
from syncline.sim.step.step import step as price
from syncline.sim.uncertainty import Spread
from syncline.timeline import Timeline, save
from syncline.workload.trace import is_trace, read_trace

if TYPE_CHECKING:
    from syncline.workload.graph import Workload

LEVELS = ("analytic", "flow", "packet")


TRACE = Output(
    "Write the timeline (.json or .json.gz for Perfetto, .parquet).", lambda answer, path: save(answer.timeline, path)
)


@dataclass(frozen=True, eq=False)
class StepPrediction(Answer):
    """One training step: its time, what it waits for, its memory and what limits it."""

    schema_name: ClassVar[str] = "step"
    outputs: ClassVar[Mapping[str, Output]] = {
        "trace": TRACE,
        **page_output("Write a page: where the time goes, and every pipeline stage."),
    }

    fabric: Fabric = field(repr=False)
    result: StepResult
    executed: StepRun | None = None  # at flow level, where that was asked for
    profile: SystemProfile | None = None  # what was measured on this system, where a profile was given
    unstated: UnstatedKeys | None = None  # keys that the job leaves out and that would make it fit, or faster

    @property
    def step_time_s(self) -> float:
        return self.executed.step_time_s if self.executed else self.result.step_time_s

    @property
    def fits(self) -> bool:
        """Whether the fullest rank's memory suffices."""
        return self.result.fits

    @property
    def log_sigma(self) -> float | None:
        """How sure a calibrated step is: one standard deviation of its logarithm; None without a profile."""
        if self.profile is None or self.result.case is None:
            return None
        return self.profile.steps.log_sigma(self.result.case)

    @property
    def spread(self) -> Spread:
        """How far off the step time may be; narrower where a step of this system was measured."""
        return self.result.spread if self.profile is None else self.result.calibrated_spread

    @cached_property
    def timeline(self) -> Timeline:
        """What every pipeline stage does."""
        from syncline.sim.step.spans import step_timeline

        return step_timeline(self.result)

    def to_json(self) -> JsonObject:
        level = self.executed.level if self.executed else "analytic"
        assumed = list(assumed_of(self.fabric.spec))
        data = {"cluster": self.fabric.name, "assumed_of_cluster": assumed, "level": level, **self.result.to_json()}
        data["profile"] = self._profile()
        data["unstated"] = self.unstated.to_json() if self.unstated else None
        data["interval"] = self.spread.of(self.step_time_s)
        if self.executed is None:
            return data
        faster = self.result.step_time_s / self.executed.step_time_s
        rate = self.result.tokens_per_s * faster
        scaled = {
            "tokens_per_s": rate,
            "tokens_per_s_per_gpu": rate / self.result.num_gpus,
            "mfu": self.result.mfu * faster,
        }
        times = {"analytic_step_time_s": self.result.step_time_s, "step_time_s": self.executed.step_time_s}
        executed = self.executed.to_json() | {"differs": list(causes(self.result, self.executed))}
        return data | scaled | times | {"executed": executed}

    def _profile(self) -> JsonObject | None:
        """Return what a profile did to the prediction."""
        if self.profile is None:
            return None
        return {
            "file": self.profile.path, "measured_runs": len(self.profile.measured), "log_sigma": self.log_sigma,
            "multipliers": asdict(self.profile.steps.multipliers),
            "remarks": list(self.profile.remarks(self.result.job.precision)),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class DecodePrediction(Answer):
    """One generated token: its time and what it is made of."""

    schema_name: ClassVar[str] = "step-decode"

    result: DecodeResult

    @property
    def token_time_s(self) -> float:
        return self.result.token_time_s

    def to_json(self) -> JsonObject:
        return self.result.to_json()


@dataclass(frozen=True, eq=False)
class TracePrediction(Answer):
    """A traced step with its communication priced on another cluster, beside what was recorded."""

    schema_name: ClassVar[str] = "step-trace"
    outputs: ClassVar[Mapping[str, Output]] = {"trace": TRACE}

    cluster: str
    source: str
    workload: Workload = field(repr=False)
    recorded: Timeline = field(repr=False)
    timeline: Timeline = field(repr=False)
    executed: ExecutedTrace | None = field(default=None, repr=False)  # None: priced by closed forms

    @property
    def step_time_s(self) -> float:
        return self.timeline.makespan_s

    def to_json(self) -> JsonObject:
        return {
            "cluster": self.cluster, "trace": self.source, "operations": len(self.workload),
            "ranks": self.workload.num_ranks, "comm_bytes": self.workload.total_bytes(),
            "recorded_s": self.recorded.makespan_s, "step_time_s": self.timeline.makespan_s,
            "bound_s": self.executed.floor_s if self.executed else 0.0,
            "recorded_exposed_comm_s": float(self.recorded.exposed_s(compute=OWN_WORK).max()),
            "exposed_comm_s": float(self.timeline.exposed_s(compute=OWN_WORK).max()),
            "kept_as_recorded": int(unpriced(self.workload).sum()),
            "level": self.executed.level if self.executed else "analytic",
            "packets": asdict(self.executed.packets) if self.executed and self.executed.packets else None,
            "collectives": list(self.executed.collectives) if self.executed else [],
            "ignores": list(EXECUTED_IGNORES if self.executed else self.timeline.source.ignores),
        }  # fmt: skip


@question(
    "syncline step h100-64-rail job.yaml",
    "syncline step cluster.yaml job.yaml --json",
    "syncline step h100-64-rail job.yaml --trace step.json --html step.html",
    "syncline step h100-64-rail profile.json.gz",
    "syncline step h100-64-rail traces/",
    "syncline step h100-64-rail job.yaml --level flow --json",
    "syncline step h100-64-rail job.yaml --profile profile.yaml",
    help="""Predict one training step of a job on a cluster: time, MFU, memory, traffic, and what limits it.

    The job file fixes the parallelism; everything it does not say is a default that depends on the software's year and
    is listed with the answer. A job of `kind: decode` gives the time of one generated token instead. A trace of a real
    step (.et, .json, .json.gz; a folder, or the part of their names before `.0.et`, for one file a rank) keeps its
    compute as measured and gets its communication priced on this cluster.
    """,
)
def step(
    cluster: ClusterArgument,
    job: Annotated[
        JobSource,
        Parameter(f"A job file ({cite('job-file')}), or a Chakra or PyTorch profiler trace.", kind=str),
    ],
    *,
    level: Annotated[
        str | None,
        Parameter(
            "analytic (closed forms, a job's default), flow (executed on the fabric, a trace's default) or packet."
        ),
    ] = None,
    routing: Annotated[
        str, Parameter("With flow: spray (balanced), ecmp (hashed) or static; with packet: spray or ecmp.")
    ] = "spray",
    profile: Annotated[str | Path | None, Parameter("What was measured here (`syncline calibrate`).")] = None,
    max_packets: Annotated[
        int | None, Parameter("With packet: refuse a step of more (50,000,000).", min=1, rare=True)
    ] = None,
) -> StepPrediction | DecodePrediction | TracePrediction:
    """Predict one training step of a job on a cluster, one token of a decode job, or a traced step.

    `level` is "analytic" (closed forms, a job's default), "flow" (executed on the fabric, a trace's default) or
    "packet" (executed packet by packet, up to `max_packets`); `profile` is a file of what was measured on this system
    (`calibrate_step`).

    >>> answer = step("h100-64-rail", "llama3-70b")
    >>> answer.step_time_s > 0, answer.fits
    (True, False)
    """
    if routing not in ROUTINGS:
        raise UsageError(f'no routing is called "{routing}".', hint=f"One of: {', '.join(ROUTINGS)}.")
    if isinstance(job, (str, Path)) and is_trace(Path(job)):
        if profile is not None:
            raise UsageError("a trace keeps its compute as measured: `profile` is for a job file.",
                             hint="Leave `profile` out.")  # fmt: skip
        workload = read_trace(Path(job))
        name = cluster if isinstance(cluster, str) else built(cluster).name
        on, ran = built(cluster), None
        if (level := _level(level or "flow")) != "analytic":
            ran = execute_trace(workload, on, routing=routing, level=level, max_packets=max_packets)  # type: ignore[arg-type]
        times = (ran.start_s, ran.end_s) if ran else None
        return TracePrediction(
            str(name), str(job), workload, replay(workload), replay(workload, on, times=times), ran
        )  # fmt: skip
    level = _level(level or "analytic")
    described = job_of(job)
    fabric = built(cluster)
    with blamed_on(job if isinstance(job, (str, Path)) else described.name):
        if described.kind == "serve":
            raise UsageError("a serving job is planned, not stepped.", hint="Run `syncline plan CLUSTER JOB`.")
        if described.kind == "decode":
            if profile is not None:
                raise UsageError("`profile` calibrates training steps, not decode.", hint="Leave `profile` out.")
            return DecodePrediction(decode_step(fabric, described))
        measured = load_profile(profile) if profile is not None else None
        constants = measured.steps.constants() if measured is not None else None
        found = price(fabric, described, constants)
        if measured is not None:
            measured.check(found.machine.gpu.name)
            own = measured.constants(found.job, found.num_gpus)
            if own != constants:  # this very job was measured
                constants, found = own, price(fabric, described, own)
        if level == "analytic":
            better = unstated(described, found, constants)
            return StepPrediction(fabric, found, profile=measured, unstated=better)
        executed = execute(
            fabric, found, constants, routing=routing, level=level, max_packets=max_packets  # type: ignore[arg-type]
        )  # fmt: skip
        return StepPrediction(fabric, found, executed, measured)


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
