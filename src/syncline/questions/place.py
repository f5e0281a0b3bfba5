"""On which GPU of this allocation should each rank run, and what does that gain over the scheduler's order?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from syncline.describe.files import open_file
from syncline.describe.mistakes import blamed_on
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError, UsageError
from syncline.fabric import Fabric
from syncline.place.allocation import Allocation, from_list, read_allocation
from syncline.place.files import RankMap, RankSeat, read_rank_map, write_files
from syncline.place.judge import Judge
from syncline.place.remap import SLACK, Remap, remap
from syncline.place.search import ALIKE, BestOrder, search
from syncline.place.seats import Order, rail_aligned
from syncline.questions.answer import Answer, Cluster, built
from syncline.questions.step import JobSource, job_of
from syncline.sim.step.executed.execute import IGNORES, StepRun

ROUTINGS = ("spray", "ecmp", "static")


@dataclass(frozen=True, eq=False)
class PlaceAnswer(Answer):
    """Where every rank runs, and the step it gives beside those of the scheduler's order and of packed order."""

    fabric: Fabric = field(repr=False)
    judge: Judge = field(repr=False)
    order: Order
    proved: bool
    remapped: Remap | None = None
    kept: Order | None = None
    """The order that ran before a host was replaced, with the new host on the old one's seat."""
    given: Judge | None = field(default=None, repr=False)
    """The judge of the scheduler's own order of GPUs, where another order inside hosts is better."""

    @property
    def executed(self) -> StepRun:
        return self.judge.executed(self.order)

    @property
    def step_time_s(self) -> float:
        return self.executed.step_time_s

    @property
    def scheduler_s(self) -> float:
        """The step in the order the scheduler listed the hosts."""
        judge = self.given or self.judge
        return judge.time_s(judge.seats.scheduler_order())

    @property
    def packed_s(self) -> float:
        """The step with hosts in the order of the fabric, rack after rack."""
        judge = self.given or self.judge
        return judge.time_s(judge.seats.packed_order())

    @property
    def gain(self) -> float:
        """The part of the scheduler's step that is saved."""
        return 1 - self.step_time_s / self.scheduler_s

    @property
    def rank_map(self) -> RankMap:
        return rank_map(self.judge, self.order)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts, as the scheduler calls them, in the order of their first rank."""
        return tuple(self.rank_map.hosts)

    def write(self, folder: str | Path) -> list[Path]:
        """Write the order for Slurm, MPI, torchrun and Kubernetes; return the files."""
        return write_files(self.rank_map, Path(folder))

    def to_json(self) -> JsonObject:
        judge = self.judge
        seats, ranks, scheduled = judge.seats, self.rank_map, self.given or judge
        idle = [name for name in seats.allocation.names if name not in ranks.hosts]
        return {
            "cluster": self.fabric.name, "job": judge.result.job.name, "gpus": seats.num_ranks,
            "allocation": {"source": seats.allocation.source, "hosts": list(seats.allocation.names),
                           "gpus": seats.allocation.num_gpus},
            "step_time_s": self.step_time_s, "scheduler_s": self.scheduler_s, "packed_s": self.packed_s,
            "gain": self.gain, "gain_over_packed": 1 - self.step_time_s / self.packed_s,
            "proved": self.proved, "executed_orders": judge.num_executed, "level": "flow",
            "collectives": _compared(scheduled.executed(scheduled.seats.scheduler_order()), self.executed),
            "remap": _remapped(self.remapped), "idle_hosts": idle, **ranks.to_json(), "ignores": list(IGNORES),
        }  # fmt: skip


def _compared(before: StepRun, after: StepRun) -> list[JsonObject]:
    old = {each.name: each for each in before.collectives}
    return [
        {"name": each.name, "scheduler_s": old[each.name].total_s if each.name in old else 0.0,
         "placed_s": each.total_s, "limiting_link": each.limiting_link}
        for each in after.collectives
    ]  # fmt: skip


def _remapped(found: Remap | None) -> JsonObject | None:
    if found is None:
        return None
    return {"in_place_s": found.in_place_s, "best_s": found.best_s, "moved_units": found.num_moved}


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


def place(
    cluster: Cluster,
    job: JobSource,
    *,
    hosts: str | None = None,
    allocation: str | Path | None = None,
    keep: str | Path | None = None,
    replace: str | None = None,
    slack: float = SLACK,
    routing: str = "spray",
    seed: int = 0,
) -> PlaceAnswer:
    """Map the ranks of a job to the GPUs of an allocation so that its step is shortest.

    `hosts` is a list such as "gpu[003-011,042]" (or numbers of the cluster's hosts); `allocation` is a file from Slurm,
    Kubernetes or Ray, or a hostfile. With `replace="old=new"` one host has been exchanged: the order of `keep` (a
    `placement.json`; default the scheduler's) is changed as little as a loss of `slack` allows.

    >>> cluster = {"hosts": 4, "host": "8 x H100", "network": "leaf-spine 100GbE"}
    >>> place(cluster, {"model": "llama3-8b", "batch": {"global": 64}}, hosts="2,0").hosts
    ('host-02', 'host-00')
    """
    if (hosts is None) == (allocation is None):
        raise UsageError("say which hosts the job has.", hint="Give either --hosts LIST or --allocation FILE.")
    if routing not in ROUTINGS:
        raise UsageError(f'no routing is called "{routing}".', hint=f"One of: {', '.join(ROUTINGS)}.")
    fabric, described = built(cluster), job_of(job)
    given = from_list(fabric, hosts) if hosts is not None else _read(fabric, Path(str(allocation)))
    if described.kind == "decode":
        raise UsageError("a decode job has no training step.", hint="Place training jobs.")
    kept = _kept(keep)
    if replace is None:
        if kept is not None:
            raise UsageError("--keep goes with --replace OLD=NEW.")
        with blamed_on(job if isinstance(job, (str, Path)) else described.name):
            judge = Judge(fabric, given, described, routing)  # type: ignore[arg-type]
            found: BestOrder = search(judge, seed)
            aligned = rail_aligned(judge.seats)
            if aligned is not None:  # hosts that gave other GPUs than most: theirs in the order of rails
                other = judge.seated(aligned)
                better = search(other, seed)
                if better.step_time_s < found.step_time_s * (1 - ALIKE):
                    return PlaceAnswer(fabric, other, better.order, better.proved, given=judge)
        return PlaceAnswer(fabric, judge, found.order, found.proved)
    old, equals, new = replace.partition("=")
    if not equals or not old or not new:
        raise UsageError(f'"{replace}" does not say which host replaces which.', hint="Write --replace OLD=NEW.")
    with blamed_on(job if isinstance(job, (str, Path)) else described.name):
        judge = Judge(fabric, given.replaced(fabric, old, new), described, routing)  # type: ignore[arg-type]
        before = judge.seats.scheduler_order() if kept is None else _order_of(judge, kept, old, new)
        result = remap(judge, before, slack)
    return PlaceAnswer(fabric, judge, result.order, False, result, before)


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
                hint="Give --keep the placement that this allocation ran with.",
            )
        order.append(unit)
    return (*order, *(u for u in range(seats.num_units) if u not in order))
