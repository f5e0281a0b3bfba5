"""Equal shares, level by level: what every level exchanges with, and which levels are taken together.

Where cells hold equally many others, equal shares are a solution of the linear program (`shares.py`), and the best one
if nothing tells ranks apart. They leave a choice that shares do not know: at each level all may exchange at once
(`direct`: one round, many messages), halve and double (few messages, more rounds), or hand everybody everything in one
round (`one-shot`, `recursive-doubling`: for small buffers); and levels may be skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import prod

import numpy as np

from syncline.schedule.collective import OWNED, PAIRED, Kind
from syncline.schedule.family.all_rails import all_rails
from syncline.schedule.family.families import build
from syncline.schedule.family.hierarchical import hierarchical
from syncline.schedule.schedule import Schedule, reordered
from syncline.sim.best.cells import CellTree, Floats
from syncline.sim.best.pipeline import PipelineCosts
from syncline.sim.best.trees import ways_from

MOST_MESSAGES = 4096
"""Messages of one rank in one round, at most."""

_HALVES = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
_ROOTED = (Kind.BROADCAST, Kind.REDUCE)


@dataclass(frozen=True)
class LevelExchange:
    """One stage as a rank takes part in it: between levels, bytes a rank sends of a byte, rounds, messages."""

    inner: int
    outer: int
    sent: float
    rounds: int
    messages: int


@dataclass(frozen=True, eq=False)
class LevelPlan:
    """Levels from the outside in, how many cells each joins, and what they exchange with."""

    kind: Kind
    bounds: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]
    families: tuple[str, ...]

    @property
    def name(self) -> str:
        """How it is called: the levels from the outside in, and what each exchanges with."""
        words = self.families[:1] if len(set(self.families)) == 1 else self.families
        return f"{'x'.join(map(str, self.shape))} {'/'.join(words)}"

    def roles(self) -> Iterator[list[LevelExchange]]:
        """Yield what ranks take part in, one list for every part they may have."""
        inside_out = list(zip(self.bounds, self.shape, self.families, strict=True))[::-1]
        if self.kind in _ROOTED:
            yield from self._rooted(inside_out)
            return
        share, found = 1.0, []
        for (inner, outer), size, family in inside_out:
            log = (size - 1).bit_length()
            ways = 2 if self.kind is Kind.ALL_REDUCE else 1
            if self.kind in PAIRED:
                found.append(LevelExchange(inner, outer, (size - 1) / size, 1, size - 1))
            elif family == "one-shot":
                found.append(LevelExchange(inner, outer, share * (size - 1), 1, size - 1))
            elif family == "recursive-doubling":
                found.append(LevelExchange(inner, outer, share * log, log, log))
            else:
                rounds, messages = (1, size - 1) if family == "direct" else (log, log)
                found += [LevelExchange(inner, outer, share * (size - 1) / size, rounds, messages)] * ways
                share /= size
        yield found

    def _rooted(self, inside_out: list[tuple[tuple[int, int], int, str]]) -> Iterator[list[LevelExchange]]:
        """Yield the part of the root's cell at each level, and of the cells that it serves."""
        share, root, gathers = 1.0, list[LevelExchange](), list[LevelExchange]()
        for (inner, outer), size, family in inside_out:
            depth = size.bit_length() - 1
            if family == "tree":
                sends, gets = (
                    LevelExchange(inner, outer, 2 * share, depth, 2),
                    LevelExchange(inner, outer, 2 * share, depth, 2),
                )
            elif family == "direct":
                sends = LevelExchange(inner, outer, share * (size - 1), 1, size - 1)
                gets = LevelExchange(inner, outer, 0.0, 1, 0)
            else:
                sends = LevelExchange(inner, outer, share, 1 if size == 2 else 2, size - 1)
                gets = LevelExchange(inner, outer, share * (size - 2) / (size - 1), 1 if size == 2 else 2, size - 2)
            yield [*root, sends]
            yield [gets, *gathers]
            root.append(sends)
            gathers = [LevelExchange(inner, outer, share * (size - 1) / size, 1, size - 1), *gathers]
            share /= size

    @property
    def chain(self) -> list[LevelExchange]:
        """The exchanges that a chunk goes through, one after the other."""
        if self.kind not in _ROOTED:
            return next(self.roles())
        roles = list(self.roles())
        return [*roles[-2], *roles[-1][1:]]

    def schedule(self, tree: CellTree, root: int) -> Schedule:
        """Return the schedule."""
        n = tree.num_ranks
        if len(self.shape) == 1:
            return build(self.families[0], n, kind=self.kind, root=root, chunks=1)
        place = int(np.flatnonzero(tree.order == root)[0])
        if self.kind in _ROOTED:
            made = all_rails(self.shape, self.kind, families=self.families, root=place)
        else:
            made = hierarchical(self.shape, self.kind, families=self.families, chunks=1)
        plain = bool((np.diff(tree.order) > 0).all())
        return made if plain else reordered(made, tree.order, root=root if self.kind in _ROOTED else 0)


def plans(tree: CellTree, kind: Kind) -> Iterator[LevelPlan]:
    """Yield the plans for cells that are equally large."""
    shape = tree.shape
    if shape is None or kind is Kind.SEND_RECV:
        return
    plain = bool((np.diff(tree.order) > 0).all())
    for kept in _subsets(len(shape)):
        cuts = [0, *kept, len(shape)]
        # From the outside in: level `depth - cut` is where a group of levels ends.
        bounds = tuple((len(shape) - b, len(shape) - a) for a, b in pairwise(cuts))
        sizes = tuple(prod(shape[a:b]) for a, b in pairwise(cuts))
        if len(sizes) > 1 and not plain and kind in OWNED | PAIRED:
            continue
        if 1 in sizes:
            continue
        for families in _families(kind, sizes):
            yield LevelPlan(kind, bounds, sizes, families)


def _subsets(levels: int) -> Iterator[tuple[int, ...]]:
    for count in range(levels):
        yield from combinations(range(1, levels), count)


def _families(kind: Kind, sizes: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Yield one family a level, of those that go together."""
    few = [size - 1 <= MOST_MESSAGES for size in sizes]
    power = [size & (size - 1) == 0 for size in sizes]
    if kind in PAIRED:
        if all(few) and len(sizes) > 1:
            yield ("direct",) * len(sizes)
        return
    if kind in _ROOTED:
        yield from product(*[[*(["scatter-allgather", "direct"] if ok else []), "tree"] for ok in few])
        return
    scattering = [[*(["direct"] if ok else []), *(["halving-doubling"] if even else [])]
                  for ok, even in zip(few, power, strict=True)]  # fmt: skip
    yield from product(*scattering)
    if kind is Kind.ALL_REDUCE:
        shots = ["one-shot"] if few[0] else []
        tops = [*shots, *(["recursive-doubling"] if power[0] else [])]
        if all(few[1:]):
            yield from ((top, *("one-shot",) * (len(sizes) - 1)) for top in tops)
        yield from ((top, *inner) for top in tops for inner in product(*scattering[1:]) if len(sizes) > 1)


@dataclass(frozen=True, eq=False)
class EqualLoads:
    """Seconds a byte that every link, exit and line needs when all ranks send alike, by the level of their exchange."""

    tree: CellTree
    inside_s: tuple[Floats, ...]  # of what a rank sends to the others of its host, link by link, for each kind of host
    outside_s: tuple[Floats, ...]
    members: tuple[int, ...]  # ranks of a cell, by level
    exit_s: tuple[float, ...]
    line_s: tuple[float, int]

    @classmethod
    def of(cls, tree: CellTree) -> EqualLoads:
        inside = tuple(one.spread.sum(axis=1) / max(1, one.spread.shape[1] - 1) for one in tree.insides)
        outside = tuple(one.out.sum(axis=1) + one.into.sum(axis=1) for one in tree.insides)
        members = tuple(tree.num_ranks // level.num for level in tree.levels)
        return cls(tree, inside, outside, members, tuple(1.0 / float(level.exit_Bps.min()) for level in tree.levels),
                   _line_s(tree))  # fmt: skip

    def loads(self, exchanges: Sequence[LevelExchange]) -> float:
        """Return what the busiest of them needs for a byte of the buffer."""
        return self.busiest(exchanges)[0]

    def busiest(self, exchanges: Sequence[LevelExchange]) -> tuple[float, int]:
        """Return what the busiest of them needs for a byte of the buffer, and its link."""
        far = sum(one.sent * self._part_leaving(one, 1) for one in exchanges)
        near = sum(one.sent for one in exchanges) - far
        most = (0.0, -1)
        for number, (inside, outside) in enumerate(zip(self.inside_s, self.outside_s, strict=True)):
            need = near * inside + far * outside
            if len(need):
                most = max(most, (float(need.max()), int(self.tree.insides[number].link[need.argmax()])))
        for level in range(1, len(self.members) - 1):
            leaving = sum(one.sent * self._part_leaving(one, level) for one in exchanges)
            cells = self.tree.levels[level]
            link = int(cells.exit_link[cells.exit_Bps.argmin()])
            most = max(most, (leaving * self.members[level] * self.exit_s[level], link))
        top = len(self.members) - 1
        if self.tree.lines is not None:
            crossing = sum(one.sent * self._part_leaving(one, top - 1) for one in exchanges)
            need_s, line = self.line_s
            most = max(most, (crossing * self.members[top - 1] * need_s, line))
        return most

    def _part_leaving(self, one: LevelExchange, level: int) -> float:
        """Return the part of an exchange that leaves the cells of a level, where all pairs exchange alike."""
        if level <= one.inner:
            return 1.0
        if level >= one.outer:
            return 0.0
        joined, here = (
            self.members[one.outer] // self.members[one.inner],
            self.members[level] // self.members[one.inner],
        )
        return (joined - here) / (joined - 1)


def _line_s(tree: CellTree) -> tuple[float, int]:
    """Return what the busiest line needs of a byte that each site sends to the others in equal parts, and its link."""
    lines = tree.lines
    if lines is None:
        return 0.0, -1
    crossed = np.zeros(len(lines.a))
    for goal in range(len(lines.site)):
        ways = ways_from(lines, goal)
        for site in lines.site.tolist():
            crossed[ways.get(site, [])] += 1.0 / (len(lines.site) - 1)
    need = crossed / lines.rate_Bps
    return float(need.max()), int(lines.link[need.argmax()])


def straight(tree: CellTree, kind: Kind, size_bytes: float) -> PipelineCosts:
    """Return the costs of one message for every pair: an all-to-all, or every rank to the next."""
    n = tree.num_ranks
    most, link = 0.0, -1
    for inside, members in zip(tree.insides, tree.members, strict=True):
        p = len(members)
        if kind is Kind.SEND_RECV:  # the last rank of a host sends out, and the first receives
            near = inside.moved_out.max(axis=1, initial=0.0) + inside.moved_in.max(axis=1, initial=0.0)
            rows = np.maximum(near, np.maximum(inside.out, inside.into).max(axis=1, initial=0.0))
        else:
            rows = inside.spread.sum(axis=1) / n + (inside.out + inside.into).sum(axis=1) * (n - p) / n
        if len(rows):
            most, link = max((most, link), (float(rows.max()), int(inside.link[rows.argmax()])))
    for level in tree.levels[1:-1]:
        held = np.bincount(level.of_rank).astype(np.float64)
        each = np.ones(level.num) if kind is Kind.SEND_RECV else held * (n - held) / n
        need = each / level.exit_Bps
        most, link = max((most, link), (float(need.max()), int(level.exit_link[need.argmax()])))
    if tree.lines is not None:
        most, link = max((most, link), _pairs_over_lines(tree, kind))
    hosts = np.bincount(tree.levels[1].of_rank)
    messages = n - int(hosts.min()) if kind is not Kind.SEND_RECV and tree.depth > 1 else 0
    posting = tree.overhead_s * messages
    latency = max(level.latency_s for level in tree.levels)
    return PipelineCosts(((latency, size_bytes * most, posting),), size_bytes * most, posting, link)


def _pairs_over_lines(tree: CellTree, kind: Kind) -> tuple[float, int]:
    """Return what the busiest line needs where all pairs of ranks exchange, or each sends to the next."""
    lines = tree.lines
    assert lines is not None
    members = np.bincount(tree.levels[-2].of_rank).astype(np.float64)
    crossed = np.zeros(len(lines.a))
    for goal in range(len(lines.site)):
        ways = ways_from(lines, goal)
        for cell, site in enumerate(lines.site.tolist()):
            amount = members[cell] * members[goal] / tree.num_ranks
            if kind is Kind.SEND_RECV:
                amount = float((cell + 1) % len(lines.site) == goal)
            crossed[ways.get(site, [])] += amount
    need = crossed / lines.rate_Bps
    return float(need.max()), int(lines.link[need.argmax()])


def costs(plan: LevelPlan, loads: EqualLoads, size_bytes: float) -> PipelineCosts:
    """Return the costs of a plan for a buffer."""
    tree, roles = loads.tree, list(plan.roles())
    stages = []
    for one in plan.chain:
        latency = max(tree.levels[level].latency_s for level in range(one.inner + 1, one.outer + 1))
        posting = tree.overhead_s * one.messages if one.outer > 1 else 0.0
        stages.append((latency * one.rounds, size_bytes * loads.loads([one]), posting))
    posted = max(sum(one.messages for one in role if one.outer > 1) for role in roles)
    need_s, link = max(loads.busiest(role) for role in roles)
    return PipelineCosts(tuple(stages), size_bytes * need_s, tree.overhead_s * posted, link)
