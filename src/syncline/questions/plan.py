"""How should a job be split on a cluster, what limits it, what does it cost, and what should change first?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.document import read_document
from syncline.describe.files import make_folder, write_text
from syncline.describe.guide import cite
from syncline.describe.mistakes import read_described
from syncline.describe.model import Handle, handle
from syncline.describe.progress import Meter, Progress
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.planning.answer import HEADROOM, PlanReport, PlanResult, make_plan
from syncline.planning.compare import FABRICS, FabricRanking, compare_fabrics
from syncline.planning.cost.assumptions import load_assumptions
from syncline.planning.cost.prices import load_prices
from syncline.planning.decide.side_by_side import ClusterComparison
from syncline.planning.fix import read_fix
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.frameworks.launch import launch_files
from syncline.planning.named_job import DEFAULT_JOB, job_names, job_text
from syncline.planning.plan import save_plan
from syncline.planning.search import SearchResult, SearchTask
from syncline.planning.serving_comparison import compare_serving
from syncline.planning.space import FULL, LOSSY_CODECS, LOSSY_WIDTHS, USUAL, Axes
from syncline.questions.answer import PDF, Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import (
    AssumeOption,
    AssumptionsOption,
    Cluster,
    ClusterArgument,
    JobSource,
    MoreOption,
    PricesOption,
    ProfileOption,
    ReliabilityOption,
    built,
    job_of,
    read_set,
)
from syncline.questions.serve import ServeAnswer, ServingComparisonAnswer, is_serving, serve
from syncline.questions.within.candidates import compared, loads
from syncline.questions.within.phases import RunAnswer, has_phases, plan_phases
from syncline.sim.profile import load_profile
from syncline.sim.step.executed.link_rates import link_rates
from syncline.sim.step.machine import machine_from_fabric
from syncline.workload.job import Job
from syncline.workload.zoo import names as models

DEFAULT_HOST, DEFAULT_LINK = "dgx-h100", "NDR"


@dataclass(frozen=True)
class PlanAnswer(Answer):
    """The best way to run a job on a cluster, and the runners-up."""

    schema_name: ClassVar[str] = "plan"
    outputs: ClassVar[Mapping[str, Output]] = {
        **page_output("Write the report: one page to forward."),
        "pdf": PDF,
        "save": Output("Write the plan as JSON.", lambda answer, path: answer.save(path)),
        "write_job": Output(
            "Write the job file of the plan, for `syncline step`.", lambda answer, path: answer.write_job(path)
        ),
        "write": Output(
            "Folder for the files that start the job (with --for).",
            lambda answer, path: answer.write_launch(path),
            folder=True,
            needs="framework",
        ),
    }

    content: ClassVar[str] = "report"

    report: PlanReport
    framework: str | None = None
    more: bool = False
    """Whether the text shows everything, not the answer alone."""
    fabric: Handle[Fabric] = handle()
    result: Handle[PlanResult] = handle()

    @property
    def step_time_s(self) -> float:
        return self.report.best.step_time_s

    @property
    def job(self) -> Job:
        """The job with its parallelism filled in."""
        return self.result.result.job

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, for `syncline watch --expect` and others."""
        best = self.result.best
        links = link_rates(self.fabric, self.result.result, self.result.question.constants)
        save_plan(replace(best, links=links or best.links), Path(path))

    def write_job(self, path: str | Path) -> None:
        """Write the job file of the plan, for `syncline step`."""
        write_text(Path(path), job_text(self.job))

    def write_launch(self, folder: str | Path) -> tuple[Path, ...]:
        """Write the files that start the job with the framework that it was planned for."""
        if self.framework is None:
            raise UsageError(
                "the plan is for no framework.", hint="Plan with `framework`: megatron, torchtitan, nemo ..."
            )
        files = launch_files(named_framework(self.framework).name, self.job, self.result.question.machine.gpus_per_host)
        target = make_folder(Path(folder))
        for name, text in files.items():
            write_text(target / name, text)
        return tuple(target / name for name in files)


@dataclass(frozen=True)
class FabricComparison(Answer):
    """The best plan on each of several fabrics, and what it costs there."""

    schema_name: ClassVar[str] = "plan-fabrics"
    content: ClassVar[str] = "result"

    result: FabricRanking


@dataclass(frozen=True)
class ClusterAnswer(Answer):
    """The best plan on each of several clusters, owned and rented, or along a sweep of one setting."""

    schema_name: ClassVar[str] = "plan-compare"
    content: ClassVar[str] = "result"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write the comparison as a page.")

    result: ClusterComparison


FixOption = Annotated[str | None, Parameter("Choices that are fixed: tp=8,pp=4,zero=1,recompute=none.")]
ObjectiveOption = Annotated[str, Parameter("time, cost (per token, fewer GPUs allowed) or pareto.")]
FullOption = Annotated[bool, Parameter("Try overlap on and off, offloading, GPipe and zero-bubble too.", rare=True)]
LossyOption = Annotated[bool, Parameter("Try gradient widths and codecs that change what training sees.", rare=True)]
HeadroomOption = Annotated[
    float,
    Parameter("Share of a GPU's memory to keep free; full allocators are slow.", min=0.0, max=0.9, rare=True),
]
FrameworkOption = Annotated[
    str | None, Parameter("megatron, torchtitan, nemo, deepspeed or maxtext: obey its rules.", names=("--for",))
]
CloudOption = Annotated[str | None, Parameter("Price by this cloud's rent instead of owning.")]
WorkersOption = Annotated[int, Parameter("Processes; 0: as many as it is worth.", min=0, max=1024, rare=True)]
OnOption = Annotated[str | None, Parameter('"ray" spreads the search over a Ray cluster.', rare=True)]


def plan(
    cluster: Cluster,
    job: JobSource = DEFAULT_JOB,
    *,
    fix: str | None = None,
    objective: str = "time",
    full: bool = False,
    allow_lossy: bool = False,
    headroom: float = HEADROOM,
    framework: str | None = None,
    cloud: str | None = None,
    prices: str | Path | None = None,
    assumptions: str | Path | None = None,
    assume: Mapping[str, object] | None = None,
    workers: int = 0,
    on: str | None = None,
    profile: str | Path | None = None,
    more: bool = False,
    progress: Progress | None = None,
) -> PlanAnswer:
    """Find the best way to run a job on a cluster.

    Tries every split, micro-batch, schedule and recomputation that divides and fits in memory; the best are executed at
    flow level until none that is left could win, and ranked by that.

    >>> answer = plan("h100-64-rail", "llama3-70b", fix="tp=8,pp=4,micro=1", workers=1)
    >>> answer.step_time_s > 0
    True
    """
    given = dict(assume or {}) | ({"cloud": cloud} if cloud else {})
    assumed, _ = load_assumptions(Path(assumptions) if assumptions else None, given)
    described = job_of(job, served=True)
    if described.kind == "serve":
        raise UsageError("a serving job has an answer of its own.", hint="Call syncline.serve(cluster, job).")
    fabric = built(cluster)
    constants = None
    if profile is not None:
        measured = load_profile(profile)
        measured.check(machine_from_fabric(fabric).gpu.name)
        constants = measured.constants(described)
    answer = make_plan(
        fabric,
        described,
        constants=constants,
        axes=_axes(full, allow_lossy),
        fix=read_fix(fix),
        objective=objective,
        headroom=headroom,
        framework=framework or "",
        assumptions=assumed,
        prices=load_prices(Path(prices)) if prices else None,
        workers=workers,
        spread=_spread(on),
        progress=progress,
    )
    return PlanAnswer(answer.report(), framework, more, fabric=fabric, result=answer)


@question(
    "syncline plan h100-64-rail llama3-70b",
    "syncline plan cluster.yaml job.yaml --html plan.html --save plan.json",
    "syncline plan h100-64-rail llama3-70b --fix tp=8,pp=8,recompute=none --json",
    "syncline plan h100-64-rail llama3-70b --objective pareto",
    "syncline plan h100-64-rail llama3-70b --for megatron --write launch",
    "syncline plan cluster.yaml job.yaml --full --allow-lossy --workers 2",
)
def best(
    cluster: ClusterArgument,
    job: Annotated[JobSource, Parameter("A job file, or a job that ships: llama3-70b, gpt3-175b.", kind=str)],
    *,
    fix: FixOption = None,
    objective: ObjectiveOption = "time",
    full: FullOption = False,
    allow_lossy: LossyOption = False,
    headroom: HeadroomOption = HEADROOM,
    framework: FrameworkOption = None,
    workers: WorkersOption = 0,
    on: OnOption = None,
    cloud: CloudOption = None,
    gpu_hour: Annotated[float | None, Parameter("Dollars you pay for a rented GPU-hour: 2.40. Taken as fixed.")] = None,
    prices: PricesOption = None,
    assumptions: AssumptionsOption = None,
    assume: AssumeOption = None,
    reliability: ReliabilityOption = None,
    profile: ProfileOption = None,
    more: MoreOption = False,
    progress: Progress | None = None,
) -> PlanAnswer | RunAnswer | ServeAnswer:
    """Find the best way to run a job on a cluster: a training job, a run in phases, or a load to serve.

    Tries every split, micro-batch, schedule and recomputation that divides and fits in memory, and shows the fastest
    (or cheapest) with what limits it, what it costs, and which single change buys most.
    """
    named = {"gpu_hour_usd": gpu_hour, "reliability": None if reliability is None else str(reliability)}
    given = dict(assume or {}) | {name: value for name, value in named.items() if value is not None}
    phases = isinstance(job, (str, Path)) and has_phases(str(job))
    if phases or (isinstance(job, str) and is_serving(job)):
        for name, value in {"framework": framework, "profile": profile, "fix": fix}.items():
            if value:
                kind = "a run in phases" if phases else "a serving job"
                raise UsageError(f"`{name}` is not for {kind}.", hint="Plan one training job for it.")
        given |= {"cloud": cloud} if cloud else {}
        if phases:
            return plan_phases(
                cluster, str(job), assumptions=assumptions, assume=given, prices=prices, progress=progress
            )
        return serve(cluster, job, assumptions=assumptions, assume=given, prices=prices, more=more, progress=progress)
    return plan(
        cluster, job, fix=fix, objective=objective, full=full, allow_lossy=allow_lossy, headroom=headroom,
        framework=framework, cloud=cloud, prices=prices, assumptions=assumptions, assume=given, workers=workers, on=on,
        profile=profile, more=more, progress=progress,
    )  # fmt: skip


def compare(
    job: JobSource = DEFAULT_JOB,
    *,
    clusters: Sequence[str] = (),
    sweep: tuple[str, Sequence[object]] | None = None,
    prices: str | Path | None = None,
    gpus: int | None = None,
    host: str = DEFAULT_HOST,
    link: str = DEFAULT_LINK,
    fabrics: Sequence[str] = FABRICS,
    assumptions: str | Path | None = None,
    assume: Mapping[str, object] | None = None,
    profile: str | Path | None = None,
    progress: Progress | None = None,
) -> FabricComparison | ClusterAnswer | ServingComparisonAnswer:
    """Compare clusters (or fabrics at a number of GPUs) for a job: the best plan on each, its cost.

    A cluster is a file or a preset, owned unless it ends in `@nebius` (rented there), `@rent` (where it is cheapest) or
    `@2.40` (an offer: dollars a GPU-hour).
    `sweep` is a key path and its values: ("host.nics", (1, 2, 4, 8)) of one cluster, ("job.batch.global", (512, 1024)).
    A `profile` moves the clusters whose part it was measured on; the others stay as the model ships: a note says so.
    """
    assumed, _ = load_assumptions(Path(assumptions) if assumptions else None, dict(assume or {}))
    measured, meter = load_profile(profile) if profile is not None else None, Meter(progress)
    described = job_of(job, served=True)
    if clusters or sweep:
        apart = {"gpus": (gpus, None), "host": (host, DEFAULT_HOST),
                 "link": (link, DEFAULT_LINK), "fabrics": (tuple(fabrics), FABRICS)}  # fmt: skip
        for name, (given, default) in apart.items():
            if given != default:
                raise UsageError(f"`{name}` is for fabrics that syncline draws up; these clusters say what they are.",
                                 hint=f"Leave out `{name}`, or the clusters.")  # fmt: skip
    table = load_prices(Path(prices)) if prices else None
    if described.kind == "serve":
        if measured is not None:
            raise UsageError("`profile` is not for a load.", hint="Leave it out.")
        asked = loads(described, tuple(clusters), sweep, [(name, host, link, gpus) for name in fabrics])
        found = compare_serving(asked, assumptions=assumed, prices=table, swept=sweep[0] if sweep else "", meter=meter)
        return ServingComparisonAnswer(found)
    if clusters or sweep:
        return ClusterAnswer(compared(described, tuple(clusters), sweep, assumed, table, measured, meter))
    if measured is not None:
        raise UsageError("`profile` needs clusters.", hint="Name the clusters: A B JOB.")
    ranked = compare_fabrics(
        described,
        host=host,
        link=link,
        num_gpus=gpus,
        fabrics=tuple(fabrics),
        assumptions=assumed,
        meter=meter,
    )
    return FabricComparison(ranked)


def is_job(name: str) -> bool:
    """Say whether a name is that of a job: one that ships, or a file with a model."""
    if name in job_names() or name in models():
        return True
    path = Path(name)
    if not path.is_file():
        return False
    data = read_described(path, cite("job-file")).data
    return isinstance(data, dict) and "model" in data and "hosts" not in data


def _axes(full: bool, lossy: bool) -> Axes:
    axes = FULL if full else USUAL
    return replace(axes, gradient_bytes=LOSSY_WIDTHS, codec=LOSSY_CODECS) if lossy else axes


def _spread(on: str | None) -> Callable[[list[SearchTask]], Iterator[SearchResult]] | None:
    if on is None:
        return None
    if on != "ray":
        raise UsageError(f'`on` "{on}" is not known.', hint='"ray" spreads the search over a Ray cluster.')
    from syncline.planning.rayrun import on_ray

    return on_ray()


@question(
    "syncline plan compare b200.yaml h100.yaml@nebius nvl72.yaml@rent job.yaml",
    "syncline plan compare offer-a.yaml@2.40 offer-b.yaml@1.99 job.yaml",
    "syncline plan compare cluster.yaml job.yaml --set host.nics=1,2,4,8 --html sweep.html",
    "syncline plan compare llama3-70b --gpus 512 --fabrics rail-optimized,fat-tree,rail-only",
)
def compare_named(
    names: Annotated[
        Sequence[str],
        Parameter("Clusters, owned or rented (`@aws`, `@rent`, `@2.40`), a job.", metavar="CLUSTER... JOB"),
    ],
    *,
    gpus: Annotated[int | None, Parameter("Without clusters: GPUs of every fabric.")] = None,
    host: Annotated[str, Parameter("Host model of the catalogue.")] = DEFAULT_HOST,
    link: Annotated[str, Parameter("Network link.")] = DEFAULT_LINK,
    fabrics: Annotated[str | None, Parameter("Which: rail-optimized,fat-tree 2:1,torus ...")] = None,
    prices: PricesOption = None,
    assumptions: AssumptionsOption = None,
    settings: Annotated[
        Sequence[str],
        Parameter("years=3; or a sweep: host.nics=1,2,4,8, job.batch.global=512,1024.", names=("--set",)),
    ] = (),
    profile: ProfileOption = None,
    progress: Progress | None = None,
) -> FabricComparison | ClusterAnswer | ServingComparisonAnswer:
    """Compare clusters, or fabrics, for a job.

    Clusters may be owned and rented, mixed; fabrics are compared at a number of GPUs.

    The best plan on each, what it costs, and which are too close to call. With --set and several values, a sweep.
    """
    job, clusters = _job_among(names)
    assume, sweep = _settings(settings)
    chosen = tuple(name.strip() for name in fabrics.split(",") if name.strip()) if fabrics else FABRICS
    return compare(
        job, clusters=clusters, sweep=sweep, prices=prices, gpus=gpus, host=host, link=link,
        fabrics=chosen, assumptions=assumptions, assume=assume, profile=profile, progress=progress,
    )  # fmt: skip


def _job_among(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the one job among names of clusters and jobs, and the clusters in their order."""
    if len(names) == 1:
        return names[0], []
    jobs = [name for name in names if is_job(name)]
    if len(jobs) != 1:
        listed = ", ".join(jobs) or "none"
        raise UsageError(f"name one job beside the clusters; found: {listed}.", hint="A job file has a `model:`.")
    return jobs[0], [name for name in names if name != jobs[0]]


def _settings(pairs: Sequence[str]) -> tuple[dict[str, object], tuple[str, list[object]] | None]:
    """Return assumptions about money, and the sweep: a key path with a dot, or `hosts`, and its values."""
    swept = [pair for pair in pairs if "." in pair.partition("=")[0] or pair.startswith("hosts=")]
    if len(swept) > 1:
        raise UsageError("sweep one setting at a time.", hint=f"Keep one of {' and '.join(swept)}.")
    assume = read_set([pair for pair in pairs if pair not in swept])
    if not swept:
        return assume, None
    key, _, text = swept[0].partition("=")
    values = [read_document(value, "--set").data for value in text.split(",") if value.strip()]
    if not values:
        raise UsageError(f'--set "{swept[0]}" has no value.', hint="Write --set host.nics=1,2,4,8.")
    return assume, (key.strip(), values)


COMMANDS = {"best": best, "compare": compare_named}
UNNAMED = "best"
HELP = (
    "Plan a job on a cluster: how fast, what limits it, does it fit, what does it cost, what to change first.\n\n"
    "`syncline plan CLUSTER JOB` is short for `syncline plan best CLUSTER JOB`."
)
EXAMPLES = ("syncline plan h100-64-rail llama3-70b", "syncline plan compare a.yaml b.yaml@nebius job.yaml")
