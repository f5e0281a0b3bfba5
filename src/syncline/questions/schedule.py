"""How is a collective done: which rounds, proved or not, and how many bytes on which links?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np

from syncline.describe import units
from syncline.describe.model import Handle, handle
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.fabric import Fabric
from syncline.program import place
from syncline.questions.answer import Answer, OptionGroup, Output, Parameter, page_output, picture_output, question
from syncline.questions.inputs import Cluster, built
from syncline.schedule import FAMILIES, Options, Schedule
from syncline.schedule import cost as costs
from syncline.schedule import verify as prove
from syncline.schedule.collective import read_kind
from syncline.schedule.cost import Cost, fitted
from syncline.schedule.family.families import find
from syncline.schedule.family.weighted import BandwidthBound, bound
from syncline.schedule.formats.files import is_file, read, write
from syncline.schedule.formats.json_file import to_json

DEFAULT_RANKS = 8


def families_beginning(text: str) -> list[str]:
    """Return the names of families for shell completion."""
    return [name for name in FAMILIES if name.startswith(text)]


ScheduleArgument = Annotated[
    str,
    Parameter("A family (see list), or a .json or .xml file.", metavar="FAMILY|FILE", complete=families_beginning),
]
ProtocolOption = Annotated[str, Parameter("MSCCL protocol: Simple, LL or LL128.", rare=True)]
TargetArgument = Annotated[Path, Parameter("Where to write; the ending names the format: .json or .xml (MSCCL).")]


@dataclass(frozen=True)
class ScheduleRequest:
    """Which schedule of a family is meant; a field that has its default was not asked for."""

    ranks: Annotated[int | None, Parameter("Number of ranks.", names=("--ranks", "-n"))] = None
    collective: Annotated[str | None, Parameter("all_reduce, all_gather, ...", names=("--collective", "-c"))] = None
    root: Annotated[int, Parameter("Root of a broadcast, reduce, scatter, gather or send.", rare=True)] = 0
    peer: Annotated[int, Parameter("Who receives a send_recv.", rare=True)] = -1
    channels: Annotated[int, Parameter("Equal strands side by side.", rare=True)] = 1
    directions: Annotated[int, Parameter("Directions of a ring: 1 or 2.", rare=True)] = 1
    chunks: Annotated[int, Parameter("Chunks in a pipeline (0: the family's own).")] = 0
    shape: Annotated[str, Parameter("Grid or levels from the outside in: 64x8, 4x4x4.")] = ""
    hosts: Annotated[int, Parameter("Hosts, with `per_host`: short for `shape` HxP.")] = 0
    per_host: Annotated[int, Parameter("Ranks a host.")] = 0
    levels: Annotated[str, Parameter("Family of each level, outside first: ring,direct.", rare=True)] = ""
    servers: Annotated[int, Parameter("Parameter servers.", rare=True)] = 1
    colocated: Annotated[bool, Parameter("Servers live with the first workers.", rare=True)] = False
    radix: Annotated[int, Parameter("Children of a reducing switch.", rare=True)] = 32
    rates: Annotated[str, Parameter("Rates of rails to stripe over: 100Gbps,400Gbps.", rare=True)] = ""
    speeds: Annotated[str, Parameter("Speed of each rank, for balanced: 100Gbps,400Gbps.", rare=True)] = ""

    def options(self, fabric: Fabric | None = None) -> Options:
        """Return the options of a family; without a number of ranks, one for each GPU of the fabric."""
        grid, speeds = self._grid(), _rates(self.speeds)
        otherwise = len(speeds) or (fabric.num_gpus if fabric else DEFAULT_RANKS)
        return Options(
            self.ranks if self.ranks is not None else prod(grid) if grid else otherwise,
            read_kind(self.collective) if self.collective else None,
            root=self.root,
            peer=self.peer,
            channels=self.channels,
            directions=self.directions,
            chunks=self.chunks,
            shape=grid,
            levels=tuple(part.strip() for part in self.levels.split(",")) if self.levels else (),
            servers=self.servers,
            colocated=self.colocated,
            radix=self.radix,
            rates_Bps=_rates(self.rates),
            speeds_Bps=speeds,
        )

    def schedule(self, what: str, fabric: Fabric | None = None) -> tuple[Schedule, Options]:
        """Return the schedule of a family or file, and the options used.

        A fabric fills in what was not asked for: a rank for each GPU, and the grid its hosts suggest.
        """
        options = self.options(fabric)
        if is_file(what):
            self._refuse_for_a_file(what)
            return read(Path(what)), options
        family = find(what)
        family.refuse_unused(options)
        if fabric is not None:
            options = fitted(options, what, fabric)
        return family.make(options), options

    def _grid(self) -> tuple[int, ...]:
        if not (self.hosts or self.per_host):
            return _numbers(self.shape)
        if not (self.hosts and self.per_host) or self.shape:
            raise UsageError(
                "`hosts` and `per_host` go together, and not with `shape`.",
                hint="Give `hosts` 64 and `per_host` 8, say.",
            )
        return (self.hosts, self.per_host)

    def _refuse_for_a_file(self, what: str) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if given:
            raise UsageError(
                f"`{given[0]}` shapes a family; {what} is a file that says all.",
                hint="Leave it out, or name a family instead of the file.",
            )


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.lower().split("x")) if text else ()
    except ValueError:
        raise UsageError(f'cannot read the shape "{text}".', hint='Write it as "64x8".') from None


def _rates(text: str) -> tuple[float, ...]:
    return tuple(units.rate(part.strip()) for part in text.split(",")) if text else ()


RequestArgument = Annotated[ScheduleRequest | None, OptionGroup(ScheduleRequest)]


@dataclass(frozen=True)
class FamilyRow:
    """A family of schedules."""

    name: str
    summary: str
    collectives: tuple[str, ...]


@dataclass(frozen=True)
class FamilyList(Answer):
    """The families, what each is and which collectives it does."""

    schema_name: ClassVar[str] = "schedule-list"

    families: tuple[FamilyRow, ...]


@dataclass(frozen=True)
class ShownSchedule(Answer):
    """A schedule: its JSON is the file that `schedule verify` and `simulate --algorithm` read."""

    schema_name: ClassVar[str] = "schedule-show"
    outputs: ClassVar[Mapping[str, Output]] = {
        **page_output("Write a page with the space-time picture."),
        **picture_output(),
    }

    schedule: Handle[Schedule] = handle()

    @property
    def picture(self) -> str:
        """The rounds drawn over time, as SVG."""
        return self.pictures()["schedule.svg"]

    def to_json(self) -> JsonObject:
        return to_json(self.schedule)


@dataclass(frozen=True)
class ProofAnswer(Answer):
    """How it was proved that a schedule does its collective."""

    schema_name: ClassVar[str] = "schedule-verify"

    ok: bool
    schedule: str
    collective: str
    rounds: int
    moves: int
    method: str
    seconds: float


@dataclass(frozen=True)
class ScheduleCost(Answer):
    """Rounds, bytes a rank sends and bytes on each class of links, counted from the proved schedule."""

    schema_name: ClassVar[str] = "schedule-cost"

    schedule: str
    collective: str
    cluster: str
    ranks: int
    placement: str
    cost: Cost
    bound: BandwidthBound | None


@dataclass(frozen=True)
class WrittenSchedule(Answer):
    """A proved schedule in a file."""

    schema_name: ClassVar[str] = "schedule-export"

    name: str
    written: str
    moves: int
    method: str


@question("syncline schedule list", "syncline schedule list --json")
def families() -> FamilyList:
    """List the families, what each is and which collectives it does."""
    return FamilyList(tuple(FamilyRow(one.name, one.summary, tuple(one.kinds)) for one in FAMILIES.values()))


@question(
    "syncline schedule show ring --ranks 8",
    "syncline schedule show double-tree --ranks 16 --html tree.html",
    "syncline schedule show torus --shape 4x4 --svg torus.svg",
)
def show(what: ScheduleArgument, *, request: RequestArgument = None) -> ShownSchedule:
    """Print the rounds of a schedule as a table, with its cost, and draw them."""
    schedule, _ = (request or ScheduleRequest()).schedule(what)
    return ShownSchedule(schedule=schedule)


@question(
    "syncline schedule verify ring --ranks 4096 --json",
    "syncline schedule verify hierarchical --hosts 2048 --per-host 8",
    "syncline schedule verify allreduce.xml",
)
def verify(
    what: ScheduleArgument,
    *,
    request: RequestArgument = None,
    method: Annotated[str, Parameter("auto, flat or factored.", rare=True)] = "auto",
    seed: Annotated[int, Parameter("Seed of the random numbers.", rare=True)] = 1,
) -> ProofAnswer:
    """Prove that a schedule does its collective: every contribution exactly once, safely, without deadlock.

    A schedule that does not is an error that names rank, chunk and rounds.
    """
    began = time.perf_counter()
    schedule, _ = (request or ScheduleRequest()).schedule(what)
    proved = prove(schedule, method=method, seed=seed)
    return ProofAnswer(
        True,
        schedule.name,
        str(schedule.collective),
        schedule.num_rounds,
        proved.num_moves,
        proved.method,
        time.perf_counter() - began,
    )


@question(
    "syncline schedule cost ring --cluster h100-64-rail --size 1GiB --json",
    "syncline schedule cost ring --cluster h100-64-rail --placement spread",
    "syncline schedule cost torus --cluster tpu-v4-pod --placement grid",
)
def cost(
    what: ScheduleArgument,
    *,
    cluster: Annotated[Cluster, Parameter("A preset's name or a cluster file.", kind=str)] = "h100-64-rail",
    size: Annotated[str, Parameter("Size of the buffer.")] = "1GiB",
    placement: Annotated[str, Parameter("packed, spread (ignores hosts) or grid (torus).")] = "",
    request: RequestArgument = None,
) -> ScheduleCost:
    """Count rounds, bytes a rank sends and bytes on each class of links, from the proved schedule."""
    fabric, size_bytes = built(cluster), units.size(size)
    schedule, options = (request or ScheduleRequest()).schedule(what, fabric)
    how = placement or ("grid" if what == "torus" and fabric.facts.get("torus_shape") else "packed")
    counted = costs.cost(
        prove(schedule).schedule, fabric, size_bytes, ranks_on=place(how, fabric).device.astype(np.int64)
    )
    limit = bound(schedule, options.rates_Bps, options.speeds_Bps, size_bytes)
    return ScheduleCost(schedule.name, str(schedule.collective), fabric.name, schedule.num_ranks, how, counted, limit)


@question("syncline schedule convert ring.json ring.xml", "syncline schedule convert allreduce.xml ar.json")
def convert(
    source: Annotated[Path, Parameter("A .json or .xml (MSCCL) schedule.")],
    target: TargetArgument,
    *,
    protocol: ProtocolOption = "Simple",
) -> WrittenSchedule:
    """Read a schedule, prove it, and write it in another format."""
    return _proved_and_written(read(source), str(source), target, protocol)


@question("syncline schedule export ring ring.xml --ranks 8")
def export(
    what: ScheduleArgument,
    target: TargetArgument,
    *,
    request: RequestArgument = None,
    protocol: ProtocolOption = "Simple",
) -> WrittenSchedule:
    """Build a family's schedule, prove it, and write it to a file."""
    schedule, _ = (request or ScheduleRequest()).schedule(what)
    return _proved_and_written(schedule, schedule.name, target, protocol)


def _proved_and_written(schedule: Schedule, name: str, target: Path, protocol: str) -> WrittenSchedule:
    proved = prove(schedule)
    write(proved.schedule, target, protocol=protocol)
    return WrittenSchedule(name, str(target), proved.num_moves, proved.method)


COMMANDS = {
    "list": families,
    "show": show,
    "verify": verify,
    "cost": cost,
    "convert": convert,
    "export": export,
}
HELP = "Build, draw, prove and price collective schedules."
EXAMPLES = (
    "syncline schedule list",
    "syncline schedule show ring --ranks 8",
    "syncline schedule verify hierarchical --hosts 2048 --per-host 8 --json",
    "syncline schedule cost hierarchical --cluster h100-64-rail --size 1GiB",
    "syncline schedule convert ring.json ring.xml",
)
