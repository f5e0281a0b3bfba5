"""Search: price every configuration of a space and keep the best of every split.

    found = search(Question(job, machine, reach, constants), num_gpus=512)
    found.best[0].decision, found.best[0].step_s, found.num_evaluated

A split is the sizes of the groups and how state is sharded; micro-batches, schedules and recomputation are the closed
form's choice. Every configuration is counted: those whose memory does not fit are dropped by the exact memory model,
all others are priced by the step model. Interrupting it keeps what was found so far.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from syncline.describe.progress import Meter
from syncline.planning.block import Floats, Ints, PlanQuestion, RowBlock, possible, price
from syncline.planning.decision import SPLIT_NUMBERS, Decision, decision_of
from syncline.planning.fix import fixed_axes, fixed_rows
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.space import USUAL, Axes, Rows, Switches, chunks, rows_for, rows_of, switches_of
from syncline.workload.parallel import SHARDED

CHUNK = 32768
KEEP = 200
#: Below so many configurations starting a second process costs more than it saves.
WORTH_A_PROCESS = 1_500_000


@dataclass(frozen=True, order=True)
class SearchCandidate:
    """A configuration with its price; candidates sort by time, then by memory, then by their choices."""

    step_s: float
    memory_bytes: float
    decision: Decision


@dataclass(frozen=True)
class SearchResult:
    """What a search found: the best candidate of each split, best first, and how much was looked at."""

    best: tuple[SearchCandidate, ...] = ()
    num_considered: int = 0
    num_fitting: int = 0
    least_bytes: float = np.inf  # the smallest need of a configuration that does not fit
    least: Decision | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    complete: bool = True

    def then(self, other: SearchResult) -> SearchResult:
        """Return a search and the one after it as one."""
        return replace(self.joined(other), wall_s=self.wall_s + other.wall_s)

    def joined(self, other: SearchResult) -> SearchResult:
        """Return two parts of a search as one."""
        nearer = self if self.least_bytes <= other.least_bytes else other
        return SearchResult(
            best=_best_by_split((*self.best, *other.best)) if other.best else self.best,
            num_considered=self.num_considered + other.num_considered,
            num_fitting=self.num_fitting + other.num_fitting,
            least_bytes=nearer.least_bytes,
            least=nearer.least,
            cpu_s=self.cpu_s + other.cpu_s,
            wall_s=max(self.wall_s, other.wall_s),
            complete=self.complete and other.complete,
        )


def _best_by_split(candidates: Sequence[SearchCandidate]) -> tuple[SearchCandidate, ...]:
    """Return the best candidate of every split, best first."""
    found: dict[tuple[int | str, ...], SearchCandidate] = {}
    for candidate in sorted(candidates, key=_order):
        found.setdefault(candidate.decision.split, candidate)
    return tuple(found.values())[:KEEP]


def search(
    question: PlanQuestion,
    num_gpus: int,
    *,
    axes: Axes = USUAL,
    fix: Mapping[str, Any] | None = None,
    keep: int = 50,
    workers: int = 1,
    meter: Meter | None = None,
    spread: Callable[[list[SearchTask]], Iterator[SearchResult]] | None = None,
) -> SearchResult:
    """Return the best configurations on so many GPUs. `spread` runs the tasks elsewhere (a Ray cluster).

    More than one of `workers` (0: as many as it is worth) starts processes, so a script needs its
    `if __name__ == "__main__"`.
    """
    started, cpu = time.perf_counter(), time.process_time()
    rows = rows_of(question.job, num_gpus, question.machine.domain)
    if question.framework:
        rows = named_framework(question.framework).keep(rows, question.job)
    rows = fixed_rows(rows, fix or {}, question.job, num_gpus)
    words = switches_of(question.job, fixed_axes(axes, fix or {}, question.job.sync))
    total, meter = sum(len(_rows(question, rows, w)) for w in words), meter or Meter()
    meter.expect(total)
    count = _processes(total, workers)
    here = count == 1 and spread is None
    tasks = [SearchTask(question, rows, part, keep) for part in _dealt(words, 1 if here else 16)]
    parts = _batch_results(tasks[0]) if here else spread(tasks) if spread else _parallel(tasks, count)
    found = SearchResult()
    try:
        for part in parts:
            found = found.joined(part)
            meter.advance(part.num_considered)
    except KeyboardInterrupt:
        found = replace(found, complete=False)
    spent = time.process_time() - cpu
    return replace(
        found,
        best=found.best[:keep],
        cpu_s=spent if here else found.cpu_s + spent,
        wall_s=time.perf_counter() - started,
    )


@dataclass(frozen=True, eq=False)
class SearchTask:
    """A part of a search that one process does."""

    question: PlanQuestion
    rows: Rows
    words: tuple[Switches, ...]
    keep: int


def run_task(task: SearchTask) -> SearchResult:
    """Return what one part of the space has to offer."""
    started = time.process_time()
    found = SearchResult()
    for part in _batch_results(task):
        found = found.joined(part)
    return replace(found, cpu_s=time.process_time() - started)


def _batch_results(task: SearchTask) -> Iterator[SearchResult]:
    """Yield the best of each batch of a task; what is slower than the best so far is only counted."""
    best: dict[tuple[int | str, ...], float] = {}
    for blocks in _batches(task):
        cut_s = sorted(best.values())[task.keep - 1] if len(best) >= task.keep else np.inf
        part = _best_of(task, blocks, cut_s)
        for candidate in part.best:
            split = candidate.decision.split
            best[split] = min(candidate.step_s, best.get(split, np.inf))
        yield part


def _batches(task: SearchTask) -> Iterator[list[RowBlock]]:
    """Return the blocks of a task, small ones together: pricing a few rows takes as long as pricing thousands."""
    waiting: dict[tuple[Any, ...], list[RowBlock]] = {}
    for words in task.words:
        for rows in chunks(_rows(task.question, task.rows, words), CHUNK):
            # What is alike in all blocks of a batch stays one number, and what they all lack is not priced.
            alike = (words.tensor, words.pipeline, words.zero in SHARDED, words.schedule, words.offload)
            batch = waiting.setdefault(alike, [])
            if sum(len(block.rows) for block in batch) + len(rows) > CHUNK:
                yield waiting.pop(alike)
                batch = waiting.setdefault(alike, [])
            batch.append(RowBlock(words, rows))
    yield from waiting.values()


def _best_of(task: SearchTask, blocks: list[RowBlock], cut_s: float) -> SearchResult:
    """Return the best rows of some blocks; slower ones than `cut_s` are only counted."""
    priced = price(task.question, blocks)
    placement = task.question.reach.placement

    def decided(row: int) -> Decision:
        return decision_of(blocks[priced.block[row]].words, priced.rows, row, placement)

    words = {word: number for number, word in enumerate(dict.fromkeys(block.words.zero for block in blocks))}
    zero = np.array([words[block.words.zero] for block in blocks])[priced.block[priced.kept]]
    chosen = (getattr(priced.rows, name)[priced.kept] for name in SPLIT_NUMBERS)
    best = tuple(
        SearchCandidate(float(priced.step_s[i]), float(priced.memory_bytes[i]), decided(int(priced.kept[i])))
        for i in _smallest(priced.step_s, np.stack([*chosen, zero]), task.keep, cut_s)
    )
    least = decided(priced.least) if priced.least >= 0 else None
    return SearchResult(best, len(priced.rows), len(priced.kept), priced.least_bytes, least)


def _order(candidate: SearchCandidate) -> tuple[float, float, Decision]:
    return candidate.step_s, candidate.memory_bytes, candidate.decision


def _smallest(values: Floats, split: Ints, count: int, cut: float) -> list[int]:
    """Return the rows that are the smallest of their split, ties with it included, and not above the cut."""
    near = np.nonzero(values <= cut)[0]
    near = near[np.argsort(values[near], kind="stable")]
    _, first, of = np.unique(split[:, near], axis=1, return_index=True, return_inverse=True)
    if len(first) > count:
        cut = np.partition(values[near[first]], count - 1)[count - 1]
    # Ties are all kept, so that the order of work cannot decide between them.
    kept = (values[near] <= values[near[first]][of.ravel()]) & (values[near] <= cut)
    return [int(i) for i in near[kept]]


def _rows(question: PlanQuestion, rows: Rows, words: Switches) -> Rows:
    return possible(rows_for(rows, words), words, question.machine.domain)


def _dealt(words: Sequence[Switches], num_parts: int) -> list[tuple[Switches, ...]]:
    parts = [tuple(words[k::num_parts]) for k in range(num_parts)]
    return [part for part in parts if part] or [()]


def _processes(total: int, workers: int) -> int:
    if workers:
        return workers
    return 1 if total < WORTH_A_PROCESS else max(1, min(8, len(os.sched_getaffinity(0))))


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the process that keeps the best so far."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _parallel(tasks: list[SearchTask], count: int) -> Iterator[SearchResult]:
    with ProcessPoolExecutor(count, get_context("spawn"), initializer=_leave_interrupts) as pool:
        futures = [pool.submit(run_task, task) for task in tasks]
        try:
            for done in as_completed(futures):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
