"""Which fabric should be bought for these jobs, and why that one?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.document import Document
from syncline.describe.plain import JsonObject
from syncline.describe.progress import Meter, Progress
from syncline.designing.choice import check_sites, gpu_counts, grid, skipped_links, space
from syncline.designing.growth import FabricGrowth
from syncline.designing.point import DesignPoint, DesignSearch, Limits
from syncline.designing.reasons import Flip, Million, flips, millions, why_lost, why_recommended
from syncline.designing.search import Designer
from syncline.designing.shards import spread_on
from syncline.designing.storage import StorageDesign
from syncline.designing.study import Switching, grid_study, study
from syncline.errors import UsageError
from syncline.fabric import save
from syncline.fabric.load import parse_cluster
from syncline.planning.cost.assumptions import load_assumptions
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import AssumeOption, JobSource, job_of, read_number
from syncline.workload.job import Job

SHOWN = 12
DEFAULT_HOST = "dgx-h100"
MONTH = re.compile(r"^20\d\d-(0[1-9]|1[0-2])$")


@dataclass(frozen=True)
class WeighedJob:
    """One of the jobs that a fabric is designed for."""

    job: str
    model: str
    weight: float


@dataclass(frozen=True)
class DesignFigures:
    """What was looked at, the front, and what tells its fabrics apart."""

    jobs: tuple[WeighedJob, ...]
    choices: int
    impossible: int
    over_limit: Mapping[str, int]
    """By limit: fabrics that break it."""
    bounded: int
    """Fabrics that a bound rules out."""
    planned: int
    complete: bool
    front: tuple[DesignPoint, ...]
    front_size: int
    runner_up: str | None
    """Why the second lost."""
    millions: tuple[Million, ...]
    flips: tuple[Flip, ...]
    growth: tuple[FabricGrowth, ...] | None
    switching: tuple[Switching, ...]
    storage: StorageDesign | None
    grid: bool
    recommended: str
    left_out: str
    cluster: Mapping[str, object]
    """The best fabric as a cluster description."""


@dataclass(frozen=True)
class DesignAnswer(Answer):
    """The front of fabrics for the jobs, each planned and executed as `plan` does: the recommended one first."""

    schema_name: ClassVar[str] = "design"
    content: ClassVar[str] = "figures"
    outputs: ClassVar[Mapping[str, Output]] = {
        "out": Output("Write the best fabric as a cluster file.", lambda answer, path: answer.save(path)),
        **page_output("Write a page with the front."),
    }

    jobs: tuple[tuple[Job, float], ...] = field(repr=False)
    front: tuple[DesignPoint, ...] = field(repr=False)
    found: DesignSearch = field(repr=False)
    limits: Limits = field(repr=False)
    growth: tuple[FabricGrowth, ...] | None = field(default=None, repr=False)
    """Fabrics that can grow to the later size, cheapest first; None: not asked."""
    cannot_grow: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage: StorageDesign | None = field(default=None, repr=False)
    switching: tuple[Switching, ...] = field(default=(), repr=False)
    grid: bool = False
    """Whether the alternatives were asked for: all of them are in the front."""
    left_out: str = ""
    """Links that were not looked at, and how to ask for them; empty: none."""

    @property
    def best(self) -> DesignPoint:
        """The cheapest token, and of those that tie with it the one that keeps most after a failure."""
        return self.front[0]

    def save(self, path: Path) -> None:
        """Write the best fabric as a cluster file."""
        save(parse_cluster(Document(self.cluster(), {}, "design")), path)

    def cluster(self) -> JsonObject:
        """Return the best fabric as a cluster description."""
        return self.best.choice.described()

    @property
    def figures(self) -> DesignFigures:
        """What `--json` prints."""
        found, front = self.found, self.front
        return DesignFigures(
            jobs=tuple(WeighedJob(job.name, job.model.name, weight) for job, weight in self.jobs),
            choices=found.num_choices, impossible=len(found.impossible), over_limit=found.over,
            bounded=found.num_bounded, planned=found.num_planned, complete=found.complete,
            front=front[:SHOWN], front_size=len(front),
            runner_up=why_lost(self.best, front[1]) if len(front) > 1 else None,
            millions=tuple(millions(front)), flips=tuple(flips(front)),
            growth=None if self.growth is None else self.growth[:SHOWN], switching=self.switching[:SHOWN],
            storage=self.storage, grid=self.grid, recommended=why_recommended(front),
            left_out=self.left_out, cluster=self.cluster(),
        )  # fmt: skip


@question(
    "syncline design llama3-70b --gpus 1024",
    "syncline design llama3-70b --budget 40M --link NDR --link 400GbE --html design.html",
    "syncline design llama3-70b gpt3-175b --weight 3 --weight 1 --gpus 2048 --state design.json",
    "syncline design llama3-70b --gpus 1024 --link 400GbE --link 800GbE --topology fat-tree --topology rail-optimized"
    " --ratio 1 --ratio 2 --html page.html",
    "syncline design llama3-70b --gpus 1024 --days 60 --tokens 1T --out cluster.yaml",
    "syncline design llama3-70b --gpus 1024 --later 8192 --storage",
    "syncline design llama3-70b --gpus 1024 --by 2027-06",
    "syncline design llama3-70b --budget 400M --on ray --state design.json",
    "syncline design llama3-70b --gpus 256 --sites 2 --wan 400Gbps,6ms",
    help="Search fabrics for jobs: topology, oversubscription, cards, links, switches, copper or optics, planes.",
)
def design(
    jobs: Annotated[JobSource | Sequence[JobSource], Parameter("Jobs by name or file.", metavar="JOB", kind=list[str])],
    *,
    gpus: Annotated[int | None, Parameter("How many GPUs; default: what the jobs' files say.")] = None,
    budget: Annotated[str | float | None, Parameter("Dollars for hosts and network: 40M.")] = None,
    power: Annotated[float | None, Parameter("Limit of power, in kW, at full load.")] = None,
    racks: Annotated[int | None, Parameter("Limit of racks.")] = None,
    days: Annotated[float | None, Parameter("Limit of days for `tokens`.")] = None,
    tokens: Annotated[str | float | None, Parameter("What must be trained: 15T.")] = None,
    survive: Annotated[
        float, Parameter("Least share of training speed to keep when a switch fails.", min=0.0, max=1.0)
    ] = 0.5,
    hosts: Annotated[Sequence[str], Parameter(f"Host models to look at. [{DEFAULT_HOST}]", names=("--host",))] = (),
    links: Annotated[
        Sequence[str], Parameter("Links to look at; default: all the host's cards have.", names=("--link",))
    ] = (),
    topologies: Annotated[
        Sequence[str], Parameter("Compare these alone, with `links` and `ratios` as a grid.", names=("--topology",))
    ] = (),
    ratios: Annotated[Sequence[float], Parameter("Oversubscriptions of that grid: 1, 2.", names=("--ratio",))] = (),
    weights: Annotated[
        Sequence[float], Parameter("Weight of each job, in their order.", names=("--weight",), rare=True)
    ] = (),
    assume: AssumeOption = None,
    state: Annotated[str | Path | None, Parameter("Save the search here, and resume from it.")] = None,
    later: Annotated[
        int | Sequence[int] | None,
        Parameter("GPUs to grow to without recabling; repeat for each step.", kind=list[int]),
    ] = None,
    storage: Annotated[
        bool, Parameter("Size storage and a front end beside it; simulate a converged network.")
    ] = False,
    sites: Annotated[int, Parameter("Cut the hosts into this many sites.", min=1, max=16)] = 1,
    wan: Annotated[str, Parameter("With `sites`: the line between two.", metavar="RATE,LATENCY")] = "",
    by: Annotated[str, Parameter("Look at parts that can be bought by then too, as 2027-06.", metavar="MONTH")] = "",
    on: Annotated[str | None, Parameter('"ray" spreads the search over a Ray cluster.', rare=True)] = None,
    progress: Progress | None = None,
) -> DesignAnswer:
    """Search fabrics for one or several jobs and return those that nothing else beats.

    Give a number of GPUs, or a budget from which it follows. A job whose file says `gpus` runs on so many of them, as
    in `plan`. `survive` is the least share of the training that must
    remain after the worst failure of one switch. `later` is a number of GPUs to which the fabric shall grow without
    recabling, or several, one a step; `storage` sizes storage and a front end beside it. `by` is a month
    ("2027-06"): parts that can be bought by then are looked at too. `sites` cuts the hosts into as many sites,
    joined by a line of `wan` ("400Gbps,6ms"). `topologies` and `ratios` ask for a grid of alternatives with
    `links`: each is planned and executed, and one is recommended. `on="ray"` spreads the search over a Ray cluster;
    an interrupt leaves what was found, and `state` is where the next run goes on.
    """
    many = [jobs] if isinstance(jobs, (str, Path, Mapping, Job)) else list(jobs)
    if not many:
        raise UsageError("name a job to design for.", hint='syncline.design("llama3-70b", gpus=1024), say.')
    described = tuple(zip((job_of(job) for job in many), _weights(weights, len(many)), strict=True))
    hosts = hosts or (DEFAULT_HOST,)
    gpus = gpus or max((job.gpus for job, _ in described if job.gpus is not None), default=None)
    spend = None if budget is None else read_number("budget", budget)
    trained = None if tokens is None else read_number("tokens", tokens)
    limits = Limits(spend, None if power is None else power * 1e3, racks, days, trained, survive)
    assumed, _ = load_assumptions(None, dict(assume or {}))
    grown = () if later is None else (later,) if isinstance(later, int) else tuple(later)
    check_sites(sites, wan, bool(grown) or storage)
    if by and not MONTH.match(by):
        raise UsageError(f'`by` "{by}" is not a month.', hint="Write it as 2027-06.")
    if topologies or ratios:
        if sites > 1 or grown or storage or on:
            raise UsageError(
                "a grid of alternatives is one site, of one size.", hint="Leave out `sites`, `later`, `storage`."
            )
        asked = grid(hosts, gpu_counts(hosts, gpus, spend), links, topologies, [float(r) for r in ratios], by)
        planner = Designer(described, replace(limits, after_one=0.0), assumed, Path(state) if state else None)
        laid = grid_study(planner, asked, Meter(progress))
        return DesignAnswer(described, laid.front, laid.search, limits, grid=True)
    choices = space(hosts, gpu_counts(hosts, gpus, spend), links, sites, wan, by)
    designer = Designer(described, limits, assumed, Path(state) if state else None)
    seen = study(designer, choices, later=grown, with_storage=storage, spread=spread_on(on),
                 meter=Meter(progress))  # fmt: skip
    return DesignAnswer(
        described, seen.front, seen.search, limits, seen.growth, seen.cannot_grow, seen.storage, seen.switching,
        left_out=skipped_links(hosts, links, by),
    )  # fmt: skip


def _weights(given: Sequence[float], count: int) -> list[float]:
    if given and (len(given) != count or min(given) <= 0):
        raise UsageError(f"{len(given)} weights for {count} jobs.", hint="Give one positive weight for each job.")
    return list(given) or [1.0] * count


COMMANDS = {"": design}
