"""Prove that a schedule does its collective: every taker ends with each giver's data exactly once, and nothing else.

The proof is by counting, not by presence: data that arrives twice in a sum is as wrong as data that never comes.
Every rank's contribution is a number, every cell that nobody gave holds unknown data with a number of its own, and the
moves are replayed on the numbers. Small schedules are counted exactly; large ones use random numbers modulo a 62-bit
prime, which a wrong schedule passes with a probability below 2^-62 (docs/method/schedules.md). Factored schedules are
proved part by part (`compose`). Buffer safety is proved beside it; a schedule in rounds cannot deadlock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from syncline.errors import NotProvedError, ScheduleError
from syncline.schedule.collective import ALL, PAIRED, Collective, Ints
from syncline.schedule.kernel import Kernel
from syncline.schedule.proof.compose import compose
from syncline.schedule.proof.explain import explain
from syncline.schedule.proof.field import Counts, Numbers, Residues
from syncline.schedule.proof.flatten import flatten
from syncline.schedule.proof.replay import Weights, expected, replay, window
from syncline.schedule.proof.rotation import holds, representatives
from syncline.schedule.proof.safety import check_safety
from syncline.schedule.proof.sparse import replay_cells
from syncline.schedule.schedule import Schedule, Strand

EXACT_CELLS = 1 << 21
"""Counts kept at once by an exact proof; larger kernels are proved with random numbers."""

STATE_CELLS = 1 << 25
"""Cells replayed at once: 256 MiB of numbers."""

FLAT_MOVES = 1 << 16
"""Schedules of several stages with fewer moves than this are proved flat, which is exact and complete."""

ROUND_MOVES = 1 << 21
"""Single moves of one round expanded at once."""

METHODS = ("auto", "flat", "factored")


@dataclass(frozen=True, eq=False)
class Proved:
    """A schedule that was proved, and how."""

    schedule: Schedule
    method: str
    seed: int
    seconds: float

    @property
    def num_moves(self) -> int:
        return self.schedule.num_moves


def verify(schedule: Schedule, *, method: str = "auto", seed: int = 1) -> Proved:
    """Return the proof of a schedule, or raise `NotProvedError` naming rank, chunk and rounds.

    `method` is "factored" (each kernel once, then the stages), "flat" (every single move) or "auto".
    """
    if method not in METHODS:
        raise ScheduleError(f'no method of proof is called "{method}".', hint=f"One of: {', '.join(METHODS)}.")
    start = time.process_time()
    known: dict[tuple[int, Collective], str] = {}
    used = {_prove_strand(schedule, strand, method, seed, known) for strand in schedule.strands}
    return Proved(schedule, " and ".join(sorted(used)), seed, time.process_time() - start)


def _prove_strand(schedule: Schedule, strand: Strand, method: str, seed: int, known: dict[Any, str]) -> str:
    goal = schedule.collective.even()
    if method != "flat":
        strand = strand.whole()  # pieces share no cell and all do the same rounds in the same order
    single = len(strand.stages) == 1 and strand.stages[0].is_whole
    if single and method != "flat":
        kernel = strand.stages[0].kernel
        if kernel.goal.even() != goal:
            kernel = replace(kernel, goal=goal)
        return _prove_once(kernel, seed, known)
    if method == "flat" or (method == "auto" and strand.num_moves <= FLAT_MOVES):
        return prove_kernel(flatten(schedule, strand), seed)
    methods = {_prove_once(stage.kernel, seed, known) for stage in strand.stages}
    compose(schedule, strand, Residues(seed))
    return f"composed of {' and '.join(sorted(methods))}"


def _prove_once(kernel: Kernel, seed: int, known: dict[Any, str]) -> str:
    key = (tuple(id(entry) for entry in kernel.rounds), kernel.goal, kernel.num_chunks)
    if key not in known:
        known[key] = prove_kernel(kernel, seed)
    return known[key]


def prove_kernel(kernel: Kernel, seed: int = 1) -> str:
    """Return how a kernel was proved for its own goal, from any unknown starting data, or raise."""
    look_at = representatives(kernel)
    check_safety(kernel, look_at)
    size = kernel.num_chunks * kernel.num_vertices
    if size * (kernel.num_ranks + 1) <= EXACT_CELLS:
        _check_all(kernel, Counts(kernel.num_ranks), kernel.num_chunks)
        return "exact counts"
    numbers = Residues(seed)
    if look_at == 1:
        wrong = holds(kernel, numbers)
        if wrong is not None:
            _refuse(kernel, wrong, 0)
        return "random numbers, one chunk for all by symmetry"
    if size > STATE_CELLS and kernel.goal.kind in PAIRED:
        _check_all_sparse(kernel, numbers, look_at)
        rotates = ", one rank for all by symmetry" if look_at < kernel.num_chunks else ""
        return "random numbers, touched cells" + rotates
    _check_all(kernel, numbers, _slice_width(kernel))
    return "random numbers"


def _slice_width(kernel: Kernel) -> int:
    busiest = max((int(e.count.sum()) * (e.repeat if e.at_once else 1) for e in kernel.rounds), default=1)
    width = min(STATE_CELLS // kernel.num_vertices, max(1, kernel.num_chunks * ROUND_MOVES // max(1, busiest)))
    return max(1, min(width, kernel.num_chunks))


def _check_all(kernel: Kernel, numbers: Numbers, width: int) -> None:
    weights = Weights.draw(numbers, kernel.num_ranks)
    for low in range(0, kernel.num_chunks, width):
        view = window(kernel, low, min(low + width, kernel.num_chunks))
        state = replay(kernel, numbers, weights, view)
        chunk = np.arange(view.low, view.high)
        want = expected(kernel.goal, kernel.num_chunks, numbers, weights, chunk)
        taker = kernel.goal.takers(kernel.num_chunks, chunk)
        if taker[0] != ALL:
            bad = np.flatnonzero(_differs(state[view.cells(taker, chunk)], want))
            if len(bad):
                _refuse(kernel, int(taker[bad[0]]), int(chunk[bad[0]]))
            continue
        for rank in range(kernel.num_ranks) if state.ndim > 1 else ():
            bad = np.flatnonzero(_differs(state[view.cells(np.full_like(chunk, rank), chunk)], want))
            if len(bad):
                _refuse(kernel, rank, int(chunk[bad[0]]))
        if state.ndim == 1:
            _compare_rows(kernel, state.reshape(-1, view.num_vertices), want, view.skew, low)


def _compare_rows(kernel: Kernel, rows: Any, want: Any, skew: Ints, low: int) -> None:
    same = (rows[:, : kernel.num_ranks] == want[0]).all() if (want == want[0]).all() else False
    if same:  # all chunks become the same sum: no need to undo the skew
        return
    chunk = np.arange(len(rows))
    for rank in range(kernel.num_ranks):
        bad = np.flatnonzero(rows[(chunk - skew[rank]) % len(rows), rank] != want)
        if len(bad):
            _refuse(kernel, rank, low + int(bad[0]))


def _differs(values: Any, want: Any) -> Any:
    return (values != want) if values.ndim == 1 else (values != want).any(axis=1)


def _check_all_sparse(kernel: Kernel, numbers: Numbers, look_at: int) -> None:
    weights = Weights.draw(numbers, kernel.num_ranks)
    pieces = -(-max(kernel.num_moves, kernel.num_chunks) // ROUND_MOVES)
    width = -(-kernel.num_chunks // pieces)
    for low in range(0, look_at, width):
        chunk = np.arange(low, min(low + width, look_at))
        taker = kernel.goal.takers(kernel.num_chunks, chunk)
        values = replay_cells(kernel, numbers, weights, low, low + width, taker, chunk)
        bad = np.flatnonzero(values != expected(kernel.goal, kernel.num_chunks, numbers, weights, chunk))
        if len(bad):
            _refuse(kernel, int(taker[bad[0]]), int(chunk[bad[0]]))


def _refuse(kernel: Kernel, rank: int, chunk: int) -> None:
    raise NotProvedError(
        f"rank {rank} does not end with the right chunk {chunk}: {kernel.goal}.",
        where=kernel.name,
        detail=explain(kernel, rank, chunk),
        hint="Show the rounds of this chunk with `syncline schedule show`.",
    )
