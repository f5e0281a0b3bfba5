"""A sweep on a live group: collectives by algorithm and size, checked, beside what each should take.

Every rank calls `sweep`; every rank gets the same rows back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.bench.attribute import Suspect
from syncline.bench.blame import suspects
from syncline.bench.expect import Expectation, Oracle, expectations
from syncline.bench.measured import Measurement, Timing
from syncline.bench.verdict import BenchVerdict, Judgement, judge
from syncline.codec.codec import RAW
from syncline.codec.names import scheme
from syncline.errors import BenchError
from syncline.program import Placement, Program, lower, vendor
from syncline.runtime.execute.executor import Executor
from syncline.runtime.execute.trial import Trial, elements, measure
from syncline.schedule import FAMILIES, Collective, Kind, build, verify
from syncline.sim.candidates import find
from syncline.timeline import Timeline

VENDOR = "vendor"


@dataclass(frozen=True, eq=False)
class SweepQuestion:
    """What to measure: one collective by several algorithms at several sizes, how often and on what."""

    kind: Kind
    algorithms: tuple[str, ...]
    sizes: tuple[int, ...]
    dtype: str = "float"
    codec: str = RAW.name
    warm_up: int = 2
    repeats: int = 10
    budget_s: float = 20.0


@dataclass(frozen=True, eq=False)
class SweepAnswer:
    """The rows of a sweep, what could not be predicted and why, and the per-rank times that tell stragglers."""

    rows: tuple[Judgement, ...]
    unpredicted: dict[str, str]
    late_s: np.ndarray[Any, np.dtype[np.float64]]
    work_s: np.ndarray[Any, np.dtype[np.float64]]
    last: Timeline | None
    blamed: dict[str, tuple[Suspect, ...]]


def goal_of(kind: Kind, num_ranks: int) -> Collective:
    """Return the collective as it is measured: from rank 0, and send/recv from every rank to the next."""
    return Collective(kind, num_ranks)


def program_of(algorithm: str, kind: Kind, placement: Placement, backend: str, codec: str = RAW.name) -> Program:
    """Return the program an algorithm's name stands for: a family of schedules, or the backend's own."""
    goal = goal_of(kind, placement.num_ranks)
    if algorithm == VENDOR:
        return vendor(goal, placement, backend)
    price = RAW if codec == RAW.name else scheme(codec).price()
    if algorithm == "hierarchical":
        proved = verify(build(algorithm, goal.num_ranks, kind=kind, shape=_levels(placement)))
    elif algorithm in FAMILIES:
        proved = verify(build(algorithm, goal.num_ranks, kind=kind))
    else:
        proved = find(placement.fabric, kind, goal.num_ranks, algorithm)
    return lower(proved, placement, price)


def _levels(placement: Placement) -> tuple[int, ...]:
    """Return (hosts, ranks a host), or (racks, hosts a rack) where every host has one rank."""
    for group in (placement.host, placement.fabric.devices.group[placement.device]):
        _, counts = np.unique(group, return_counts=True)
        even = len(counts) > 1 and counts[0] > 1 and bool((counts == counts[0]).all())
        if even and (np.diff(group) != 0).sum() == len(counts) - 1:
            return len(counts), int(counts[0])
    raise BenchError("a hierarchical collective needs hosts or racks with equally many ranks, in order.",
                     hint="Use packed ranks, or another algorithm.")  # fmt: skip


def sweep(
    executor: Executor,
    question: SweepQuestion,
    placement: Placement,
    oracle: Oracle | None = None,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> SweepAnswer:
    """Measure everything asked for; `tell` hears what is being measured."""
    rows: list[Judgement] = []
    unpredicted: dict[str, str] = {}
    late, work = [], []
    last: Timeline | None = None
    blamed: dict[str, tuple[Suspect, ...]] = {}
    backend = executor.group.backend
    for algorithm in question.algorithms:
        program = program_of(algorithm, question.kind, placement, backend, question.codec)
        own = None if algorithm == VENDOR else program
        expected, why = expectations(oracle, own, question.kind, question.sizes, backend)
        if why:
            unpredicted[algorithm] = why
        for size, one in zip(question.sizes, expected, strict=True):
            tell(f"{algorithm}, {size:,} bytes")
            trial = measure(
                executor, program, size, dtype=question.dtype, warm_up=question.warm_up, repeats=question.repeats,
                budget_s=question.budget_s,
            )  # fmt: skip
            rows.append(_row(question, algorithm, size, placement.num_ranks, trial, one))
            late.append(trial.late_s)
            work.append(trial.work_s)
            last = trial.last
            if rows[-1].verdict is BenchVerdict.SLOW and own is not None:
                blamed[algorithm] = suspects(last, placement)
    late_s, work_s = (np.concatenate(table, axis=1) for table in (late, work))
    return SweepAnswer(tuple(rows), unpredicted, late_s, work_s, last, blamed)


def _row(
    question: SweepQuestion, algorithm: str, size: int, num_ranks: int, trial: Trial, expected: Expectation | None
) -> Judgement:
    goal = goal_of(question.kind, num_ranks)
    measured = Measurement(
        question.kind, num_ranks, size, Timing.of(trial.rank_s.max(axis=0)), algorithm, question.dtype,
        elements(size, question.dtype), "sum" if goal.reduces else "none",
        goal.root if question.kind in (Kind.BROADCAST, Kind.REDUCE, Kind.GATHER, Kind.SCATTER) else -1,
        trial.num_wrong, trial.error,
    )  # fmt: skip
    return judge(measured, expected)
