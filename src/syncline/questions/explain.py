"""Where does the time of a traced step go, which rank and which collective is to blame, and what would change it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.progress import Meter, Progress
from syncline.errors import UsageError
from syncline.explaining.against import TraceDifference, difference, predicted_account
from syncline.explaining.explain import Explanation, explain_recordings
from syncline.explaining.groups import measured_sweeps
from syncline.explaining.observed import observed
from syncline.explaining.on_cluster import on_cluster
from syncline.explaining.reading import read_recordings, tool_of
from syncline.explaining.tools import GRAPH, PROFILER
from syncline.fabric import Fabric
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.calibrate import fitted_step, price_gpu, shipped_step
from syncline.questions.inputs import Cluster, JobSource, built, job_of
from syncline.sim.flow.routing import ROUTINGS
from syncline.sim.profile import SystemProfile, save_profile
from syncline.timeline import Timeline, save
from syncline.timeline.account import subtract
from syncline.timeline.recording.recording import Recording
from syncline.workload.graph import Workload
from syncline.workload.trace import read_trace, trace_files
from syncline.workload.traces.recorded import recorded_workload

LEVELS = ("analytic", "flow", "packet")


@dataclass(frozen=True)
class ExplainAnswer(Answer):
    """A traced step: its account, its collectives, its late ranks, the overlap it lost and what would change it."""

    schema_name: ClassVar[str] = "explain"
    content: ClassVar[str] = "result"
    outputs: ClassVar[Mapping[str, Output]] = {
        "trace": Output("Write the step on the cluster as a timeline (.json for Perfetto, .parquet).",
                        lambda answer, path: save(answer.timeline, path)),
        "profile": Output("Write what was measured as a profile, which step, plan, preview and simulate read.",
                          lambda answer, path: save_profile(answer.profile, path), needs="cluster"),
        **page_output("Write a page: the account, ranks, collectives and changes."),
    }  # fmt: skip

    result: Explanation

    @property
    def timeline(self) -> Timeline:
        """The whole trace on the cluster."""
        if self.result.on_cluster is None:
            raise UsageError("there is no timeline without a cluster.", hint="Give `cluster`.")
        return self.result.on_cluster.timeline

    @property
    def profile(self) -> SystemProfile:
        """What the trace says of the cluster: multipliers of the step where `job` is given, and collectives."""
        if self.result.profile is None:
            raise UsageError(
                "the trace measures nothing that a profile holds.",
                hint="Give `cluster` and `job`, or traces of several ranks with the sizes of their collectives.",
            )
        return self.result.profile


@dataclass(frozen=True)
class DifferenceAnswer(Answer):
    """Two steps, subtracted line by line, down to the kernels and collectives that changed."""

    schema_name: ClassVar[str] = "explain-against"
    content: ClassVar[str] = "result"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write a page: both accounts and what changed.")

    result: TraceDifference


@question(
    "syncline explain trace.json.gz",
    "syncline explain traces/ --cluster h100-64-rail",
    "syncline explain traces/ --cluster cluster.yaml --job job.yaml --profile profile.yaml",
    "syncline explain rank*.json.gz --html explain.html",
    "syncline explain this-week/ --against last-week/",
    "syncline explain trace.json.gz --against predicted.json",
)
def explain(
    traces: Annotated[
        Sequence[str | Path],
        Parameter(
            "Traces of one job, a rank each, or folders of them; with `against` also the JSON of a prediction.",
            metavar="TRACE", kind=list[str],
        ),
    ],
    *,
    cluster: Annotated[
        Cluster | None,
        Parameter("The cluster, for what its network should give.", names=("--cluster", "-c"), metavar="FILE|PRESET",
                  kind=str),
    ] = None,
    job: Annotated[
        JobSource | None,
        Parameter("The job that was traced: the measured step beside what `step` predicts of it, and multipliers.",
                  names=("--job", "-j"), metavar="FILE|NAME", kind=str),
    ] = None,
    against: Annotated[
        Sequence[str | Path],
        Parameter("What to compare with: traces, a folder, or the JSON of step, plan, preview or explain.",
                  metavar="TRACE", kind=list[str]),
    ] = (),
    level: Annotated[
        str, Parameter("With a cluster: flow (executed on it), packet, or analytic (closed forms).", rare=True)
    ] = "flow",
    routing: Annotated[str, Parameter("With a cluster: spray, ecmp or static.", rare=True)] = "spray",
    max_packets: Annotated[
        int | None, Parameter("With packet: stop once more than this many are run (300,000,000).", min=1, rare=True)
    ] = None,
    progress: Progress | None = None,
) -> ExplainAnswer | DifferenceAnswer:  # fmt: skip
    """Explain a measured step: where its time goes, who is late, what overlap is lost and what each change would save.

    Reads traces of the PyTorch profiler, one rank or many, flight recorder dumps, NCCL Inspector files, Nsight Systems
    exports (SQLite) and Chakra traces. The account of a step adds up to the step. With traces of
    several ranks, waiting for a late rank and slow transfers are told apart; with `cluster`, transfers are compared
    with what the network should give. Changes are replayed on the recorded step. What a trace lacks is listed with
    what records it. With `cluster` and `job`, the measured step stands beside the predicted one, and `profile` writes
    what was measured as a calibration.
    """
    files = [traces] if isinstance(traces, (str, Path)) else list(traces)
    others = [against] if isinstance(against, (str, Path)) else list(against)
    if not files:
        raise UsageError("no trace is named.", hint="Name a PyTorch profiler trace, or a folder of them.")
    if level not in LEVELS or routing not in ROUTINGS:
        raise UsageError(
            f'no level is called "{level}", or no routing "{routing}".',
            hint=f"Levels: {', '.join(LEVELS)}; routings: {', '.join(ROUTINGS)}.",
        )
    if job is not None and (cluster is None or others):
        raise UsageError("`job` is priced on a cluster, beside traces.", hint="Give `cluster`, and no `against`.")
    meter = Meter(progress)
    fabric = built(cluster) if cluster is not None else None
    predicted = predicted_account(files) if others else None
    recordings = () if predicted else read_recordings(files, meter)
    mine = explain_recordings(recordings, fabric) if recordings else None
    if not others:
        assert mine is not None
        if fabric is not None and (workload := _workload(files, recordings)) is not None:
            there = on_cluster(workload, fabric, level=level, routing=routing, max_packets=max_packets)
            mine = replace(mine, on_cluster=there)
        return ExplainAnswer(mine if fabric is None else _calibrated(mine, fabric, job))
    before = predicted_account(others) or explain_recordings(read_recordings(others, meter), fabric)
    return DifferenceAnswer(difference(before, predicted or mine))


def _calibrated(found: Explanation, fabric: Fabric, job: JobSource | None) -> Explanation:
    """Return an explanation with what it measures of a cluster: its collectives, and the step of a job."""
    source = found.attributions[found.shown].recording.where
    profile = SystemProfile(fabric.name, price_gpu(fabric))
    for sweep in measured_sweeps(found.collectives, fabric, source):
        profile = profile.with_collective(sweep)
    if job is None:
        return replace(found, profile=profile if profile.collectives else None)
    described = job_of(job)
    shipped = shipped_step(fabric, described)
    if found.device == "CPU" or found.world not in (0, shipped.num_gpus):
        traced = "a CPU" if found.device == "CPU" else f"{found.world} ranks"
        raise UsageError(
            f"the trace is of {traced}, the job of {shipped.num_gpus} {price_gpu(fabric)} of {fabric.name}.",
            hint="Give the job that was traced, with its `gpus`, and the cluster that it ran on.",
        )
    seen = observed(found.attributions[found.shown], pipelined=shipped.job.parallel.pp > 1)
    fitted = fitted_step(fabric, described, shipped, seen, source, profile)
    return replace(
        found, predicted=subtract(shipped.account, found.account), profile=fitted.profile,
        multipliers={name: one.value for name, one in fitted.multipliers.items()},
    )  # fmt: skip


def _workload(files: Sequence[str | Path], recordings: Sequence[Recording]) -> Workload | None:
    """Return the graph of traces that have one: the profiler's and Chakra's."""
    path = Path(files[0])
    tool = tool_of(trace_files(path)[0])
    if tool == PROFILER:
        return recorded_workload(recordings)
    return read_trace(path) if tool == GRAPH and len(files) == 1 else None


COMMANDS = {"": explain}
