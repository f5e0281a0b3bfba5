"""Who leads which share of the buffer: one linear program for every collective on every fabric.

A share of the buffer has a leader in each cell: a rank in its host, one of these in the rack, and so on; the leader of
the whole is its owner. It is summed up from leader to leader, and spread the same way back. With h[g, k] the share that
rank g leads at level k (of the cell at level k that it is in), so that h[g, k] <= h[g, k-1] and the shares of a cell
add up to one, rank g

    sends     h[g, k-1] - h[g, k]            sums, to the leader of level k, and
    receives  h[g, k] (D - 1)                sums of the other D - 1 cells that it is the leader of,

and the other way round when results are spread. A reduction and its result do both (all-reduce), a gather spreads only;
what owners do not have from the start (a broadcast's root has everything) is moved to them first, level by level. Loads
are linear in the shares, so the least time of c chunks that follow each other,

    sum of the stages of one chunk + (c - 1) of what the busiest link or sender needs for a chunk,

is a linear program. Better links make its answer better, never worse, and the order of a description does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from syncline.schedule.collective import Kind
from syncline.sim.best.cells import BestLevel, CellTree, Floats, Longs, rails_of
from syncline.sim.best.pipeline import CHUNKS
from syncline.sim.best.trees import SiteTree, site_trees, ways_from

TURNED = {Kind.REDUCE_SCATTER: Kind.ALL_GATHER, Kind.REDUCE: Kind.BROADCAST}
"""Collectives that are another one backwards."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The least time, its chunks, and the shares of the ranks of one host of each kind, one kind after the other.

    `lead[g, k]` is of level k + 1, `top[g, tree]` of the trees over sites, `own[g]` of the whole; `out` and `into` are
    what rank g moves on and gets at each level before anything is spread.
    """

    time_s: float
    chunks: int
    trees: tuple[SiteTree, ...]
    lead: Floats
    top: Floats
    own: Floats
    out: Floats
    into: Floats
    link: int
    busiest_s: float


class ShareSearch:
    """The linear programs of one collective on its cells, ready to be solved at any size."""

    def __init__(self, tree: CellTree, kind: Kind, root: int = 0) -> None:
        over_sites: list[list[SiteTree]] = [[]]
        if tree.lines is not None:
            straight, relayed = (site_trees(tree.lines, relay=relay) for relay in (False, True))
            same = {(one.root, one.parent) for one in straight} == {(one.root, one.parent) for one in relayed}
            over_sites = [trees for trees in ([straight] if same else [straight, relayed]) if trees]
        moving = sorted({kind in (Kind.BROADCAST, Kind.REDUCE), kind is not Kind.ALL_REDUCE})
        self.programs = [_Shares(tree, TURNED.get(kind, kind), kind in TURNED, root, trees, moves)
                         for trees in over_sites for moves in moving]  # fmt: skip

    def at(self, size_bytes: float) -> Solution | None:
        """Return the best shares for a buffer, or None where failed links part the ranks."""
        found = [_least(program, size_bytes) for program in self.programs]
        return min((one for one in found if one is not None), key=lambda one: one.time_s, default=None)


def _least(program: _Shares, size_bytes: float) -> Solution | None:
    """Return the best over the numbers of chunks: the time falls with more of them, then rises."""
    at = len(CHUNKS) // 2
    best = program.solved(size_bytes, CHUNKS[at])
    if best is None:
        return None
    for way in (1, -1):
        while 0 <= at + way < len(CHUNKS):
            other = program.solved(size_bytes, CHUNKS[at + way])
            if other is None or other.time_s >= best.time_s:
                break
            at, best = at + way, other
    return best


class _Stage(NamedTuple):
    """One stage: seconds a byte of every link, exit and line, its latency, and the time to post its messages."""

    load: Floats
    latency_s: float
    posting_s: float


class _Shares:
    """The linear program: variables are numbered, and each stage is a load of every link, exit and line."""

    def __init__(self, tree: CellTree, kind: Kind, turned: bool, root: int, trees: list[SiteTree], moves: bool) -> None:
        self.tree, self.kind, self.trees = tree, kind, trees
        self.insides = [inside.turned if turned else inside for inside in tree.insides]
        self.ranks = np.concatenate(tree.members)  # one rank a variable: those of the hosts that stand for their kind
        self.kind_of = np.repeat(np.arange(len(tree.members)), [len(members) for members in tree.members])
        self.site = tree.levels[-2].of_rank[self.ranks] if trees else np.zeros(len(self.ranks), np.int64)
        self.stands_for = np.bincount(tree.kind_of_host, minlength=len(tree.members))[self.kind_of].astype(np.float64)
        self.plain = tree.depth - (1 if trees else 0)  # levels with one leader; between sites trees decide
        self.start = (np.full(len(self.ranks), 1.0 / tree.num_ranks) if kind is Kind.ALL_GATHER
                      else (self.ranks == root).astype(np.float64))  # fmt: skip
        self.rails = rails_of(tree)[self.ranks]
        self.num, g = 0, len(self.ranks)
        self.h = [self._new(g) for _ in range(self.plain)]
        self.z = [self._new(g) for _ in trees]
        self.out = [self._new(g) for _ in range(tree.depth)] if moves else []
        self.into = [self._new(g) for _ in range(tree.depth)] if moves else []
        self.between = self._new(tree.levels[-2].num ** 2) if moves and trees else np.zeros(0, np.int64)
        num_rails = int(self.rails.max()) + 1 if tree.depth > 1 else 0
        self.on_rail = [self._new(num_rails) for _ in range(1 + len(trees))]
        self.width = [tree.children(k)[tree.levels[k].of_rank[self.ranks]] for k in range(1, tree.depth + 1)]
        self.cells = [self._compositions(level) for level in tree.levels[1:]]
        self.stages = [*self._moves(), *self._exchanges()]

    def _new(self, count: int) -> Longs:
        self.num += count
        return np.arange(self.num - count, self.num)

    def _compositions(self, level: BestLevel) -> tuple[Floats, Floats, Longs]:
        """Return how many hosts of each kind each kind of cell has, what leaves it, and one of the links that do."""
        hosts = self.tree.levels[1]
        first = np.unique(hosts.of_rank, return_index=True)[1]
        table = np.zeros((level.num, len(self.tree.members)))
        np.add.at(table, (level.of_rank[first], self.tree.kind_of_host), 1.0)
        both, at = np.unique(np.column_stack((table, level.exit_Bps)), axis=0, return_index=True)
        return both[:, :-1], both[:, -1], level.exit_link[at]

    def _pick(self, columns: Longs, value: Floats | None = None) -> Floats:
        """Return one variable for every rank, times a value."""
        found = np.zeros((len(self.ranks), self.num))
        found[np.arange(len(self.ranks)), columns] = 1.0 if value is None else value
        return found

    def _moves(self) -> list[_Stage]:
        found = []
        for k in range(1, len(self.out) + 1):
            sent, got = self._pick(self.out[k - 1]), self._pick(self.into[k - 1])
            load = (
                self._load(k, sent, got, self._moved_over_lines(k))
                if k > 1
                else self._load_inside(
                    [(inside.moved_out, sent) for inside in self.insides],
                    [(inside.moved_in, got) for inside in self.insides],
                )
            )
            found.append(_Stage(load, self.tree.levels[k].latency_s, self._posting(k)))
        return found

    def _exchanges(self) -> list[_Stage]:
        found = []
        for spread in (False, True) if self.kind is Kind.ALL_REDUCE else (True,):
            for k in range(1, self.tree.depth + 1):
                latency = self.tree.levels[k].latency_s
                if k == 1:
                    led = self._pick(self.h[0]) if self.plain else _sum([self._pick(z) for z in self.z])
                    load = self._load_inside([(i.spread if spread else i.gathered, led) for i in self.insides])
                elif k == self.tree.depth and self.trees:
                    few = _sum([self._pick(z, (self.site != tree.root) * 1.0) for tree, z in self._of_trees()])
                    many = _sum(
                        [self._pick(z, tree.children[self.site].astype(np.float64)) for tree, z in self._of_trees()]
                    )
                    load = self._load(k, *((many, few) if spread else (few, many)), self._over_lines(spread))
                    latency = max(tree.latency_s for tree in self.trees)
                else:
                    few = self._pick(self.h[k - 2]) - self._pick(self.h[k - 1])
                    many = self._pick(self.h[k - 1], (self.width[k - 1] - 1).astype(np.float64))
                    load = self._load(k, *((many, few) if spread else (few, many)))
                found.append(_Stage(load, latency, self._posting(k)))
        return found

    def _of_trees(self) -> list[tuple[SiteTree, Longs]]:
        return list(zip(self.trees, self.z, strict=True))

    def _posting(self, level: int) -> float:
        """Return how long the leader of the most cells posts its messages; those inside a host cost nothing."""
        most = int(self.width[level - 1].max()) - 1
        return self.tree.overhead_s * most if level > 1 else 0.0

    def _load_inside(self, *uses: list[tuple[Floats, Floats]]) -> Floats:
        """Return a stage that stays inside hosts; the exits and lines are idle."""
        rows = [_sum([parts[kind][0] @ parts[kind][1][self.kind_of == kind] for parts in uses])
                for kind in range(len(self.insides))]  # fmt: skip
        idle = 2 * sum(len(exits) for _, exits, _ in self.cells[:-1]) + self._num_lines
        return np.vstack([*rows, np.zeros((idle, self.num))])

    def _load(self, level: int, sent: Floats, got: Floats, lines: Floats | None = None) -> Floats:
        """Return a stage between cells of a level: links of hosts, what leaves and enters cells, and lines."""
        rows = []
        for kind, inside in enumerate(self.insides):
            mine = self.kind_of == kind
            rows.append(inside.out @ sent[mine] + inside.into @ got[mine])
        for at, (counts, exits, _) in enumerate(self.cells[:-1], start=1):
            each = (counts / exits[:, None])[:, self.kind_of] * float(at < level)
            rows += [each @ sent, each @ got]
        rows.append(np.zeros((self._num_lines, self.num)) if lines is None else lines)
        return np.vstack(rows)

    @property
    def _num_lines(self) -> int:
        return len(self.tree.lines.a) if self.tree.lines is not None else 0

    def _over_lines(self, spread: bool) -> Floats:
        """Return the lines' loads: a share of the buffer crosses those of its tree."""
        assert self.tree.lines is not None
        table = np.zeros((self._num_lines, self.num))
        for tree, z in self._of_trees():
            root = self.site == tree.root
            crossed = (tree.down if spread else tree.up) / self.tree.lines.rate_Bps
            table[:, z[root]] += np.outer(crossed, self.stands_for[root])
        return table

    def _moved_over_lines(self, level: int) -> Floats | None:
        lines = self.tree.lines
        if level < self.tree.depth or not self.trees or lines is None:
            return None
        table = np.zeros((self._num_lines, self.num))
        for goal in range(len(lines.site)):
            for site, way in ways_from(lines, goal).items():
                for cell in np.flatnonzero(lines.site == site).tolist():
                    table[way, self.between[cell * len(lines.site) + goal]] += 1.0 / lines.rate_Bps[way]
        return table

    def _equations(self) -> tuple[Floats, Floats]:
        """Return what must hold: a cell's shares add up to one, moves keep what there is, owners end with theirs."""
        rows: list[tuple[Floats, Floats | float]] = []
        kinds = [np.unique(counts, axis=0)[:, self.kind_of] for counts, _, _ in self.cells]
        rows += [(kinds[k] @ self._pick(self.h[k]), 1.0) for k in range(self.plain)]
        member = np.zeros((self.tree.levels[-2].num if self.trees else 1, len(self.ranks)))
        member[self.site, np.arange(len(self.ranks))] = self.stands_for
        sites = member
        rows += self._aligned(kinds, sites)
        if self.trees:
            weights = [sites @ self._pick(z) for z in self.z]
            # Every site has a leader for every share of a tree, and all trees together are the buffer.
            rows += [(one[1:] - one[[0] * (one.shape[0] - 1)], 0.0) for one in weights]
            rows.append((_sum([one[:1] for one in weights]), 1.0))
            if self.plain:
                rows.append((_sum([self._pick(z) for z in self.z]) - self._pick(self.h[-1]), 0.0))
        if self.kind is not Kind.ALL_REDUCE:
            moved = np.zeros((len(self.ranks), self.num))
            for k, (into, out) in enumerate(zip(self.into, self.out, strict=True)):
                change = self._pick(into) - self._pick(out)
                moved = moved + change
                if k == self.tree.depth - 1 and self.trees:
                    rows += [(part, 0.0) for part in self._between_sites(sites)]
                else:
                    rows.append((kinds[k] @ change, 0.0))
            rows.append((self._owned() - moved, self.start))
        right = [np.broadcast_to(np.asarray(value, np.float64), part.shape[0]) for part, value in rows]
        return np.vstack([part for part, _ in rows]), np.concatenate(right)

    def _aligned(self, kinds: list[Floats], sites: Floats) -> list[tuple[Floats, float]]:
        """Return that a rail carries the same share in all cells: what changed rails would take other ports."""
        found: list[tuple[Floats, float]] = []
        for rail in range(len(self.on_rail[0])):
            mine = (self.rails == rail).astype(np.float64)
            found += [(kinds[k] @ (self._pick(self.into[k], mine) - self._pick(self.out[k], mine)), 0.0)
                      for k in range(1, len(self.out)) if not (k == self.tree.depth - 1 and self.trees)]  # fmt: skip
            led = [(kinds[k] @ self._pick(self.h[k], mine), self.on_rail[0][rail]) for k in range(self.plain)]
            led += [(sites @ self._pick(z, mine), self.on_rail[1 + t][rail]) for t, z in enumerate(self.z)]
            for rows, total in led:
                rows[:, total] -= 1.0
                found.append((rows, 0.0))
        return found

    def _owned(self) -> Floats:
        """Return the share that each rank owns: of the whole, or of the trees that begin at its site."""
        if not self.trees:
            return self._pick(self.h[-1])
        return _sum([self._pick(z, (self.site == tree.root) * 1.0) for tree, z in self._of_trees()])

    def _between_sites(self, sites: Floats) -> list[Floats]:
        """Return that what ranks of a site move out of it, or get, is what it moves to and from the others."""
        a, b = np.divmod(np.arange(len(self.between)), sites.shape[0])
        found = []
        for ends, columns in ((a, self.out[-1]), (b, self.into[-1])):
            rows = sites @ self._pick(columns)
            rows[ends[a != b], self.between[a != b]] -= 1.0
            found.append(rows)
        return found

    def _limits(self) -> list[tuple[Floats, Floats | float]]:
        """Return rows with what they may be at most: a leader of the wider cell leads the narrower one, too."""
        found: list[tuple[Floats, Floats | float]] = []
        found += [(self._pick(self.h[k]) - self._pick(self.h[k - 1]), 0.0) for k in range(1, self.plain)]
        before = np.zeros((len(self.ranks), self.num))
        for into, out in zip(self.into, self.out, strict=True):  # what is moved on at a level was there before
            found.append((self._pick(out) - before, self.start))
            before = before + self._pick(into) - self._pick(out)
        return found

    @cached_property
    def _fixed(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """What does not depend on the size: loads with a mark for their stage, limits and equations."""
        last, rows, at_most = len(self.stages), [], []
        loads = [*(stage.load for stage in self.stages), _sum([stage.load for stage in self.stages])]
        marked = []
        for at, load in enumerate(loads):
            kept = np.unique(load[(load > 0).any(axis=1)].round(22), axis=0)
            mark = np.zeros((len(kept), last + 1))
            mark[:, at] = -1.0
            marked.append(np.hstack([kept, mark]))
        for limits, most in self._limits():
            rows.append(np.hstack([limits, np.zeros((len(limits), last + 1))]))
            at_most.append(np.broadcast_to(np.asarray(most, np.float64), len(limits)))
        equal, wanted = self._equations()
        empty = np.zeros((0, self.num + last + 1))
        return (np.vstack(marked), np.vstack([empty, *rows]), np.concatenate([np.zeros(0), *at_most]),
                np.hstack([equal, np.zeros((len(equal), last + 1))]), wanted)  # fmt: skip

    def solved(self, size_bytes: float, chunks: int) -> Solution | None:
        """Return the least time with so many chunks."""
        loads, limits, at_most, equal, wanted = self._fixed
        last = len(self.stages)
        unit = max(size_bytes / chunks * float(loads.max()), 1e-9)  # times are in units of what one load may take
        scaled = loads.copy()
        scaled[:, : self.num] *= size_bytes / chunks / unit
        # A stage takes its latency and its load; so the loads that are marked for it are less than its time by that.
        latency = np.array([*(stage.latency_s for stage in self.stages), 0.0]) / unit
        right = np.concatenate((loads[:, self.num :] @ latency, at_most))
        # A rank that moves data on to owners is none, so that of these only the longest counts.
        posts = [stage.posting_s for stage in self.stages]
        moving = len(self.out) if self.kind is Kind.BROADCAST else 0
        least = [max(stage.latency_s, stage.posting_s) / unit for stage in self.stages]
        least.append(max(sum(posts[:moving]), sum(posts[moving:])) / unit)
        answer = linprog(
            np.concatenate((np.zeros(self.num), np.ones(last), [chunks - 1.0])),
            A_ub=np.vstack((scaled, limits)), b_ub=right, A_eq=equal, b_eq=wanted,
            bounds=[(0.0, 1.0)] * self.num + [(value, None) for value in least], method="highs",
        )  # fmt: skip
        if not answer.success or answer.x is None or answer.fun is None:
            return None
        return self._read(np.asarray(answer.x), float(answer.fun) * unit, chunks, size_bytes)

    def _read(self, x: Floats, time_s: float, chunks: int, size_bytes: float) -> Solution:
        lead, top, out, into = (np.stack([x[each] for each in columns], axis=1) if columns
                                else np.zeros((len(self.ranks), 0))
                                for columns in (self.h, self.z, self.out, self.into))  # fmt: skip
        own = np.asarray(self._owned() @ x[: self.num]).ravel()
        need = _sum([stage.load for stage in self.stages]) @ x[: self.num]
        lines = [self.tree.lines.link] if self.tree.lines is not None else []
        exits = [links for _, _, links in self.cells[:-1] for _ in range(2)]
        links = np.concatenate([*(inside.link for inside in self.insides), *exits, *lines])
        busiest = int(need.argmax())
        return Solution(time_s, chunks, tuple(self.trees), lead, top, own, out, into, int(links[busiest]),
                        float(need[busiest]) * size_bytes)  # fmt: skip


def _sum(parts: list[Floats]) -> Floats:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
