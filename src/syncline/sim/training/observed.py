"""Published runs ready to be compared: each with its job as a case, and its step time by its source's convention."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from syncline.errors import SynclineError
from syncline.sim.step.build import build_case
from syncline.sim.step.case import Case, stack
from syncline.sim.step.constants import Constants
from syncline.sim.step.cost import step_cost
from syncline.sim.training.convert import step_seconds
from syncline.sim.training.read import Described, Entry, describe
from syncline.sim.training.rows import Row, Run, runs_of
from syncline.workload.shape import Shape

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Observed:
    """One run that can be predicted: `rows` are those of its metrics that convert, the scored one first."""

    run: Run
    described: Described
    case: Case
    rows: tuple[tuple[Row, float], ...]

    @property
    def measured_s(self) -> float:
        return self.rows[0][1]

    @property
    def source(self) -> str:
        return family(self.run.source)

    @property
    def shape(self) -> Shape:
        assert isinstance(self.described.job.model, Shape)
        return self.described.job.model

    @property
    def has_experts(self) -> bool:
        return self.shape.moe is not None

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens of one step and GPU."""
        batch = self.described.job.batch
        return batch.global_ * batch.sequence / self.described.num_gpus

    @property
    def recalled(self) -> bool:
        """Whether cells that matter (shape, layout) were recalled rather than read: never fitted to."""
        return self.run.best.recalled


@dataclass(frozen=True)
class Unmodelled:
    """A row that is not predicted, and why."""

    row: Row
    reason: str


def family(source: str) -> str:
    """Return which publication a source belongs to: its name without table, commit and page."""
    name = re.split(r" @|: | \(| p\d| Table| via ", source)[0].strip()
    return name if len(name) > 3 else source


def observe(rows: Sequence[Row], entries: Sequence[Entry]) -> tuple[list[Observed], list[Unmodelled]]:
    """Return the runs that can be predicted, and the rows that cannot with the reason."""
    seen: list[Observed] = []
    lost: list[Unmodelled] = []
    for run in runs_of(rows):
        try:
            described = describe(run.best, entries)
            case = build_case(described.job, described.machine)
        except SynclineError as error:
            lost += [Unmodelled(row, error.message.rstrip(".")) for row in run.rows]
            continue
        kept: list[tuple[Row, float]] = []
        for row in run.rows:
            try:
                kept.append((row, _seconds(row, described)))
            except SynclineError as error:
                lost.append(Unmodelled(row, error.message.rstrip(".")))
        if kept:
            seen.append(Observed(run, described, case, tuple(kept)))
    return seen, lost


def _seconds(row: Row, d: Described) -> float:
    return step_seconds(row.text("metric"), row.value, d.job, d.num_gpus, d.convention, d.peak_flops, d.params)


def stacked(runs: Sequence[Observed]) -> Case:
    """Return all cases as one."""
    return stack([run.case for run in runs])


def chosen(case: Case, mask: npt.NDArray[np.bool_]) -> Case:
    """Return the chosen rows of a stacked case."""
    return Case(**{f.name: getattr(case, f.name)[mask] for f in fields(Case)})


def predicted_s(case: Case, constants: Constants) -> Floats:
    """Return the predicted step times of a stacked case."""
    return np.asarray(step_cost(case, constants).total, dtype=np.float64)
