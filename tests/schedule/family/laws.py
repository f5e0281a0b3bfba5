"""What each family promises to cost, by formula; tests compare it with what is counted from its schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from syncline.schedule.collective import Kind
from syncline.schedule.counts import CountedCost
from syncline.schedule.family.families import Options, most_even_grid
from syncline.schedule.family.halving_doubling import core_size
from syncline.schedule.family.hierarchical import everywhere, scatters
from syncline.schedule.family.tree import DEFAULT_CHUNKS


@dataclass(frozen=True)
class CostLaw:
    """Rounds and shares sent; with `at_most` the first share is an upper bound."""

    rounds: int
    sent_max: Fraction
    sent_total: Fraction
    at_most: bool = False

    def allows(self, counted: CountedCost) -> bool:
        """Say whether a counted cost is what this law says."""
        fits = counted.sent_max <= self.sent_max if self.at_most else counted.sent_max == self.sent_max
        return fits and (counted.rounds, counted.sent_total) == (self.rounds, self.sent_total)


def law_of(family: str, options: Options, kind: Kind) -> CostLaw | None:
    """Return the law of a family, where it has a closed form."""
    shape = most_even_grid(options)
    n, chunks = options.num_ranks, options.chunks
    if family == "hierarchical":
        return hierarchical_law(shape, kind, families=options.levels, chunks=chunks)
    if family == "torus":
        return torus_law(shape, kind)
    if family == "dragonfly":
        return dragonfly_law(shape[0], prod(shape[1:]), kind)
    if family == "in-network":
        return in_network_law(n, kind, radix=options.radix, chunks=chunks)
    if family == "parameter-server":
        return parameter_server_law(n, kind, servers=options.servers, colocated=options.colocated)
    return LAWS[family](n, kind, chunks=chunks) if family in LAWS else None


def bruck_law(num_ranks: int, kind: Kind = Kind.ALL_GATHER, **_: object) -> CostLaw:
    """Return what `bruck` promises."""
    n = num_ranks
    phases = 2 if kind is Kind.ALL_REDUCE else 1
    blocks = phases * (n - 1)
    if kind is Kind.ALL_TO_ALL:
        blocks = sum(distance.bit_count() for distance in range(n))
    return CostLaw(phases * (n - 1).bit_length(), Fraction(blocks, n), Fraction(blocks))


def direct_law(num_ranks: int, kind: Kind = Kind.ALL_TO_ALL, *, at_once: bool = True, **_: object) -> CostLaw:
    """Return what `direct` promises for even sizes."""
    n = num_ranks
    if n == 1:
        return CostLaw(0, Fraction(0), Fraction(0))
    if kind is Kind.SEND_RECV:
        return CostLaw(1, Fraction(1), Fraction(1))
    rounds = (1 if at_once else n - 1) * (2 if kind is Kind.ALL_REDUCE else 1)
    part = Fraction(n - 1, n)
    most, total = {
        Kind.ALL_REDUCE: (2 * part, Fraction(2 * (n - 1))),
        Kind.BROADCAST: (Fraction(n - 1), Fraction(n - 1)),
        Kind.REDUCE: (Fraction(1), Fraction(n - 1)),
        Kind.SCATTER: (part, part),
        Kind.GATHER: (Fraction(1, n), part),
    }.get(kind, (part, Fraction(n - 1)))
    return CostLaw(rounds, most, total)


def pairwise_law(num_ranks: int, kind: Kind = Kind.ALL_TO_ALL, **_: object) -> CostLaw:
    """Return what `direct` promises with `at_once` off."""
    return direct_law(num_ranks, kind, at_once=False)


def dragonfly_law(groups: int, per_group: int, kind: Kind = Kind.ALL_REDUCE, **_: object) -> CostLaw:
    """Return what `dragonfly` promises."""
    n, phases = groups * per_group, 2 if kind is Kind.ALL_REDUCE else 1
    rounds = phases * ((groups > 1) + (per_group > 1))
    return CostLaw(rounds, Fraction(phases * (n - 1), n), Fraction(phases * (n - 1)))


def recursive_doubling_law(num_ranks: int, kind: Kind = Kind.ALL_REDUCE, **_: object) -> CostLaw:
    """Return what `recursive_doubling` promises."""
    if kind is not Kind.ALL_REDUCE:
        return halving_doubling_law(num_ranks, kind)
    core = core_size(num_ranks)
    extra, levels = num_ranks - core, core.bit_length() - 1
    most = max(Fraction(levels + (1 if extra else 0)), Fraction(1 if extra else 0))
    return CostLaw(levels + (2 if extra else 0), most, Fraction(core * levels + 2 * extra))


def halving_doubling_law(num_ranks: int, kind: Kind = Kind.ALL_REDUCE, **_: object) -> CostLaw:
    """Return what `halving_doubling` promises."""
    n, core = num_ranks, core_size(num_ranks)
    extra, levels = n - core, core.bit_length() - 1
    if kind is Kind.ALL_REDUCE:
        fold = 1 if extra else 0
        return CostLaw(
            2 * levels + 2 * fold, Fraction(2 * (core - 1), core) + fold, Fraction(2 * (core - 1) + 2 * extra)
        )
    inside = sum(core * bit + _extra_blocks(core, extra, bit) for bit in (1 << k for k in range(core.bit_length() - 1)))
    if kind is Kind.REDUCE_SCATTER:
        total = Fraction(inside, n) + extra + Fraction(extra, n)
        return CostLaw(levels + (2 if extra else 0), Fraction(1), total, at_most=True)
    total = Fraction(inside, n) + Fraction(extra, n) + extra
    most = Fraction(2 * (core - 1), n) + 1 if extra else Fraction(n - 1, n)
    return CostLaw(levels + (2 if extra else 0), most, total, at_most=True)


def _extra_blocks(core: int, extra: int, bit: int) -> int:
    """Count the blocks of ranks outside the core that all ranks send at distance `bit`."""
    return sum(bit * min(max(extra - low, 0), bit) for low in range(0, core, bit))


def hierarchical_law(
    shape: Sequence[int],
    kind: Kind = Kind.ALL_REDUCE,
    *,
    families: Sequence[str] = (),
    chunks: int = 0,
    root: int = 0,
    **_: object,
) -> CostLaw:
    """Return what `hierarchical` promises: the laws of its levels, each on the part of the buffer that reaches it."""
    names = tuple(families) or ("direct" if kind is Kind.ALL_TO_ALL else "ring",) * len(shape)
    rounds, most, total = 0, Fraction(0), Fraction(0)
    for axis, phase, share, groups in _phases(shape, kind, names):
        part = LAWS[names[axis]](shape[axis], phase, chunks=chunks)
        rounds += part.rounds
        most += part.sent_max * share
        total += part.sent_total * share * groups
    return CostLaw(rounds, most, total, at_most=True)


def _phases(shape: Sequence[int], kind: Kind, names: Sequence[str]) -> list[tuple[int, Kind, Fraction, int]]:
    """Return (axis, collective, share of the buffer each group works on, groups) of every stage."""
    n, axes = prod(shape), range(len(shape))
    outer = [prod(shape[:axis]) for axis in axes]
    inner = [prod(shape[axis + 1 :]) for axis in axes]
    if kind in (Kind.BROADCAST, Kind.REDUCE):
        return [(axis, kind, Fraction(1), outer[axis]) for axis in axes]
    if kind is Kind.ALL_TO_ALL:
        return [(axis, kind, Fraction(1), n // shape[axis]) for axis in axes]
    if kind is not Kind.ALL_REDUCE:
        return [(axis, kind, Fraction(1, inner[axis]), n // shape[axis]) for axis in axes]
    if everywhere(names):
        return [(axis, kind, Fraction(1), n // shape[axis]) for axis in axes]
    top = (0, kind, Fraction(1, inner[0]), inner[0]) if scatters(names) else (0, kind, Fraction(1), 1)
    pair = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER) if scatters(names) else (Kind.REDUCE, Kind.BROADCAST)
    whole = scatters(names)
    return [top] + [
        (axis, phase, Fraction(1, inner[axis]) if whole else Fraction(1), n // shape[axis] if whole else outer[axis])
        for phase in pair
        for axis in axes[1:]
    ]


def in_network_law(
    num_ranks: int, kind: Kind = Kind.ALL_REDUCE, *, radix: int = 32, chunks: int = 0, **_: object
) -> CostLaw:
    """Return what `in_network` promises: every link of the tree carries the buffer once each way."""
    levels, width, links = 0, num_ranks, 0
    while width > 1 or levels == 0:
        links, width, levels = links + width, -(-width // radix), levels + 1
    return CostLaw((chunks or DEFAULT_CHUNKS) + 2 * levels - 1, Fraction(1), Fraction(2 * links))


def one_shot_law(num_ranks: int, kind: Kind = Kind.ALL_REDUCE, **_: object) -> CostLaw:
    """Return what `one_shot` promises."""
    n = num_ranks
    return CostLaw(min(1, n - 1), Fraction(n - 1), Fraction(n * (n - 1)))


def parameter_server_law(
    num_ranks: int, kind: Kind = Kind.ALL_REDUCE, *, servers: int = 1, colocated: bool = False, **_: object
) -> CostLaw:
    """Return what `parameter_server` promises; a colocated server sends all others their part of the sum."""
    n, part = num_ranks, Fraction(1, servers)
    if not colocated:
        return CostLaw(2, Fraction(1), Fraction(2 * n))
    own = (1 - part) + (n - 1) * part
    return CostLaw(2, own if servers == n else max(own, Fraction(1)), Fraction(2 * (n - 1)))


def ring_law(num_ranks: int, kind: Kind = Kind.ALL_REDUCE, *, chunks: int = 0, **_: object) -> CostLaw:
    """Return what `ring` promises, whatever its channels and directions."""
    n = num_ranks
    if kind in (Kind.BROADCAST, Kind.REDUCE):
        pipe = (chunks or DEFAULT_CHUNKS) + n - 2 if n > 1 else 0
        return CostLaw(pipe, Fraction(min(n - 1, 1)), Fraction(n - 1))
    phases = 2 if kind is Kind.ALL_REDUCE else 1
    return CostLaw(phases * (n - 1), Fraction(phases * (n - 1), n), Fraction(phases * (n - 1)))


def scatter_allgather_law(num_ranks: int, kind: Kind = Kind.BROADCAST, **_: object) -> CostLaw:
    """Return what `scatter_allgather` promises."""
    n = num_ranks
    return CostLaw(min(2, n - 1), Fraction(min(1, n - 1)), Fraction(n - 1))


def torus_law(shape: Sequence[int], kind: Kind = Kind.ALL_REDUCE, **_: object) -> CostLaw:
    """Return what `torus` promises, in one direction or in all."""
    n, phases = prod(shape), 2 if kind is Kind.ALL_REDUCE else 1
    rounds = phases * sum(size - 1 for size in shape)
    return CostLaw(rounds, Fraction(phases * (n - 1), n), Fraction(phases * (n - 1)))


def tree_law(num_ranks: int, kind: Kind = Kind.ALL_REDUCE, *, chunks: int = 0, **_: object) -> CostLaw:
    """Return what `tree` promises."""
    n, pipe, depth = num_ranks, (chunks or DEFAULT_CHUNKS) - 1, num_ranks.bit_length() - 1
    if n == 1:
        return CostLaw(0, Fraction(0), Fraction(0))
    if kind is Kind.ALL_REDUCE:
        most = {2: 1, 3: 2, 4: 2}.get(n, 3)
        return CostLaw(pipe + 2 * depth, Fraction(most), Fraction(2 * (n - 1)))
    return CostLaw(pipe + depth, Fraction(1 if kind is Kind.REDUCE else min(n - 1, 2)), Fraction(n - 1))


def double_tree_law(num_ranks: int, kind: Kind = Kind.ALL_REDUCE, *, chunks: int = 0, **_: object) -> CostLaw:
    """Return what `double_tree` promises."""
    if num_ranks == 1:
        return CostLaw(0, Fraction(0), Fraction(0))
    rounds = (chunks or DEFAULT_CHUNKS) + 2 * (num_ranks - 1).bit_length() - 1
    return CostLaw(rounds, Fraction(2), Fraction(2 * (num_ranks - 1)), at_most=True)


LAWS: dict[str, Callable[..., CostLaw]] = {
    "ring": ring_law, "tree": tree_law, "double-tree": double_tree_law, "recursive-doubling": recursive_doubling_law,
    "halving-doubling": halving_doubling_law, "bruck": bruck_law, "direct": direct_law, "pairwise": pairwise_law,
    "one-shot": one_shot_law, "scatter-allgather": scatter_allgather_law,
}  # fmt: skip
