"""The replay against a plain one: a dictionary of numbers and one move after the other."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from syncline.schedule import Collective, Kind, ring
from syncline.schedule.collective import ALL
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import Ints, MoveOp, Ops, Round, moves_round
from syncline.schedule.proof.field import Counts, Values
from syncline.schedule.proof.replay import (
    Weights,
    _aligned,
    _all_different,
    apply,
    expected,
    replay,
    rounds_within,
    starts,
    window,
)  # fmt: skip

Cells = dict[tuple[int, int], int]


@dataclass
class Plain:
    """Whole numbers, and a list of what was asked of them."""

    asked: list[str] = field(default_factory=list)

    def contributions(self, num_ranks: int) -> Values:
        return 1000 + np.arange(num_ranks, dtype=np.int64) ** 2

    def unknowns(self, num_vertices: int) -> Values:
        return 5_000_000 + 77 * np.arange(num_vertices, dtype=np.int64)

    def add(self, left: Values, right: Values) -> Values:
        self.asked.append("add")
        return np.asarray(left + right)

    def add_at(self, state: Values, at: Ints, values: Values) -> None:
        self.asked.append("add_at")
        np.add.at(state, at, values)

    def total(self, values: Values, axis: int) -> Values:
        return np.asarray(values.sum(axis=axis))


def moved(entry: Round, j: int) -> list[tuple[int, int, int, int]]:
    """Return (from, to, chunk, op) of repetition j, by the formula of `Round`."""
    found = []
    for i in range(len(entry.src)):
        src = entry.src_base + (int(entry.src[i]) - entry.src_base + j * entry.src_step) % entry.src_size
        dst = entry.dst_base + (int(entry.dst[i]) - entry.dst_base + j * entry.dst_step) % entry.dst_size
        for k in range(int(entry.count[i])):
            at = int(entry.chunk[i]) + j * entry.chunk_step + k
            if entry.wrap or 0 <= at < entry.window:
                found.append((src, dst, int(entry.block[i]) + at % entry.window, int(entry.op[i])))
    return found


def plainly(kernel: Kernel, weights: Weights) -> Cells | None:
    """Return what every (vertex, chunk) ends with, or nothing where two copies race."""
    givers, state = kernel.goal.givers(kernel.num_chunks).tolist(), {}
    for vertex in range(kernel.num_vertices):
        for chunk, giver in enumerate(givers):
            gives = giver in (ALL, vertex)
            held = (weights.given if gives else weights.unknown)[vertex] if vertex < kernel.num_ranks else 0
            state[vertex, chunk] = int(held)
    for entry in kernel.rounds:
        alone = [[j] for j in range(entry.repeat)]
        for together in [list(range(entry.repeat))] if entry.at_once else alone:
            arriving = [(d, c, op, state[s, c]) for j in together for s, d, c, op in moved(entry, j)]
            copied = [(d, c) for d, c, op, _ in arriving if op == MoveOp.COPY]
            if len(set(copied)) < len(copied):
                return None
            for d, c, op, value in sorted(arriving, key=lambda each: each[2]):  # copies land before sums
                state[d, c] = value if op == MoveOp.COPY else state[d, c] + value
    return state


def drawn(seed: int) -> Kernel:
    """Return a kernel of odd rounds: walking vertices, wrapping runs, pipelines, rings, sums that meet in one cell."""
    draw = random.Random(seed)
    n = draw.randint(2, 5)
    kind = draw.choice([Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.BROADCAST])
    chunks, helpers = n * draw.randint(1, 2), draw.randint(0, 2)
    rounds = [_ring_like(draw, n, chunks) if draw.random() < 0.5 else _odd(draw, n + helpers, chunks) for _ in range(3)]
    return Kernel("drawn", Collective(kind, n), chunks, tuple(rounds), helpers)


def _ring_like(draw: random.Random, n: int, chunks: int) -> Round:
    rank = np.arange(n)
    slope, first, op = draw.choice([-1, 1, 1]), draw.randint(0, 3), draw.choice([MoveOp.COPY, MoveOp.REDUCE])
    step, repeat = draw.choice([-1, 0, 1, 2]), draw.randint(0, n)
    return moves_round(rank, (rank + 1) % n, (slope * rank + first) % chunks, op, chunk_step=step, repeat=repeat)


def _odd(draw: random.Random, vertices: int, chunks: int) -> Round:
    rows = draw.randint(1, 4)
    src = [draw.randrange(vertices) for _ in range(rows)]
    dst = [(each + draw.randint(1, vertices - 1)) % vertices for each in src]
    ops = [draw.choice([MoveOp.COPY, MoveOp.REDUCE, MoveOp.REDUCE]) for _ in src]
    wrap, window_size, step = draw.random() < 0.6, draw.randint(1, chunks), draw.randint(-1, 1)
    return moves_round(
        src, dst, [draw.randint(-2, chunks) for _ in src], ops, wrap=wrap, window=window_size, src_step=step,
        dst_step=step, count=[draw.randint(0, window_size) for _ in src] if wrap else 1, repeat=draw.randint(0, 3),
        block=[draw.randint(0, chunks - window_size) for _ in src], at_once=draw.random() < 0.3,
        chunk_step=draw.randint(-1, 2),
    )  # fmt: skip


def test_every_cell_of_every_window_holds_what_plain_dictionaries_hold() -> None:
    compared = aligned = 0
    for seed in range(150):
        kernel, numbers = drawn(seed), Plain()
        weights = Weights.draw(numbers, kernel.num_ranks)
        if (due := plainly(kernel, weights)) is None:
            continue
        compared += 1
        aligned += any(_aligned(entry, window(kernel)) for entry in kernel.rounds if entry.num_rows)
        chunks = kernel.num_chunks
        for low, high in ((0, chunks), (0, 1), (1, chunks), (chunks // 2, chunks)):
            view = window(kernel, low, high)
            cells = [(v, c) for v in range(kernel.num_vertices) for c in range(low, high)]
            places = view.cells(*np.array(cells).reshape(-1, 2).T)
            assert sorted(places.tolist()) == list(range(view.size))
            state = replay(kernel, numbers, weights, view)
            assert state[places].tolist() == [due[cell] for cell in cells], (seed, low, high)
    assert compared > 80 and aligned > 10


def test_a_window_is_skewed_by_what_is_sent_first_only_when_it_is_whole() -> None:
    kernel = ring(4).strands[0].stages[0].kernel
    assert window(kernel).skew.tolist() == window(kernel, 0, 4).skew.tolist() == kernel.rounds[0].chunk.tolist()
    assert any(window(kernel).skew)
    for low, high in ((0, 3), (1, 4), (1, 2)):
        view = window(kernel, low, high)
        assert (view.low, view.high, view.size, view.skew.tolist()) == (low, high, 4 * (high - low), [0] * 4)
    assert window(replace(kernel, rounds=())).skew.tolist() == [0] * 4


def test_what_moves_in_step_is_played_a_row_at_a_time_and_nothing_else() -> None:
    kernel = ring(4).strands[0].stages[0].kernel
    scatter, gather = kernel.rounds
    view = window(kernel)
    # Rank r sends chunk r to r + 1, where the first row belongs to chunk r + 1: what arrives lies one row before it.
    assert _aligned(scatter, view) == (0, 3) and _aligned(gather, view) is not None
    assert _aligned(scatter, window(kernel, 0, 3)) is None and _aligned(scatter, window(kernel, 1, 4)) is None
    split = np.array([MoveOp.COPY, MoveOp.REDUCE, MoveOp.REDUCE, MoveOp.REDUCE], dtype=np.uint8)
    changes: list[dict[str, Any]] = [
        {"wrap": False}, {"at_once": True}, {"src_step": 1, "dst_step": 1}, {"op": split},
        {"count": np.array([1, 1, 1, 2])}, {"count": np.array([2, 2, 2, 2])}, {"dst": np.array([1, 2, 1, 0])},
        {"chunk": np.array([0, 0, 0, 0])}, {"window": 3},
    ]  # fmt: skip
    for change in changes:
        assert _aligned(replace(scatter, **change), view) is None, change
    two = moves_round([0, 1], [1, 0], [0, 0], MoveOp.COPY)  # what is read shares a row, what is written does not
    pair = Kernel("pair", Collective(Kind.ALL_REDUCE, 2), 2, (moves_round([0, 1], [1, 0], [0, 1], MoveOp.REDUCE), two))
    assert _aligned(pair.rounds[1], window(pair)) is None


def played(op: list[MoveOp], read: list[int], write: list[int]) -> tuple[list[int], list[str]]:
    numbers, state = Plain(), np.array([1, 10, 100, 1000])
    ops: Ops = np.array(op, dtype=np.uint8)
    apply(ops, np.array(read), np.array(write), state, numbers)
    return state.tolist(), numbers.asked


def test_one_round_by_hand() -> None:
    copy, add = MoveOp.COPY, MoveOp.REDUCE
    assert played([copy, copy], [0, 1], [1, 2]) == ([1, 1, 10, 1000], [])
    assert played([add, add], [0, 1], [1, 2]) == ([1, 11, 110, 1000], ["add"])
    assert played([add, add], [0, 1], [3, 3]) == ([1, 10, 100, 1011], ["add_at"])
    assert played([add, copy, add], [0, 1, 2], [3, 0, 1]) == ([10, 110, 100, 1001], ["add"])
    assert played([add, copy], [0, 1], [3, 3]) == ([1, 10, 100, 11], ["add"]), "a copy lands, then sums are added"


@pytest.mark.parametrize(("cells", "different"), [([], True), ([4], True), ([3, 1, 2], True), ([3, 1, 3], False)])
def test_all_different(cells: list[int], different: bool) -> None:
    assert _all_different(np.array(cells, dtype=np.int64)) is different


def test_moves_within_a_range_of_chunks() -> None:
    entry = Kernel(
        "k", Collective(Kind.ALL_REDUCE, 2), 4, (moves_round([0], [1], [3], MoveOp.COPY, count=2, repeat=2),)
    )
    found = [moves.chunk.tolist() for moves in rounds_within(entry.rounds[0], 0, 2)]
    assert found == [[0], [0]]
    once = replace(entry.rounds[0], at_once=True)
    assert [sorted(moves.chunk.tolist()) for moves in rounds_within(once, 0, 4)] == [[0, 0, 3, 3]]


def test_where_it_starts_and_what_must_come_out() -> None:
    numbers = Counts(2)
    weights = Weights.draw(numbers, 2)
    vertex, chunk = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    gather = Collective(Kind.ALL_GATHER, 2)  # chunk i is rank i's; vertex 2 is a helper
    due = [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert starts(gather, 2, weights, vertex, chunk).tolist() == due
    assert expected(gather, 2, numbers, weights, np.array([0, 1])).tolist() == [[1, 0, 0], [0, 1, 0]]
    reduce = Collective(Kind.ALL_REDUCE, 2)
    assert starts(reduce, 2, weights, vertex, chunk).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]] * 2
    assert expected(reduce, 2, numbers, weights, np.array([0, 1])).tolist() == [[1, 1, 0]] * 2
