"""Every family by name, with one set of options for all: what the command line and the planner choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import prod

from syncline.errors import ScheduleError
from syncline.schedule.collective import ROOTED, Kind, check_ranks
from syncline.schedule.family import all_rails, hierarchical, in_network, parameter_server, torus
from syncline.schedule.family.direct import direct
from syncline.schedule.family.kernels import LEVELS, kernel
from syncline.schedule.family.ring import ring
from syncline.schedule.family.tree import double_tree
from syncline.schedule.family.weighted import balanced, weighted
from syncline.schedule.kernel import whole
from syncline.schedule.schedule import Schedule, alike


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
    """One family: what it is, which collectives it does and how it is made."""

    name: str
    summary: str
    kinds: tuple[Kind, ...]
    build: Callable[[Options, Kind], Schedule]
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
                raise ScheduleError(
                    f'"{name}" changes nothing in {self.name} for {kind}.',
                    hint=f"It takes {', '.join(o.removesuffix('_Bps') for o in others)}.",
                )

    def kind(self, options: Options) -> Kind:
        """Return the collective asked for, or the family's first."""
        kind = options.kind or self.kinds[0]
        if kind not in self.kinds:
            raise ScheduleError(f"{self.name} does not do {kind}.", hint=f"It does {', '.join(self.kinds)}.")
        return kind


def most_even_grid(o: Options) -> tuple[int, ...]:
    """Return the grid asked for, or the most even one."""
    if o.shape:
        return o.shape
    check_ranks(o.num_ranks)
    side = next(k for k in range(int(o.num_ranks**0.5), 0, -1) if o.num_ranks % k == 0)
    return (o.num_ranks // side, side)


def _of_one_kernel(name: str) -> Callable[[Options, Kind], Schedule]:
    def build(o: Options, kind: Kind) -> Schedule:
        work = kernel(name, kind, o.num_ranks, root=o.root, chunks=o.chunks)
        return Schedule(name, work.goal, alike((whole(work),), work.num_chunks, o.channels), family=name)

    return build


def _direct(at_once: bool) -> Callable[[Options, Kind], Schedule]:
    return lambda o, kind: direct(
        o.num_ranks,
        kind,
        at_once=at_once,
        channels=o.channels,
        root=o.root,
        peer=o.peer if kind is Kind.SEND_RECV else -1,
        sizes=o.sizes,
    )


def _ring(o: Options, kind: Kind) -> Schedule:
    return ring(o.num_ranks, kind, root=o.root, channels=o.channels, directions=o.directions, chunks=o.chunks)


def _levels(o: Options, kind: Kind) -> Schedule:
    return hierarchical.hierarchical(
        most_even_grid(o), kind, families=o.levels, root=o.root, channels=o.channels, chunks=o.chunks
    )


def _dragonfly(o: Options, kind: Kind) -> Schedule:
    """Exchange inside the group, then directly between all pairs of groups, then inside again.

    Cost law (g groups of m ranks, n = gm): 4 rounds; every rank sends 2(n-1)/n of the buffer and only 2(g-1)/n of it
    leaves the group. Every local and every global link is used equally, and no group is passed through.
    """
    groups, *inside = most_even_grid(o)
    shape = (groups, prod(inside))
    made = hierarchical.hierarchical(shape, kind, families=("direct", "direct"), channels=o.channels)
    return replace(made, name=f"dragonfly {shape[0]} groups of {shape[1]}", family="dragonfly")


def _balanced(o: Options, kind: Kind) -> Schedule:
    check_ranks(o.num_ranks)
    speeds = o.speeds_Bps or (1.0,) * o.num_ranks
    if len(speeds) != o.num_ranks:
        raise ScheduleError(f"{o.num_ranks} ranks need as many speeds, not {len(speeds)}.")
    return balanced(speeds, channels=o.channels)


_AR = (Kind.ALL_REDUCE,)
_BUILD = {"ring": _ring, "direct": _direct(True), "pairwise": _direct(False)}
_OF_ONE_KERNEL = [
    Family(name, level.summary, level.kinds, _BUILD.get(name) or _of_one_kernel(name), level.takes)
    for name, level in LEVELS.items()
]
_FAMILIES = (
    *_OF_ONE_KERNEL[:2],  # ring and tree
    Family("double-tree", "two trees, each inner rank a leaf of the other", _AR,
           lambda o, k: double_tree(o.num_ranks, channels=o.channels, chunks=o.chunks), ("chunks",)),
    *_OF_ONE_KERNEL[2:],
    Family("all-rails", "broadcast and reduce in levels, each rank carrying a share across", all_rails.KINDS,
           lambda o, k: all_rails.all_rails(most_even_grid(o), k, families=o.levels, root=o.root, channels=o.channels),
           ("root", "levels")),
    Family("hierarchical", "inside hosts first, then across (two or three levels, any family each)",
           hierarchical.KINDS, _levels, ("root", "levels", "chunks")),
    Family("torus", "rings along all dimensions and directions at once", torus.KINDS,
           lambda o, k: torus.torus(most_even_grid(o), k, channels=o.channels)),
    Family("dragonfly", "direct inside groups and between all pairs of groups", torus.KINDS, _dragonfly),
    Family("parameter-server", "push to servers, pull the sum", _AR,
           lambda o, k: parameter_server.parameter_server(o.num_ranks, servers=o.servers, colocated=o.colocated,
                                                          channels=o.channels), ("servers", "colocated")),
    Family("in-network", "switches add up on the way", _AR,
           lambda o, k: in_network.in_network(o.num_ranks, radix=o.radix, channels=o.channels, chunks=o.chunks),
           ("radix", "chunks")),
    Family("balanced", "ranks of different speed own shares to match", _AR, _balanced, ("speeds_Bps",)),
)  # fmt: skip
FAMILIES: dict[str, Family] = {family.name: family for family in _FAMILIES}


def build(family: str, num_ranks: int, **options: object) -> Schedule:
    """Return a schedule by the name of its family: `build("ring", 8, channels=2)`."""
    return find(family).make(replace(Options(num_ranks), **options))  # type: ignore[arg-type]


def find(family: str) -> Family:
    """Return a family by name."""
    if family not in FAMILIES:
        raise ScheduleError(f'no family of schedules is called "{family}".', hint=f"One of: {', '.join(FAMILIES)}.")
    return FAMILIES[family]
