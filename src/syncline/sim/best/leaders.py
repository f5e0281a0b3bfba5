"""The schedule of a solution: every unit of the buffer goes up the leaders of its cells, and down again.

Shares become whole units, all of one size. Owners come first; then, from the outside in, each cell hands the units that
it does not own to its ranks by their shares, ordered by rail, so that leaders of different hosts share a NIC's rail
wherever their shares allow it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.schedule.collective import OWNED, Collective, Kind
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.moves import MoveOp, Round, moves_round
from syncline.schedule.schedule import Schedule, Strand
from syncline.sim.best.cells import CellTree, Floats, Longs, rails_of
from syncline.sim.best.shares import TURNED, Solution

UNITS = 2048
"""Units of the buffer, at least: shares are rounded to one of them."""

Moved = tuple[Longs, Longs, Longs]
"""Sources, destinations and units."""


@dataclass(frozen=True, eq=False)
class _Shares:
    """The shares of every rank, of which a solution has one host of each kind."""

    rail: Longs
    lead: Floats
    top: Floats
    own: Floats
    out: Floats
    into: Floats


def leaders_schedule(tree: CellTree, solution: Solution, kind: Kind, root: int = 0) -> Schedule:
    """Return the schedule in which leaders have the shares of a solution."""
    n, shares = tree.num_ranks, _of_ranks(tree, solution)
    units = -(-UNITS // n) * n
    giver, owner, moves = _owners(tree, kind, shares, units, root)
    which = _which_tree(tree, solution, shares, owner)
    chain = _leaders(tree, solution, shares, owner, which)
    spread = [_without(stage, giver) for stage in _spread(tree, solution, chain, which)]
    ordered: list[tuple[Longs, Longs, Longs, int | Longs]]
    if kind is Kind.ALL_REDUCE:
        ordered = [(stage[1], stage[0], stage[2], MoveOp.REDUCE) for stage in reversed(spread)]
        ordered += [(*stage, MoveOp.COPY) for stage in spread]
    elif kind in TURNED:
        ordered = [(stage[1], stage[0], stage[2], MoveOp.REDUCE) for stage in reversed(spread)]
        for src, dst, unit in reversed(moves):  # who wants it never added its own part: that comes last
            last = src == giver[unit] if giver is not None else np.zeros(len(src), bool)
            ordered.append((dst, src, unit, np.where(last, MoveOp.REDUCE, MoveOp.COPY)))
    else:
        ordered = [(*stage, MoveOp.COPY) for stage in (*moves, *spread)]
    rounds = tuple(_round(*stage) for stage in ordered if len(stage[0]))
    goal = Collective(kind, n, root=root if kind in (Kind.BROADCAST, Kind.REDUCE) else 0)
    kernel = Kernel("leaders", goal, units, rounds)
    return Schedule("leaders by shares", goal, (Strand((whole(kernel),), units),), family="leaders")


def _of_ranks(tree: CellTree, solution: Solution) -> _Shares:
    rail = rails_of(tree)
    kind = tree.kind_of_host[tree.levels[1].of_rank]
    at = np.cumsum([0, *(len(members) for members in tree.members)])[kind] + rail
    parts = (solution.lead, solution.top, solution.own, solution.out, solution.into)
    return _Shares(rail, *(part[at] for part in parts))


def _dealt(amount: Floats, count: int) -> Longs:
    """Return who gets each of `count` units, in the order of `amount` and in proportion to it."""
    total = np.cumsum(np.maximum(amount, 0.0))
    if total[-1] <= 0:
        return np.arange(count) * len(amount) // max(1, count)
    return np.minimum(np.searchsorted(total / total[-1], (np.arange(count) + 0.5) / max(1, count)), len(amount) - 1)


def _owners(
    tree: CellTree, kind: Kind, shares: _Shares, units: int, root: int
) -> tuple[Longs | None, Longs, list[Moved]]:
    """Return who has each unit at the beginning (None: everyone a part of it), who owns it, and the moves to owners."""
    n = len(shares.rail)
    if kind is Kind.ALL_REDUCE:
        order = np.lexsort((np.arange(n), shares.rail))
        return None, order[_dealt(shares.own[order], units)], []
    giver = np.repeat(np.arange(n), units // n) if kind in OWNED else np.full(units, root)
    at, moves = giver.copy(), list[Moved]()
    for level in range(1, shares.out.shape[1] + 1):
        outer, before = tree.levels[level].of_rank, at.copy()
        for cell in range(tree.levels[level].num):
            mine = np.flatnonzero(outer == cell)
            mine = mine[np.lexsort((mine, shares.rail[mine]))]
            going = np.concatenate([np.flatnonzero(before == rank)[: round(float(shares.out[rank, level - 1]) * units)]
                                    for rank in mine.tolist()])  # fmt: skip
            at[going] = mine[_dealt(shares.into[mine, level - 1], len(going))]
        unit = np.flatnonzero(at != before)
        moves.append((before[unit], at[unit], unit))
    return giver, at, moves


def _which_tree(tree: CellTree, solution: Solution, shares: _Shares, owner: Longs) -> Longs:
    """Return the tree over sites that each unit takes, of those that begin at its owner's."""
    which = np.zeros(len(owner), np.int64)
    if not solution.trees:
        return which
    site = tree.levels[-2].of_rank
    roots = np.array([one.root for one in solution.trees])
    for rank in np.unique(owner).tolist():
        mine, known = np.flatnonzero(owner == rank), np.flatnonzero(roots == site[rank])
        which[mine] = known[_dealt(shares.top[rank, known], len(mine))]
    return which


def _leaders(tree: CellTree, solution: Solution, shares: _Shares, owner: Longs, which: Longs) -> list[Longs]:
    """Return, level by level from ranks on, the leader of every cell for every unit."""
    chain: list[Longs] = [owner[None, :]]
    for level in range(tree.depth - 1, 0, -1):
        cells, above = tree.levels[level], chain[0]
        parent = tree.levels[level + 1].of_rank
        found = np.empty((cells.num, len(owner)), np.int64)
        for cell in range(cells.num):
            mine = np.flatnonzero(cells.of_rank == cell)
            mine = mine[np.lexsort((mine, shares.rail[mine]))]
            lead = above[parent[mine[0]]]
            found[cell] = lead
            away = np.flatnonzero(cells.of_rank[lead] != cell)
            away = away[np.lexsort((away, shares.rail[lead[away]]))]
            if level == tree.depth - 1 and solution.trees:
                for number in range(len(solution.trees)):
                    some = away[which[away] == number]
                    found[cell, some] = mine[_dealt(shares.top[mine, number], len(some))]
            else:
                wider = shares.lead[mine, level] if level < shares.lead.shape[1] else 0.0
                found[cell, away] = mine[_dealt(shares.lead[mine, level - 1] - wider, len(away))]
        chain.insert(0, found)
    return [np.broadcast_to(np.arange(tree.num_ranks)[:, None], (tree.num_ranks, len(owner))), *chain]


def _spread(tree: CellTree, solution: Solution, chain: list[Longs], which: Longs) -> list[Moved]:
    """Return the moves from leaders to the leaders inside their cells, the outermost first."""
    found: list[Moved] = []
    units = np.arange(chain[0].shape[1])
    for level in range(tree.depth, 0, -1):
        inner, outer = tree.levels[level - 1], tree.levels[level]
        if level == tree.depth and solution.trees:
            found += _over_sites(solution, chain[level - 1], which)
            continue
        first = np.unique(inner.of_rank, return_index=True)[1]
        src = chain[level][outer.of_rank[first]]
        dst = chain[level - 1]
        apart = src != dst
        cell, unit = np.nonzero(apart)
        found.append((src[cell, unit], dst[cell, unit], units[unit]))
    return found


def _over_sites(solution: Solution, lead: Longs, which: Longs) -> list[Moved]:
    """Return the rounds of all trees, each ending with its deepest sites."""
    depth = max(len(one.rounds) for one in solution.trees)
    rounds: list[list[Moved]] = [[] for _ in range(depth)]
    for number, one in enumerate(solution.trees):
        mine = np.flatnonzero(which == number)
        for at, sites in enumerate(reversed(one.rounds)):
            for site in sites:
                rounds[at].append((lead[one.parent[site]][mine], lead[site][mine], mine))
    return [_joined(parts) for parts in rounds]


def _joined(parts: list[Moved]) -> Moved:
    src, dst, unit = (np.concatenate([part[k] for part in parts]) for k in range(3))
    return src, dst, unit


def _without(stage: Moved, giver: Longs | None) -> Moved:
    """Return the moves but those to who has had the unit from the beginning."""
    if giver is None:
        return stage
    src, dst, unit = stage
    keep = dst != giver[unit]
    return src[keep], dst[keep], unit[keep]


def _round(src: Longs, dst: Longs, unit: Longs, op: int | Longs) -> Round:
    """Return a round in which neighbouring units of a pair move together."""
    order = np.lexsort((unit, dst, src))
    src, dst, unit, ops = src[order], dst[order], unit[order], np.broadcast_to(op, len(src))[order]
    begins = np.flatnonzero(np.concatenate(([True], (np.diff(src) != 0) | (np.diff(dst) != 0) | (np.diff(unit) != 1))))
    count = np.diff(np.append(begins, len(src)))
    return moves_round(src[begins], dst[begins], unit[begins], ops[begins], count=count)
