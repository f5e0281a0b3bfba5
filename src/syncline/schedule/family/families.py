"""Every family by name, with one set of options for all: what the command line and the planner choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import prod

from syncline.errors import ScheduleError
from syncline.schedule.collective import ROOTED, Kind, check_ranks
from syncline.schedule.family.all_rails import KINDS as ALL_RAILS
from syncline.schedule.family.all_rails import all_rails
from syncline.schedule.family.bruck import KINDS as BRUCK
from syncline.schedule.family.bruck import bruck, bruck_law
from syncline.schedule.family.direct import direct, direct_law
from syncline.schedule.family.dragonfly import dragonfly, dragonfly_law
from syncline.schedule.family.halving_doubling import (
    DOUBLING_KINDS,
    HALVING_KINDS,
    halving_doubling,
    halving_doubling_law,
    recursive_doubling,
    recursive_doubling_law,
)
from syncline.schedule.family.hierarchical import KINDS as LEVELLED
from syncline.schedule.family.hierarchical import hierarchical, hierarchical_law
from syncline.schedule.family.in_network import in_network, in_network_law
from syncline.schedule.family.one_shot import one_shot, one_shot_law
from syncline.schedule.family.parameter_server import parameter_server, parameter_server_law
from syncline.schedule.family.ring import KINDS as RING
from syncline.schedule.family.ring import ring, ring_law
from syncline.schedule.family.scatter_allgather import KINDS as SCATTER_ALLGATHER
from syncline.schedule.family.scatter_allgather import scatter_allgather, scatter_allgather_law
from syncline.schedule.family.torus import KINDS as TORUS
from syncline.schedule.family.torus import torus, torus_law
from syncline.schedule.family.tree import KINDS as TREE
from syncline.schedule.family.tree import double_tree, double_tree_law, tree, tree_law
from syncline.schedule.family.weighted import balanced, weighted
from syncline.schedule.law import CostLaw
from syncline.schedule.schedule import Schedule


@dataclass(frozen=True)
class Options:
    """What a family can be asked for; each uses what it understands."""

    num_ranks: int
    kind: Kind | None = None
    root: int = 0
    peer: int = -1
    channels: int = 1
    directions: int = 1
    chunks: int = 0
    shape: tuple[int, ...] = ()
    levels: tuple[str, ...] = ()
    servers: int = 1
    colocated: bool = False
    radix: int = 32
    rates_Bps: tuple[float, ...] = ()
    speeds_Bps: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.chunks < 0:
            raise ScheduleError(f"a pipeline has at least one chunk, not {self.chunks}.",
                                hint="0 leaves the number to the family.")  # fmt: skip


@dataclass(frozen=True)
class Family:
    """One family: what it is, which collectives it does, how it is made and what it says it costs."""

    name: str
    summary: str
    kinds: tuple[Kind, ...]
    build: Callable[[Options, Kind], Schedule]
    law: Callable[[Options, Kind], CostLaw] | None
    takes: tuple[str, ...] = ()
    """Which options change it, besides ranks, collective, shape, channels and rates, which all take."""

    def make(self, options: Options) -> Schedule:
        """Return this family's schedule; `rates_Bps` stripes it over rails of those rates."""
        kind = self.kind(options)
        if options.shape and prod(options.shape) != options.num_ranks:
            raise ScheduleError(f"shape {'x'.join(map(str, options.shape))} has {prod(options.shape)} ranks, "
                                f"not {options.num_ranks}.")  # fmt: skip
        if options.rates_Bps:
            return weighted(lambda: self.build(options, kind), options.rates_Bps)
        return self.build(options, kind)

    def refuse_unused(self, options: Options) -> None:
        """Raise if an option was given that would change nothing: whoever gives one expects that it does."""
        kind = self.kind(options)
        takes = set(self.takes) | {"num_ranks", "kind", "shape", "channels", "rates_Bps"}
        takes -= {"root"} if kind not in ROOTED else set()
        takes -= {"peer"} if kind is not Kind.SEND_RECV else set()
        takes -= {"chunks"} if self.name == "ring" and kind not in ROOTED else set()
        for field in fields(options):
            if field.name not in takes and getattr(options, field.name) != field.default:
                name = field.name.removesuffix("_Bps")
                others = sorted(takes - {"num_ranks", "kind"})
                raise ScheduleError(f'"{name}" changes nothing in {self.name} for {kind}.',
                                    hint=f"It takes {', '.join(o.removesuffix('_Bps') for o in others)}.")  # fmt: skip

    def cost_law(self, options: Options) -> CostLaw | None:
        """Return what the family promises, where it has a closed form."""
        return self.law(options, self.kind(options)) if self.law else None

    def kind(self, options: Options) -> Kind:
        """Return the collective asked for, or the family's first."""
        kind = options.kind or self.kinds[0]
        if kind not in self.kinds:
            raise ScheduleError(f"{self.name} does not do {kind}.", hint=f"It does {', '.join(self.kinds)}.")
        return kind


def _ring(o: Options, kind: Kind) -> Schedule:
    return ring(o.num_ranks, kind, root=o.root, channels=o.channels, directions=o.directions, chunks=o.chunks)


def _direct(o: Options, kind: Kind, at_once: bool) -> Schedule:
    return direct(o.num_ranks, kind, at_once=at_once, channels=o.channels, root=o.root,
                  peer=o.peer if kind is Kind.SEND_RECV else -1, sizes=o.sizes)  # fmt: skip


def _shape(o: Options) -> tuple[int, ...]:
    """Return the grid asked for, or the most even one."""
    if o.shape:
        return o.shape
    check_ranks(o.num_ranks)
    side = next(k for k in range(int(o.num_ranks**0.5), 0, -1) if o.num_ranks % k == 0)
    return (o.num_ranks // side, side)


def _levels(o: Options, kind: Kind) -> Schedule:
    return hierarchical(_shape(o), kind, families=o.levels, root=o.root, channels=o.channels, chunks=o.chunks)


def _groups(o: Options) -> tuple[int, int]:
    shape = _shape(o)
    return shape[0], prod(shape[1:])


def _balanced(o: Options, kind: Kind) -> Schedule:
    check_ranks(o.num_ranks)
    speeds = o.speeds_Bps or (1.0,) * o.num_ranks
    if len(speeds) != o.num_ranks:
        raise ScheduleError(f"{o.num_ranks} ranks need as many speeds, not {len(speeds)}.")
    return balanced(speeds, channels=o.channels)


_AR = (Kind.ALL_REDUCE,)
_PAIRS = (Kind.ALL_TO_ALL, *(kind for kind in Kind if kind is not Kind.ALL_TO_ALL))

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("ring", "every rank sends to the next; fewest bytes", RING, _ring,
               lambda o, k: ring_law(o.num_ranks, k, chunks=o.chunks), ("root", "directions", "chunks")),
        Family("tree", "one binary tree, pipelined; few rounds", TREE,
               lambda o, k: tree(o.num_ranks, k, root=o.root, channels=o.channels, chunks=o.chunks),
               lambda o, k: tree_law(o.num_ranks, k, chunks=o.chunks), ("root", "chunks")),
        Family("double-tree", "two trees, each inner rank a leaf of the other", _AR,
               lambda o, k: double_tree(o.num_ranks, k, channels=o.channels, chunks=o.chunks),
               lambda o, k: double_tree_law(o.num_ranks, k, chunks=o.chunks), ("chunks",)),
        Family("recursive-doubling", "whole buffer to partners 1, 2, 4 ... away; fewest rounds", DOUBLING_KINDS,
               lambda o, k: recursive_doubling(o.num_ranks, k, channels=o.channels),
               lambda o, k: recursive_doubling_law(o.num_ranks, k)),
        Family("halving-doubling", "halves, then doubles: few rounds and few bytes", HALVING_KINDS,
               lambda o, k: halving_doubling(o.num_ranks, k, channels=o.channels),
               lambda o, k: halving_doubling_law(o.num_ranks, k)),
        Family("bruck", "logarithmic all-gather and all-to-all for any rank count", BRUCK,
               lambda o, k: bruck(o.num_ranks, k, channels=o.channels), lambda o, k: bruck_law(o.num_ranks, k)),
        Family("direct", "everyone to everyone in one round", _PAIRS, lambda o, k: _direct(o, k, True),
               lambda o, k: direct_law(o.num_ranks, k), ("root", "peer", "sizes")),
        Family("pairwise", "everyone to everyone, one partner a round", _PAIRS, lambda o, k: _direct(o, k, False),
               lambda o, k: direct_law(o.num_ranks, k, at_once=False), ("root", "peer", "sizes")),
        Family("one-shot", "everyone sends everything to everyone: one round, for small messages", _AR,
               lambda o, k: one_shot(o.num_ranks, k, channels=o.channels), lambda o, k: one_shot_law(o.num_ranks, k)),
        Family("scatter-allgather", "the root gives each its part, all hand theirs on: two rounds", SCATTER_ALLGATHER,
               lambda o, k: scatter_allgather(o.num_ranks, k, root=o.root, channels=o.channels),
               lambda o, k: scatter_allgather_law(o.num_ranks, k), ("root",)),
        Family("all-rails", "broadcast and reduce in levels, each rank carrying a share across", ALL_RAILS,
               lambda o, k: all_rails(_shape(o), k, families=o.levels, root=o.root, channels=o.channels), None,
               ("root", "levels")),
        Family("hierarchical", "inside hosts first, then across (two or three levels, any family each)", LEVELLED,
               _levels, lambda o, k: hierarchical_law(_shape(o), k, families=o.levels, chunks=o.chunks),
               ("root", "levels", "chunks")),
        Family("torus", "rings along all dimensions and directions at once", TORUS,
               lambda o, k: torus(_shape(o), k, channels=o.channels), lambda o, k: torus_law(_shape(o), k)),
        Family("dragonfly", "direct inside groups and between all pairs of groups", TORUS,
               lambda o, k: dragonfly(*_groups(o), k, channels=o.channels),
               lambda o, k: dragonfly_law(*_groups(o), k)),
        Family("parameter-server", "push to servers, pull the sum", _AR,
               lambda o, k: parameter_server(o.num_ranks, k, servers=o.servers, colocated=o.colocated,
                                             channels=o.channels),
               lambda o, k: parameter_server_law(o.num_ranks, k, servers=o.servers, colocated=o.colocated),
               ("servers", "colocated")),
        Family("in-network", "switches add up on the way", _AR,
               lambda o, k: in_network(o.num_ranks, k, radix=o.radix, channels=o.channels, chunks=o.chunks),
               lambda o, k: in_network_law(o.num_ranks, k, radix=o.radix, chunks=o.chunks), ("radix", "chunks")),
        Family("balanced", "ranks of different speed own shares to match", _AR, _balanced, None, ("speeds_Bps",)),
    )
}  # fmt: skip


def build(family: str, num_ranks: int, **options: object) -> Schedule:
    """Return a schedule by the name of its family: `build("ring", 8, channels=2)`."""
    return find(family).make(replace(Options(num_ranks), **options))  # type: ignore[arg-type]


def find(family: str) -> Family:
    """Return a family by name."""
    if family not in FAMILIES:
        raise ScheduleError(f'no family of schedules is called "{family}".', hint=f"One of: {', '.join(FAMILIES)}.")
    return FAMILIES[family]
