"""Many programs at once over one network, with compute spans, start conditions, failures and other traffic.

    network = Network(fabric, NetworkOptions(routing="ecmp", seed=3))
    outcome = simulate([Job(program, size_bytes=1 << 30), Job(other, 1 << 20, start_s=1e-3)], network)
    outcome.job_end_s, outcome.timeline()

Every flow is simulated; use `estimate` for one program alone, which folds what repeats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from syncline.errors import SimulationError
from syncline.fabric import Fabric
from syncline.program import Program
from syncline.sim.flow.engine import Course, Floats, LinkChanges, Paths, Reroutes, Tasks, run
from syncline.sim.flow.expand import Expansion, Share, TransferRows, expand, no_waits
from syncline.sim.flow.routing import FlowNetwork, Longs
from syncline.sim.flow.wired import WiredProgram, wire

IGNORES = ("queues and packet loss", "congestion control transients", "host jitter", "reduction arithmetic")
MAX_FLOWS = 8_000_000


@dataclass(frozen=True, eq=False)
class FlowJob:
    """One program and when it may run: at `start_s`, after its own compute span, after other jobs on the same devices.

    `compute_s` is one number or one per rank. `slow` makes ranks slower by a factor; `pause_s` is each rank's own work
    after every round.
    """

    program: Program
    size_bytes: float
    name: str = ""
    start_s: float = 0.0
    after: tuple[int, ...] = ()
    compute_s: float | Floats = 0.0
    share: Share = field(default_factory=Share)
    slow: Mapping[int, float] = field(default_factory=dict)
    pause_s: float = 0.0


@dataclass(frozen=True)
class LinkEvent:
    """From `time_s` on the link (both directions of its cable) has `factor` of its rate; 0 is a failure.

    Traffic of a failed link moves to other paths after `reroute_s`; None: it waits for the repair.
    """

    time_s: float
    link: int
    factor: float = 0.0
    reroute_s: float | None = 0.0


@dataclass(frozen=True)
class Background:
    """Traffic of others: `rate_Bps` from one device to another, from `start_s` for `duration_s`."""

    src: int
    dst: int
    rate_Bps: float
    start_s: float = 0.0
    duration_s: float = 1.0
    share: Share = field(default_factory=Share)


@dataclass(frozen=True, eq=False)
class JobTasks:
    """Where one job's tasks stand: its blocks of transfers, the tasks that start its vertices, those that end them."""

    job: FlowJob
    wired: WiredProgram
    blocks: tuple[TransferRows, ...]
    start: Longs
    done: tuple[Longs, ...]


@dataclass(frozen=True, eq=False)
class FlowOutcome:
    """What came of all jobs."""

    network: FlowNetwork
    jobs: tuple[JobTasks, ...]
    tasks: Tasks
    course: Course

    @property
    def job_end_s(self) -> list[float]:
        """When each job is done on its last rank."""
        return [float(self.rank_end_s(i).max()) for i in range(len(self.jobs))]

    def rank_end_s(self, job: int) -> Floats:
        """Return when each rank is done with a job."""
        placed = self.jobs[job]
        ranks = placed.job.program.num_ranks
        last: Floats = np.max(np.stack([self.course.end_s[done[:ranks]] for done in placed.done]), axis=0)
        return last

    @property
    def makespan_s(self) -> float:
        """When the last job is done; other traffic may go on."""
        return max(self.job_end_s)


def simulate(
    jobs: Sequence[FlowJob],
    network: FlowNetwork,
    *,
    events: Sequence[LinkEvent] = (),
    background: Sequence[Background] = (),
    guarantees: Mapping[str, float] | None = None,
    record: bool = False,
) -> FlowOutcome:
    """Return the outcome of jobs that share a network.

    `guarantees` gives tenants (`Share.tenant`) a part of every link that is theirs when they want it, against any
    weight or class of the others; what they do not use goes to the others.
    """
    if not jobs:
        raise SimulationError("there is no job to simulate.")
    wired = [wire(job.program, network).on_all_links for job in jobs]
    total = sum(part.num_flows for part in wired)
    if total > MAX_FLOWS:
        raise SimulationError(f"{total:,} flows are more than the {MAX_FLOWS:,} that are simulated one by one.",
                              hint="Price the program alone, with estimate(), which folds what repeats.")  # fmt: skip
    assured = _checked(guarantees or {}, [*(job.share for job in jobs), *(traffic.share for traffic in background)])
    work, paths = Expansion(tenants=tuple(assured)), Paths.of([])
    placed: list[JobTasks] = []
    for job, part in zip(jobs, wired, strict=True):
        placed.append(_place(work, job, part, placed, len(paths)))
        paths = paths.then(placed[-1].wired.wires.paths)
    paths = _add_background(work, network, background, paths)
    tasks = work.tasks(paths)
    tasks, reroutes = _reroutes(tasks, placed, network, events)
    try:
        course = run(
            network.capacity_Bps,
            tasks,
            changes=_changes(network, events),
            reroutes=reroutes,
            guarantee=list(assured.values()),
            record=record,
        )
    except SimulationError as error:
        raise _named(error, network) from None
    return FlowOutcome(network, tuple(placed), tasks, course)


def _named(error: SimulationError, network: FlowNetwork) -> SimulationError:
    """Return the engine's complaint about a link with the link's name."""
    found = re.search(r"link (\d+) has no rate left", error.message)
    if found is None:
        return error
    return SimulationError(
        f"a flow never ends: {network.link_name(int(found[1]))} has no rate left for it.",
        hint="Repair the link later (rate: full), or let its traffic move away (reroute: 1ms).",
    )


def _checked(guarantees: Mapping[str, float], shares: Sequence[Share]) -> Mapping[str, float]:
    for tenant, part in guarantees.items():
        if not 0 <= part <= 1:
            raise SimulationError(
                f'tenant "{tenant}" is guaranteed {part:g} of every link; a part lies between 0 and 1.'
            )
        if tenant not in {share.tenant for share in shares}:
            known = ", ".join(sorted({share.tenant for share in shares} - {""})) or "none"
            raise SimulationError(f'tenant "{tenant}" has a guarantee but no job; tenants with jobs: {known}.')
    if sum(guarantees.values()) > 1 + 1e-12:
        raise SimulationError(
            f"guarantees add up to {sum(guarantees.values()):g} of every link; at most 1 can be given."
        )
    return guarantees


def _place(work: Expansion, job: FlowJob, part: WiredProgram, before: list[JobTasks], first_path: int) -> JobTasks:
    """Append one job: its start tasks (waits and compute spans), then its rounds."""
    start = _start_tasks(work, job, part, before)
    first_block = len(work.blocks)
    slow = None
    if job.slow:
        slow = np.ones(part.num_vertices)
        for rank, factor in job.slow.items():
            if not 0 <= rank < part.num_vertices or factor < 1:
                raise SimulationError(f"rank {rank} cannot be slower by {factor}: factors start at 1, ranks end at "
                                      f"{part.num_vertices - 1}.")  # fmt: skip
            slow[rank] = factor
    pause = np.full(part.num_vertices, job.pause_s) if job.pause_s else None
    done = expand(work, part, job.size_bytes, start, share=job.share, first_path=first_path, slow=slow, pause_s=pause)
    return JobTasks(job, part.unit or part, tuple(work.blocks[first_block:]), start, tuple(done))


def _start_tasks(work: Expansion, job: FlowJob, part: WiredProgram, before: list[JobTasks]) -> Longs:
    compute = np.zeros(part.num_vertices)
    compute[: job.program.num_ranks] = job.compute_s
    waits: list[list[int]] = [[] for _ in range(part.num_vertices)]
    for other in job.after:
        if not 0 <= other < len(before):
            raise SimulationError(
                f"job {len(before)} cannot wait for job {other}: only earlier jobs can be waited for."
            )
        last = _last_by_device(before[other])
        for rank, device in enumerate(job.program.placement.device.tolist()):
            waits[rank].extend(last.get(device, []))
    count = np.array([len(row) for row in waits], dtype=np.int64)
    flat = np.array([task for row in waits for task in row], dtype=np.int64)
    first = work.add((count, flat), delay_s=compute, start_s=job.start_s)
    return first + np.arange(part.num_vertices)


def _last_by_device(placed: JobTasks) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for rank, device in enumerate(placed.job.program.placement.device.tolist()):
        found.setdefault(device, []).extend(int(done[rank]) for done in placed.done)
    return found


def _add_background(work: Expansion, network: FlowNetwork, background: Sequence[Background], paths: Paths) -> Paths:
    if not background:
        return paths
    src, dst = (np.array([getattr(b, name) for b in background], dtype=np.int64) for name in ("src", "dst"))
    wires = network.wire(src, dst, np.arange(len(background)))
    work.add(
        no_waits(len(background)),
        first_path=wires.first + len(paths),
        num_paths=wires.count,
        size_bytes=[b.rate_Bps * b.duration_s for b in background],
        start_s=[b.start_s for b in background],
        delay_s=wires.latency_s[wires.first],
        cap_Bps=[min(b.rate_Bps, b.share.cap_Bps) for b in background],
        weight=[b.share.weight for b in background],
        priority=[b.share.priority for b in background],
        tenant=[work.tenant(b.share) for b in background],
    )
    return paths.then(wires.paths)


def _changes(network: FlowNetwork, events: Sequence[LinkEvent]) -> LinkChanges:
    rows = sorted((event.time_s, link, event.factor) for event in events for link in (event.link, event.link ^ 1))
    link = np.array([row[1] for row in rows], dtype=np.int32)
    full = network.capacity_Bps[link] if len(link) else np.empty(0)
    return LinkChanges(np.array([row[0] for row in rows]), link, full * np.array([row[2] for row in rows]))


def _reroutes(
    tasks: Tasks, placed: Sequence[JobTasks], network: FlowNetwork, events: Sequence[LinkEvent]
) -> tuple[Tasks, Reroutes]:
    """Return the tasks with the paths that failures will need, and who moves to them when."""
    rows: list[tuple[float, int, int]] = []
    down: set[int] = set()
    for time_s, together in groupby(sorted(events, key=lambda event: event.time_s), key=lambda event: event.time_s):
        delays = []
        for event in together:
            cable = {event.link, event.link ^ 1}
            down = down - cable if event.factor > 0 or event.reroute_s is None else down | cable
            delays += [event.reroute_s] if event.reroute_s is not None and event.factor == 0 else []
        if not delays:
            continue
        detour = FlowNetwork(without(network.fabric, down), network.options)
        for part in placed:
            tasks, moved = _move(tasks, part, detour, down)
            rows.extend((time_s + max(delays), task, path) for task, path in moved)
    rows.sort()
    time, task, path = (np.array([row[k] for row in rows]) for k in range(3))
    return tasks, Reroutes(time.astype(np.float64), task.astype(np.int32), path.astype(np.int32))


def _move(tasks: Tasks, placed: JobTasks, detour: FlowNetwork, down: set[int]) -> tuple[Tasks, list[tuple[int, int]]]:
    """Return the tasks of a job that cross a failed link, with its new path, and the tasks with that path added."""
    again = wire(placed.job.program, detour).on_all_links
    again = again.unit or again
    old = placed.wired.wires.paths
    hit = np.zeros(len(old), dtype=bool)
    hit[old.row_of_crossing()[np.isin(old.link, list(down))]] = True
    first = len(tasks.paths)
    moved: list[tuple[int, int]] = []
    for block in placed.blocks:
        connection = placed.wired.connection[block.lane][block.phase]
        rows = np.flatnonzero(hit[placed.wired.wires.first[connection]])
        target = again.wires.first[again.connection[block.lane][block.phase][rows]] + first
        moved.extend(zip((block.first + rows).tolist(), target.tolist(), strict=True))
    return replace(tasks, paths=tasks.paths.then(again.wires.paths)), moved


def without(fabric: Fabric, links: set[int]) -> Fabric:
    """Return the fabric with some links down."""
    up = fabric.links.up.copy()
    up[list(links)] = False
    return replace(fabric, links=replace(fabric.links, up=up))
