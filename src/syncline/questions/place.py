"""On which GPU of this allocation should each rank run, and what does that gain over the scheduler's order?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.files import open_file
from syncline.describe.mistakes import blamed_on
from syncline.describe.model import Handle, handle, reported
from syncline.describe.progress import Meter, Progress
from syncline.errors import DescriptionError, UsageError
from syncline.fabric import Fabric
from syncline.placing.allocation import Allocation, from_list, read_allocation
from syncline.placing.files import RankMap, RankSeat, read_rank_map, write_files
from syncline.placing.judge import Judge
from syncline.placing.remap import SLACK, Remap, remap
from syncline.placing.search import ALIKE, BestOrder, search
from syncline.placing.seats import Order, rail_aligned
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import ClusterArgument, JobArgument, built, job_of
from syncline.sim.step.executed.execute import IGNORES

ROUTINGS = ("spray", "ecmp", "static")


@dataclass(frozen=True)
class AllocatedHosts:
    """The hosts that the scheduler gave."""

    source: str
    hosts: tuple[str, ...]
    gpus: int


@dataclass(frozen=True)
class CollectiveGain:
    """One collective of the step, in the scheduler's order and as placed."""

    name: str
    scheduler_s: float
    placed_s: float
    limiting_link: str


@dataclass(frozen=True)
class Replacement:
    """The step after a host was replaced: on the old host's seat, with all hosts free to move, and how many moved."""

    in_place_s: float
    best_s: float
    moved_units: int


@dataclass(frozen=True)
class PlaceAnswer(Answer):
    """Where every rank runs, and the step it gives beside those of the scheduler's order and of packed order."""

    schema_name: ClassVar[str] = "place"
    outputs: ClassVar[Mapping[str, Output]] = {
        "out": Output(
            "Write rank file, hostfiles, torchrun and JobSet.", lambda answer, path: answer.write(path), folder=True
        ),
        **page_output("Write a page with the rank map, before and after."),
    }

    cluster: str
    job: str
    gpus: int
    allocation: AllocatedHosts
    step_time_s: float
    scheduler_s: float
    """The step in the order in which the scheduler listed the hosts."""
    packed_s: float
    """The step with hosts in the order of the fabric, rack after rack."""
    bound_s: float
    """No order of these hosts has a shorter step: racks, pods and sites would let everything out."""
    proved: bool
    """Whether no order is better: all were executed, or the step is as short as its bound."""
    executed_orders: int
    collectives: tuple[CollectiveGain, ...]
    remap: Replacement | None
    idle_hosts: tuple[str, ...]
    hosts: tuple[str, ...]
    """The hosts, as the scheduler calls them, in the order of their first rank."""
    ranks: tuple[RankSeat, ...]
    level: str = "flow"
    ignores: tuple[str, ...] = IGNORES
    fabric: Handle[Fabric] = handle()
    judge: Handle[Judge] = handle()
    order: Handle[Order] = handle()
    kept: Handle[Order | None] = handle()
    """The order before a host was replaced, with the new host on the old one's seat."""

    @reported
    def gain(self) -> float:
        """The part of the scheduler's step that is saved."""
        return 1 - self.step_time_s / self.scheduler_s

    @reported
    def gain_over_packed(self) -> float:
        """The part of the packed step that is saved."""
        return 1 - self.step_time_s / self.packed_s

    @reported
    def gap(self) -> float:
        """The part by which the step is longer than its bound."""
        return self.step_time_s / self.bound_s - 1

    @property
    def rank_map(self) -> RankMap:
        return RankMap(self.job, self.ranks)

    def write(self, folder: str | Path) -> list[Path]:
        """Write the order for Slurm, MPI, torchrun and Kubernetes; return the files."""
        return write_files(self.rank_map, Path(folder))


def _answer(
    judge: Judge,
    order: Order,
    *,
    found: BestOrder | None = None,
    remapped: Remap | None = None,
    kept: Order | None = None,
    given: Judge | None = None,
) -> PlaceAnswer:
    """Return the answer; `given` judges the scheduler's order of GPUs where another order inside hosts is better."""
    scheduled, placed, ranks = given or judge, judge.executed(order), rank_map(judge, order)
    allocation = judge.seats.allocation
    before = {each.name: each for each in scheduled.executed(scheduled.seats.scheduler_order()).collectives}
    gains = (
        CollectiveGain(
            each.name, before[each.name].total_s if each.name in before else 0.0, each.total_s, each.limiting_link
        )
        for each in placed.collectives
    )
    return PlaceAnswer(
        cluster=judge.fabric.name,
        job=ranks.job,
        gpus=judge.seats.num_ranks,
        allocation=AllocatedHosts(allocation.source, tuple(allocation.names), allocation.num_gpus),
        step_time_s=placed.step_time_s,
        scheduler_s=scheduled.time_s(scheduled.seats.scheduler_order()),
        packed_s=scheduled.time_s(scheduled.seats.packed_order()),
        bound_s=min(found.bound_s if found else judge.bound_s(), placed.step_time_s),
        proved=found is not None and found.proved,
        executed_orders=judge.num_executed,
        collectives=tuple(gains),
        remap=None if remapped is None else Replacement(remapped.in_place_s, remapped.best_s, remapped.num_moved),
        idle_hosts=tuple(name for name in allocation.names if name not in ranks.hosts),
        hosts=tuple(ranks.hosts),
        ranks=ranks.seats,
        fabric=judge.fabric,
        judge=judge,
        order=order,
        kept=kept,
    )


def rank_map(judge: Judge, order: Order) -> RankMap:
    """Return where every rank runs, by the names the scheduler knows."""
    seats = judge.seats
    names = dict(zip(seats.allocation.hosts, seats.allocation.names, strict=True))
    devices = judge.fabric.devices
    rows = tuple(
        RankSeat(rank, names[int(devices.host[gpu])], int(devices.local[gpu]))
        for rank, gpu in enumerate(seats.by_launch(order).tolist())
    )
    return RankMap(judge.result.job.name, rows)


@question(
    'syncline place cluster.yaml job.yaml --hosts "$SLURM_JOB_NODELIST" --out placement',
    "syncline place cluster.yaml job.yaml --allocation nodes.json --html placement.html",
    "syncline place cluster.yaml job.yaml --hosts 'gpu[003-011,042]' --keep placement/placement.json"
    " --replace gpu007=gpu055",
)
def place(
    cluster: ClusterArgument,
    job: JobArgument,
    *,
    hosts: Annotated[
        str | None, Parameter('The hosts in the scheduler\'s order: "gpu[003-011]".', metavar="LIST")
    ] = None,
    allocation: Annotated[
        str | Path | None, Parameter("scontrol, kubectl or Ray output, or a hostfile.", metavar="FILE")
    ] = None,
    keep: Annotated[
        str | Path | None, Parameter("The placement.json that runs now, with --replace.", metavar="FILE")
    ] = None,
    replace: Annotated[
        str | None, Parameter("A host was replaced: move as few as possible.", metavar="OLD=NEW")
    ] = None,
    slack: Annotated[
        float, Parameter("Share of a step to lose before more hosts move.", min=0, max=1, rare=True)
    ] = SLACK,
    routing: Annotated[str, Parameter("spray (balanced), ecmp (hashed) or static.")] = "spray",
    seed: Annotated[int, Parameter("Seed of the swaps that are tried.", rare=True)] = 0,
    progress: Progress | None = None,
) -> PlaceAnswer:
    """Map the ranks of a job to the GPUs of an allocation so that its step is shortest.

    `hosts` is a list such as "gpu[003-011,042]" (or numbers of the cluster's hosts); `allocation` is a file from Slurm,
    Kubernetes or Ray, or a hostfile. With `replace` (OLD=NEW) one host has been exchanged: the order of `keep` (a
    `placement.json`; default the scheduler's) is changed as little as a loss of `slack` allows.

    >>> cluster = {"hosts": 4, "host": "8 x H100", "network": "leaf-spine 100GbE"}
    >>> place(cluster, {"model": "llama3-8b", "batch": {"global": 64}}, hosts="2,0").hosts
    ('host-02', 'host-00')
    """
    if (hosts is None) == (allocation is None):
        raise UsageError("no hosts are given.", hint="Give either `hosts` (a list) or `allocation` (a file).")
    if routing not in ROUTINGS:
        raise UsageError(f'no routing is called "{routing}".', hint=f"One of: {', '.join(ROUTINGS)}.")
    fabric, described, meter = built(cluster), job_of(job), Meter(progress)
    given = from_list(fabric, hosts) if hosts is not None else _read(fabric, Path(str(allocation)))
    if described.kind == "decode":
        raise UsageError("a decode job has no training step.", hint="Place training jobs.")
    kept = _kept(keep)
    if replace is None:
        if kept is not None:
            raise UsageError("`keep` goes with `replace` (OLD=NEW).")
        with blamed_on(job if isinstance(job, (str, Path)) else described.name):
            judge = Judge(fabric, given, described, routing)  # type: ignore[arg-type]
            found: BestOrder = search(judge, seed, meter=meter)
            aligned = rail_aligned(judge.seats)
            if aligned is not None:  # hosts that gave other GPUs than most: theirs in the order of rails
                other = judge.seated(aligned)
                better = search(other, seed, meter=meter)
                if better.step_time_s < found.step_time_s * (1 - ALIKE):
                    return _answer(other, better.order, found=better, given=judge)
        return _answer(judge, found.order, found=found)
    old, equals, new = replace.partition("=")
    if not equals or not old or not new:
        raise UsageError(f'"{replace}" does not say which host replaces which.', hint="Write `replace` as OLD=NEW.")
    with blamed_on(job if isinstance(job, (str, Path)) else described.name):
        judge = Judge(fabric, given.replaced(fabric, old, new), described, routing)  # type: ignore[arg-type]
        before = judge.seats.scheduler_order() if kept is None else _order_of(judge, kept, old, new)
        result = remap(judge, before, slack, meter)
    return _answer(judge, result.order, remapped=result, kept=before)


def _read(fabric: Fabric, path: Path) -> Allocation:
    return read_allocation(fabric, _text(path), str(path))


def _text(path: Path) -> str:
    with open_file(path) as file:
        return file.read().decode("utf-8", "replace")


def _kept(path: str | Path | None) -> RankMap | None:
    if path is None:
        return None
    text = _text(Path(path))
    try:
        return read_rank_map(json.loads(text), str(path))
    except ValueError as error:
        raise DescriptionError(f"not JSON: {error}.", where=str(path)) from None


def _order_of(judge: Judge, kept: RankMap, old: str, new: str) -> Order:
    """Return the units of a rank map in its order, the new host on the seats of the old."""
    seats, devices = judge.seats, judge.fabric.devices
    names = dict(zip(seats.allocation.names, seats.allocation.hosts, strict=True))
    unit_of = {(int(devices.host[g]), int(devices.local[g])): u for u, row in enumerate(seats.gpus) for g in row}
    spare = [u for u in range(seats.num_units) if int(seats.host[u]) == names[new]]
    order: list[int] = []
    for seat in kept.seats[:: seats.size]:
        if seat.host == old:
            order.append(spare.pop(0))
            continue
        unit = unit_of.get((names.get(seat.host, -1), seat.gpu))
        if unit is None or unit in order:
            raise UsageError(
                f"the kept placement has rank {seat.rank} on {seat.host}, GPU {seat.gpu}, "
                "which is not in this allocation.",
                hint="Give `keep` the placement that this allocation ran with.",
            )
        order.append(unit)
    return (*order, *(u for u in range(seats.num_units) if u not in order))


COMMANDS = {"": place}
