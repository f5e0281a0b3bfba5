"""How should a job be split on a cluster, what limits it, what does it cost, and what should change first?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncline.describe.files import make_folder, write_text
from syncline.describe.guide import cite
from syncline.describe.mistakes import read_described
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.fabric.change import changed
from syncline.plan.answer import HEADROOM, PlanResult, make_plan
from syncline.plan.compare import FABRICS, FabricRanking, compare_fabrics
from syncline.plan.cost.assumptions import Assumptions, load_assumptions
from syncline.plan.cost.prices import Prices, load_prices
from syncline.plan.decide.side_by_side import Candidate, ClusterComparison, side_by_side, swept_job
from syncline.plan.fix import read_fix
from syncline.plan.frameworks.framework import named_framework
from syncline.plan.frameworks.launch import launch_files
from syncline.plan.job_file import job_text
from syncline.plan.named_job import DEFAULT_JOB, job_names
from syncline.plan.plan import save_plan
from syncline.plan.search import SearchResult, SearchTask
from syncline.plan.space import FULL, LOSSY_CODECS, LOSSY_WIDTHS, USUAL, Axes
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built
from syncline.questions.cost import read_number
from syncline.questions.job import JobSource, job_of
from syncline.sim.profile import SystemProfile, load_profile
from syncline.sim.step.executed.link_rates import link_rates
from syncline.sim.step.machine import machine_from_fabric
from syncline.workload.job import Job


@dataclass(frozen=True, eq=False)
class PlanAnswer(Answer):
    """The best way to run a job on a cluster, and the runners-up."""

    fabric: Fabric = field(repr=False)
    result: PlanResult = field(repr=False)

    @property
    def step_time_s(self) -> float:
        return self.result.best.predicted.step_time_s

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

    def write_launch(self, framework: str, folder: str | Path) -> tuple[Path, ...]:
        """Write the files that start the job with a framework, for which it should have been planned."""
        files = launch_files(named_framework(framework).name, self.job, self.result.question.machine.gpus_per_host)
        target = make_folder(Path(folder))
        for name, text in files.items():
            write_text(target / name, text)
        return tuple(target / name for name in files)

    def to_json(self) -> JsonObject:
        return self.result.to_json()


@dataclass(frozen=True, eq=False)
class FabricComparison(Answer):
    """The best plan on each of several fabrics, and what it costs there."""

    result: FabricRanking = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.result.to_json()


@dataclass(frozen=True, eq=False)
class ClusterAnswer(Answer):
    """The best plan on each of several clusters, owned and rented, or along a sweep of one setting."""

    result: ClusterComparison = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.result.to_json()


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
    execute: bool = True,
    profile: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PlanAnswer:
    """Find the best way to run a job on a cluster.

    Tries every split, micro-batch, schedule and recomputation that divides and fits in memory; the best few are
    executed at flow level (`execute`), and ranked by that where it disagrees.

    >>> answer = plan("h100-64-rail", "llama3-70b", fix="tp=8,pp=4,micro=1", workers=1)
    >>> answer.step_time_s > 0
    True
    """
    given = dict(assume or {}) | ({"cloud": cloud} if cloud else {})
    assumed, _ = load_assumptions(Path(assumptions) if assumptions else None, given)
    described = job_of(job)
    if described.kind == "serve":
        raise UsageError("a serving job has an answer of its own.", hint="Call syncline.serve(cluster, job).")
    fabric = built(cluster)
    constants = None
    if profile is not None:
        measured = load_profile(profile)
        measured.check(machine_from_fabric(fabric).gpu.name)
        constants = measured.steps.constants()
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
        execute=execute,
        progress=progress,
    )
    return PlanAnswer(fabric, answer)


def compare(
    job: JobSource = DEFAULT_JOB,
    *,
    clusters: Sequence[str] = (),
    sweep: tuple[str, Sequence[object]] | None = None,
    prices: str | Path | None = None,
    gpus: int | None = None,
    budget: str | float | None = None,
    host: str = "dgx-h100",
    link: str = "NDR",
    fabrics: Sequence[str] = FABRICS,
    assumptions: str | Path | None = None,
    assume: Mapping[str, object] | None = None,
    profile: str | Path | None = None,
) -> FabricComparison | ClusterAnswer:
    """Compare clusters (or fabrics at a number of GPUs or at a budget) for a job: the best plan on each, its cost.

    A cluster is a file or a preset, owned unless it ends in `@nebius` (rented there) or `@rent` (where it is cheapest).
    `sweep` is a key path and its values: ("host.nics", (1, 2, 4, 8)) of one cluster, ("job.batch.global", (512, 1024)).
    A `profile` moves the clusters whose part it was measured on; the others stay as the model ships: a note says so.
    """
    assumed, _ = load_assumptions(Path(assumptions) if assumptions else None, dict(assume or {}))
    measured = load_profile(profile) if profile is not None else None
    if clusters or sweep:
        apart = {"--gpus": (gpus, None), "--budget": (budget, None), "--host": (host, "dgx-h100"),
                 "--link": (link, "NDR"), "--fabrics": (tuple(fabrics), FABRICS)}  # fmt: skip
        for option, (given, default) in apart.items():
            if given != default:
                raise UsageError(f"{option} is for fabrics that syncline draws up; these clusters say what they are.",
                                 hint=f"Leave out {option}, or the clusters.")  # fmt: skip
        table = load_prices(Path(prices)) if prices else None
        return ClusterAnswer(_side_by_side(job_of(job), tuple(clusters), sweep, assumed, table, measured))
    if measured is not None:
        raise UsageError("--profile needs clusters.", hint="Name the clusters: plan compare A B JOB --profile FILE.")
    found = compare_fabrics(
        job_of(job),
        host=host,
        link=link,
        num_gpus=gpus,
        budget_usd=read_number("--budget", budget) if budget is not None else None,
        fabrics=tuple(fabrics),
        assumptions=assumed,
    )
    return FabricComparison(found)


def _side_by_side(
    job: Job,
    clusters: tuple[str, ...],
    sweep: tuple[str, Sequence[object]] | None,
    assumed: Assumptions,
    prices: Prices | None,
    measured: SystemProfile | None,
) -> ClusterComparison:
    if sweep is None:
        made = _measured([_candidate(name) for name in clusters], measured)
        return _noted(side_by_side(job, made, assumptions=assumed, prices=prices), made, measured)
    if len(clusters) != 1:
        raise UsageError(f"a sweep takes one cluster, got {len(clusters)}.", hint="Name one, and one job.")
    key, values = sweep
    if key.startswith("job."):
        return swept_job(job, _measured([_candidate(clusters[0])], measured)[0], key, values, assumed, prices)
    name, _, cloud = clusters[0].partition("@")
    made = [
        Candidate(f"{key} {value}", changed(name, key, value), cloud or None, value=_plain(value)) for value in values
    ]
    return side_by_side(job, _measured(made, measured), assumptions=assumed, prices=prices, swept=key)


def _measured(candidates: list[Candidate], measured: SystemProfile | None) -> list[Candidate]:
    """Return the candidates with what was measured on their part; an error where that is none of theirs."""
    if measured is None:
        return candidates
    parts = [machine_from_fabric(one.fabric).gpu.name for one in candidates]
    if measured.gpu not in parts:
        measured.check(parts[0])
    constants = measured.steps.constants()
    return [
        replace(one, constants=constants) if part == measured.gpu else one
        for one, part in zip(candidates, parts, strict=True)
    ]


def _noted(found: ClusterComparison, made: Sequence[Candidate], measured: SystemProfile | None) -> ClusterComparison:
    """Return a comparison that says which of its clusters a profile did not speak of."""
    others = [one.name for one in made if one.constants is None] if measured is not None else []
    if measured is None or not others:
        return found
    text = f"the profile was measured on {measured.gpu}; as the model ships: {', '.join(others)}"
    return replace(found, notes=(*found.notes, text))


def _candidate(named: str) -> Candidate:
    name, _, cloud = named.partition("@")
    return Candidate(named, built(name), cloud or None)


def _plain(value: object) -> float | str:
    return float(value) if isinstance(value, (int, float)) else str(value)


def is_job(name: str) -> bool:
    """Say whether a name is that of a job: one that ships, or a file with a model."""
    if name in job_names():
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
        raise UsageError(f'--on "{on}" is not known.', hint="--on ray spreads the search over a Ray cluster.")
    from syncline.plan.rayrun import on_ray

    return on_ray()
