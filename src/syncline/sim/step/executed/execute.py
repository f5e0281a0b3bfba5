"""The step executed: its graph on the flow engine, where collectives share links with each other.

    executed = execute(fabric, step(fabric, job))
    executed.step_time_s, executed.collectives[0].limiting_link

Compute spans take what the step model says. Every collective is one task of the engine that crosses each link with what
its Program puts there (`footprint.py`), so alone it takes as long as its busiest link and its calls need, and beside
others less is left for it. What hides behind compute begins before that ends, as far as the step model hides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from syncline.describe.model import reported
from syncline.describe.progress import Progress
from syncline.errors import SimulationError
from syncline.fabric.fabric import Fabric
from syncline.sim.flow.engine import Tasks, run
from syncline.sim.flow.routing import Routing
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.executed.footprint import Floats, Longs, Rails, alike_links, sparse_rows
from syncline.sim.step.executed.packets import IGNORES as PACKET_IGNORES
from syncline.sim.step.executed.packets import PacketCounts, run_packets
from syncline.sim.step.executed.parts import busiest_parts
from syncline.sim.step.executed.stages import Stages
from syncline.sim.step.executed.tasks import StepTasks
from syncline.sim.step.floor import check_floor
from syncline.sim.step.step import StepResult
from syncline.workload.graph import Workload
from syncline.workload.job import Job
from syncline.workload.step_graph import step_graph

IGNORES = ("queues and packet loss", "stragglers", "other jobs", "drift between the ranks of a stage")
ROUNDS = 2
"""Rounds of the pipeline (micro-batches over stages) after which each further round takes as long as the one before."""
LEAST_MICRO = 4
"""Micro-batches that make a round of a short pipeline: one alone may hide behind what begins or ends a step."""
BETWEEN_SITES = 48
"""And of one whose stages may stand at several sites: a line holds many micro-batches on their way."""


@dataclass(frozen=True)
class CollectiveTime:
    """One kind of communication in an executed step, over all its calls of the busiest stage."""

    name: str
    calls: int
    total_s: float
    alone_s: float
    limiting_link: str


@dataclass(frozen=True)
class StepRun:
    """A step as the flow engine ran it."""

    step_time_s: float
    collectives: tuple[CollectiveTime, ...]
    tasks: int
    routing: str
    parts_s: Mapping[str, float]
    """Where it goes: seconds of each part of the price on the stage that computes longest."""
    ignores: tuple[str, ...] = IGNORES
    packets: PacketCounts | None = None
    """What happened to packets; None: executed at flow level."""
    differs: tuple[str, ...] = ()
    """Why it differs from the closed forms."""

    @reported
    def level(self) -> str:
        return "flow" if self.packets is None else "packet"


def execute(
    fabric: Fabric,
    result: StepResult,
    constants: Constants | None = None,
    routing: Routing = "spray",
    *,
    devices: Longs | None = None,
    rails: Rails | None = None,
    level: str = "flow",
    max_packets: int | None = None,
    progress: Progress | None = None,
) -> StepRun:
    """Return a priced step as the flow engine runs it on the fabric, or packet by packet (`level="packet"`).

    `devices` are those of the ranks (tensor, context, data, stage, the first fastest) where the job's own placement is
    not meant; `rails` are the links where they have been laid out already.
    """
    check_executable(result)
    stages = Stages(fabric, result, constants or default_constants(), routing, devices=devices, rails=rails)
    if level == "flow":
        found = execute_stages(stages, result)
    else:
        found = _packets(stages, result, routing, max_packets, progress)
    if devices is None:  # the floor is that of the job's own placement
        check_floor(found.step_time_s, result.floor_s, f"{result.job.name}, executed")
    return found


def check_executable(result: StepResult) -> None:
    """Raise where a step has no graph that the flow engine could run."""
    if result.case is None:
        raise SimulationError(f"{result.job.model.name} is a list of layers; its step is not executed at flow level.",
                              hint="Use --level analytic.")  # fmt: skip
    if result.job.sync.method == "parameter-server":
        raise SimulationError("a parameter server's step is not executed at flow level.", hint="Use --level analytic.")


def execute_stages(stage: Stages, result: StepResult) -> StepRun:
    """Return a step whose ranks have their devices as the flow engine runs it."""
    k, m = stage.k, result.job.num_micro
    pp, sites = result.job.parallel.pp, np.unique(stage.fabric.site_of_host).size
    one = -(-(LEAST_MICRO if sites < 2 else BETWEEN_SITES) // pp) * pp
    few = one * (ROUNDS if sites < 2 else 1)
    more = few + one
    if m <= few + more:
        return _run(StepTasks(stage, result, k, _graph(result.job, m)))
    built = StepTasks(stage, result, k, _graph(result.job, few))
    shorter, longer = _run(built), _run(StepTasks(stage, result, k, _graph(result.job, more), built))
    each = (longer.step_time_s - shorter.step_time_s) / one
    scale = m / more
    scaled = tuple(
        CollectiveTime(c.name, round(c.calls * scale), c.total_s * scale, c.alone_s * scale, c.limiting_link)
        for c in longer.collectives
    )
    step_s = longer.step_time_s + each * (m - more)
    parts = _repeated(shorter.parts_s, longer.parts_s, (m - more) / one, step_s)
    return StepRun(step_s, scaled, longer.tasks, stage.rails.network.options.routing, parts)


def _repeated(
    shorter: Mapping[str, float], longer: Mapping[str, float], rounds: float, step_s: float
) -> dict[str, float]:
    """Return the parts of a step of more rounds; a part that a round lacks is not taken from those before it."""
    found = {part: max(took + rounds * (took - shorter.get(part, 0.0)), 0.0) for part, took in longer.items()}
    by = step_s / max(sum(found.values()), 1e-30)
    return {part: took * by for part, took in found.items()}


@lru_cache(maxsize=64)  # a plan executes one job on many networks
def _graph(job: Job, num_micro: int) -> Workload:
    return step_graph(job, max_micro=num_micro)


def _run(built: StepTasks) -> StepRun:
    rails, tasks = built.stages.rails, built.columns
    table, links, capacity, least = _paced(built)
    paths = sparse_rows(table)
    rows, kinds = tasks.what, list(built.kinds)
    course = run(
        capacity,
        Tasks.of(
            paths, size_bytes=tasks.size_bytes * np.append(least, 1.0)[rows], first_path=np.maximum(rows, 0),
            num_paths=(rows >= 0).astype(np.int32), delay_s=tasks.delay_s, wait_for=tasks.waits,
        ),
    )  # fmt: skip

    def limiting(among: Longs) -> str:
        known = links[course.bottleneck[among][course.bottleneck[among] >= 0]]
        link = int(np.bincount(known).argmax()) if len(known) else -1
        if link < len(rails.capacity_Bps):
            return rails.link_name(link) if link >= 0 else ""
        return built.stages.busiest(*kinds[int(tasks.path[among[0]])])

    found = _collectives(built, course.begin_s, course.end_s, limiting)
    parts = busiest_parts(built, course.begin_s, course.end_s)
    return StepRun(course.makespan_s, found, len(rows), rails.network.options.routing, parts)


def _paced(built: StepTasks) -> tuple[Floats, Longs, Floats, Floats]:
    """Return what each kind of traffic puts on links and on a link of its own, which keeps it to its price.

    What the price needs beyond the bytes on the links leaves them to others. Then which links these are, of those that
    carry alike the first, and their rates; last, of the stretched size of each the part that is sent.
    """
    carried, what = built.footprints(), list(built.traffic.values())
    links = alike_links(carried, built.stages.rails.capacity_Bps)
    carried, capacity_Bps = carried[:, links], built.stages.rails.capacity_Bps[links]
    path, own = np.array([one.path for one in what], np.int64), len(built.stages.rails.capacity_Bps)
    each_s = (carried / np.maximum(capacity_Bps, 1e-30)).max(axis=1, initial=0.0)[path]
    size = np.array([one.size_bytes for one in what])
    least = np.minimum(np.array([one.sent_bytes for one in what]) / np.maximum(size, 1e-30), 1.0)
    table = np.hstack((carried[path], np.eye(len(what)) * (each_s > 0)[:, None]))
    links = np.append(links, own + np.arange(len(what)))
    return table, links, np.append(capacity_Bps, least / np.maximum(each_s, 1e-30)), least


def _packets(
    stages: Stages, result: StepResult, routing: Routing, most: int | None, progress: Progress | None
) -> StepRun:
    """Return a step packet by packet, all its micro-batches."""
    k = stages.k
    built = StepTasks(stages, result, k, step_graph(result.job, max_micro=result.job.num_micro))
    tasks, order = built.columns, built.order()
    load = tasks.take(order).load
    drawn = run_packets(
        stages.fabric, load, [stages.flows(*key) for key in built.kinds], routing, e_net=k.fitted.e_net,
        e_nvl=k.fitted.e_nvl, most=most, name=result.job.name, progress=progress,
    )  # fmt: skip
    kinds, back = list(built.kinds), np.argsort(order)
    begin_s, end_s = drawn.begin_s[back], drawn.end_s[back]
    found = _collectives(built, begin_s, end_s, lambda among: stages.busiest(*kinds[int(tasks.path[among[0]])]))
    parts = busiest_parts(built, begin_s, end_s)
    return StepRun(float(end_s.max(initial=0.0)), found, len(tasks.op), routing, parts, PACKET_IGNORES, drawn.counted())


def _collectives(
    built: StepTasks, begin_s: Floats, end_s: Floats, limiting: Callable[[Longs], str]
) -> tuple[CollectiveTime, ...]:
    """Return what each kind of communication took, the mean over the stages of a pipeline."""
    found, stages = [], max(built.result.job.parallel.pp, 1)
    tasks = built.columns
    of_name: dict[str, list[int]] = {}
    for number, (name, *_) in enumerate(built.traffic):
        of_name.setdefault(name, []).append(number)
    for name, numbers in of_name.items():
        mine = np.flatnonzero(np.isin(tasks.what, numbers))
        took_s = float((end_s[mine] - begin_s[mine]).sum()) / stages
        alone_s = float(tasks.alone_s[mine].sum()) / stages
        found.append(CollectiveTime(name, max(1, len(mine) // stages), took_s, alone_s, limiting(mine)))
    return tuple(found)
