"""Published runs ready to be compared: each with its job as a case, and its step time by its source's convention."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from research.published import training_rows
from research.training.read import RowReading, describe
from research.training.rows import PublishedRow, PublishedRun, runs_of
from research.training.systems import TrainingSystemEntry, load_systems

from syncline.errors import DescriptionError, SynclineError
from syncline.sim.step.arithmetic.layers_cost import layers_cost
from syncline.sim.step.case import Case, stack
from syncline.sim.step.constants import Constants
from syncline.sim.step.cost import step_cost
from syncline.validation.metrics import convention_of, flops_of_step, step_seconds
from syncline.validation.training_run import PublishedTraining, case_of, family
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of

Floats = npt.NDArray[np.float64]

#: Share of a part's peak above which a run was not of the precision that its row states.
MOST_OF_PEAK = 0.8


@dataclass(frozen=True, eq=False)
class ObservedRun:
    """One run that can be predicted: `rows` are those of its metrics that convert, the scored one first."""

    run: PublishedRun
    described: RowReading
    case: Case | None  # None: the model is a list of layers, priced apart
    rows: tuple[tuple[PublishedRow, float], ...]

    @property
    def published(self) -> PublishedTraining:
        """The run as the package scores it."""
        d, best = self.described, self.rows[0][0]
        convention = convention_of(best.text("metric"), d.convention, d.job)
        return PublishedTraining(
            best.line, self.run.source, self.run.best.text("model"), best.text("metric"), convention, self.measured_s,
            d.job, d.machine, d.num_gpus, d.remarks, d.readings, len(self.rows), self.assumed or self.recalled,
        )  # fmt: skip

    @property
    def measured_s(self) -> float:
        return self.rows[0][1]

    @property
    def source(self) -> str:
        return family(self.run.source)

    @property
    def has_experts(self) -> bool:
        model = self.described.job.model
        return isinstance(model, Shape) and model.moe is not None

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens (samples where the model has none) of one step and GPU."""
        batch = self.described.job.batch
        per_sample = batch.sequence if self.case is not None else 1
        return batch.global_ * per_sample / self.described.num_gpus

    @property
    def recalled(self) -> bool:
        """Whether cells that matter (shape, layout) were recalled rather than read: never fitted to."""
        return self.run.best.recalled

    @property
    def assumed(self) -> bool:
        """Whether shape, layout, batch or rates had to be assumed: predicted, but never fitted to."""
        return any(re.search(r"not published|assumed", remark) for remark in self.described.remarks)


@dataclass(frozen=True)
class SkippedRow:
    """A row that is not predicted, and why."""

    row: PublishedRow
    reason: str


def observe(
    rows: Sequence[PublishedRow], entries: Sequence[TrainingSystemEntry]
) -> tuple[list[ObservedRun], list[SkippedRow]]:
    """Return the runs that can be predicted, and the rows that cannot with the reason."""
    seen: list[ObservedRun] = []
    lost: list[SkippedRow] = []
    for run in runs_of(rows):
        try:
            described = describe(run.best, entries)
            case = case_of(described.job, described.machine)
        except (SynclineError, ValueError, ArithmeticError) as error:
            lost += [SkippedRow(row, reason_of(error)) for row in run.rows]
            continue
        kept: list[tuple[PublishedRow, float]] = []
        for row in run.rows:
            try:
                kept.append((row, _seconds(row, described)))
            except (SynclineError, ValueError, ArithmeticError) as error:
                lost.append(SkippedRow(row, reason_of(error)))
        if kept:
            seen.append(ObservedRun(run, _doubted(described, kept[0][1]), case, tuple(kept)))
    return seen, lost


def _doubted(described: RowReading, seconds: float) -> RowReading:
    """Return a reading with a remark where its precision cannot be: no run of 870 reached three quarters of a peak."""
    job = described.job
    if not isinstance(job.model, Shape) or not described.peak_flops:
        return described
    work = flops_of_step(job, "causal", described.params)
    share = work / (seconds * described.num_gpus * described.peak_flops)
    if share <= MOST_OF_PEAK:
        return described
    peak = f"{100 * share:.0f} % of the peak of {described.machine.gpu.name}"
    remark = f"precision {job.precision} does not go with the speed, {peak}"
    return replace(described, remarks=(*described.remarks, remark))


def reason_of(error: Exception) -> str:
    """Return why a row cannot be predicted, without a full stop; a hostile number is named, not passed on."""
    text = error.message if isinstance(error, SynclineError) else f"its numbers cannot be used: {error}"
    return text.rstrip(".") or "its numbers cannot be used"


def _seconds(row: PublishedRow, d: RowReading) -> float:
    convention = convention_of(row.text("metric"), d.convention, d.job)
    counted, model = d.job, d.job.model
    if d.counted_vocab and isinstance(model, Shape):
        counted = counted.model_copy(update={"model": model.model_copy(update={"vocab": d.counted_vocab})})
    seconds = step_seconds(row.text("metric"), row.value, counted, d.num_gpus, convention, d.peak_flops, d.params)
    if not 1e-9 < seconds < 1e9:
        raise DescriptionError(f"a step of {seconds:.3g} s is not one that was measured")
    return seconds


def stacked(runs: Sequence[ObservedRun]) -> Case:
    """Return all cases as one; every run must have one."""
    return stack([run.case for run in runs if run.case is not None])


def predictions(runs: Sequence[ObservedRun], constants: Constants) -> Floats:
    """Return the predicted step times of runs, models that are lists of layers among them."""
    out = np.empty(len(runs))
    cases = np.array([run.case is not None for run in runs], dtype=bool)
    if cases.any():
        out[cases] = predicted_s(stacked(runs), constants)
    for number, run in enumerate(runs):
        if run.case is not None:
            continue
        described = run.described
        facts = facts_of(described.job)
        out[number] = layers_cost(described.job, described.machine, constants, facts.gradient_bytes).total
    return out


def predicted_s(case: Case, constants: Constants) -> Floats:
    """Return the predicted step times of a stacked case."""
    return np.asarray(step_cost(case, constants).total, dtype=np.float64)


def observed_runs(blind_set: int) -> list[ObservedRun]:
    """Return the published runs of a set that can be predicted."""
    return observe(training_rows(blind_set), load_systems(None))[0]
