"""Predicted against measured training runs: by source, dense and with experts, ratios, ranks, and left out of the fit.

    validation = validate_training()                          # the published runs that ship
    validation = validate_training("mine.csv", "mine.yaml")   # one's own: docs/guides/validate.md has the columns
    validation.overall.dense.median_error

Error is |predicted / measured step time - 1| over distinct runs. Rows that cannot be modelled are listed with reasons.
`data/training-runs.json.gz` holds the published runs that the constants were fitted to, each as a job on a host;
`research/training` reads them from their publications.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from syncline.describe.model import Handle, handle
from syncline.sim.step.constants import default_constants
from syncline.sim.uncertainty import Interval
from syncline.validation.training_rows import read_runs
from syncline.validation.training_run import (
    Floats,
    PublishedTraining,
    SkippedRow,
    family,
    left_out_predictions,
    predictions,
    published_runs,
)

Flags = npt.NDArray[np.bool_]
#: A table of fewer runs on one part is not ranked.
MIN_SWEEP = 4


@dataclass(frozen=True)
class RunErrors:
    """Errors of some runs, |predicted / measured - 1|; the bias is the median of predicted / measured - 1."""

    num_runs: int
    median_error: float | None
    p90_error: float | None
    bias: float | None

    @staticmethod
    def of(ratio: Floats) -> RunErrors:
        """Return the errors of ratios of predicted to measured step times."""
        if not len(ratio):
            return RunErrors(0, None, None, None)
        off = np.abs(ratio - 1)
        return RunErrors(len(ratio), float(np.median(off)), float(np.quantile(off, 0.9)), float(np.median(ratio - 1)))


@dataclass(frozen=True)
class KindErrors:
    """Errors of dense models, of models with experts, and of all."""

    dense: RunErrors
    experts: RunErrors
    all: RunErrors

    @staticmethod
    def of(ratio: Floats, experts: Flags) -> KindErrors:
        """Return the errors by kind of model."""
        return KindErrors(RunErrors.of(ratio[~experts]), RunErrors.of(ratio[experts]), RunErrors.of(ratio))


@dataclass(frozen=True)
class SourceErrors:
    """Errors of one publication's runs."""

    rows: int
    predicted_rows: int
    num_runs: int
    median_error: float | None
    p90_error: float | None
    bias: float | None
    dense: RunErrors
    experts: RunErrors
    left_out: RunErrors
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class RunCoverage:
    """How many runs lie inside their 90 and 50 % intervals."""

    num_runs: int
    in_90: float | None
    in_50: float | None


@dataclass(frozen=True)
class ScalingErrors:
    """How far off the ratio of neighbouring runs of a scaling series is."""

    num_pairs: int
    median_error: float | None
    p90_error: float | None


@dataclass(frozen=True)
class RankCorrelations:
    """Spearman's correlation of tokens per second and GPU inside each sweep."""

    num_sweeps: int
    median: float | None
    sweeps: Mapping[str, float]


@dataclass(frozen=True)
class ConstantsUsed:
    """The constants of the step model."""

    fitted: Mapping[str, float]
    num_fitted: int


@dataclass(frozen=True)
class ScoredRun:
    """One run with its prediction."""

    line: int
    source: str
    model: str
    gpu: str
    gpus: int
    tp: int
    pp: int
    dp: int | None
    cp: int
    ep: int | None
    micro_batch: int
    global_batch: int
    sequence: int
    precision: str
    recompute: str
    metric: str
    measured_s: float
    predicted_s: float
    error: float
    left_out_error: float
    software_year: int
    convention: str
    interval: Interval
    remarks: tuple[str, ...]
    readings: tuple[str, ...]


@dataclass(frozen=True)
class TrainingValidation:
    """All runs of a file with what was predicted for them."""

    source: str
    rows: int
    predicted_rows: int
    num_runs: int
    overall: KindErrors
    left_out: KindErrors
    coverage: RunCoverage
    scaling_ratios: ScalingErrors
    rank: RankCorrelations
    sources: Mapping[str, SourceErrors]
    constants: ConstantsUsed
    runs: tuple[ScoredRun, ...]
    unmodelled: tuple[SkippedRow, ...]
    error: str = "abs(predicted / measured step time - 1), distinct runs"
    measured: Handle[tuple[PublishedTraining, ...]] = handle()


def validate_training(data: str | Path | None = None, systems: str | Path | None = None) -> TrainingValidation:
    """Predict every run of a CSV file (default: the published runs that ship) and compare."""
    if data is None:
        return scored("published training runs", *published_runs())
    return scored(str(data), *read_runs(Path(data), systems))


def scored(
    source: str, runs: Sequence[PublishedTraining], skipped: Sequence[SkippedRow], num_rows: int
) -> TrainingValidation:
    """Predict runs, by the constants that ship and by those fitted without their source, and compare."""
    measured = np.array([run.measured_s for run in runs])
    ratio, without = predictions(runs, default_constants()) / measured, left_out_predictions(runs) / measured
    experts = np.array([run.has_experts for run in runs], dtype=bool)
    constants = asdict(default_constants().fitted)
    return TrainingValidation(
        source, num_rows, sum(run.num_rows for run in runs), len(runs), KindErrors.of(ratio, experts),
        KindErrors.of(without, experts), _coverage(runs, ratio), _scaling(runs, ratio), _ranks(runs, ratio),
        _sources(runs, skipped, ratio, without), ConstantsUsed(constants, len(constants)),
        tuple(_scored_run(run, float(a), float(b)) for run, a, b in zip(runs, ratio, without, strict=True)),
        tuple(skipped), measured=tuple(runs),
    )  # fmt: skip


def _coverage(runs: Sequence[PublishedTraining], ratio: Floats) -> RunCoverage:
    if not runs:
        return RunCoverage(0, None, None)
    spreads = [(run.spread, 1 / one) for run, one in zip(runs, ratio, strict=True)]
    in_90 = sum(spread.low_90 <= one <= spread.high_90 for spread, one in spreads)
    in_50 = sum(spread.low_50 <= one <= spread.high_50 for spread, one in spreads)
    return RunCoverage(len(runs), in_90 / len(runs), in_50 / len(runs))


def _sources(
    runs: Sequence[PublishedTraining], skipped: Sequence[SkippedRow], ratio: Floats, without: Floats
) -> dict[str, SourceErrors]:
    lost = Counter(family(row.source) for row in skipped)
    out = {}
    for name in dict.fromkeys([*(run.source for run in runs), *lost]):
        mine = [number for number, run in enumerate(runs) if run.source == name]
        own = [runs[number] for number in mine]
        kinds = KindErrors.of(ratio[mine], np.array([run.has_experts for run in own], dtype=bool))
        num_rows = sum(run.num_rows for run in own)
        remarks = tuple(sorted({remark for run in own for remark in run.remarks}))
        every, left_out = kinds.all, RunErrors.of(without[mine])
        out[name] = SourceErrors(
            num_rows + lost[name], num_rows, every.num_runs, every.median_error, every.p90_error, every.bias,
            kinds.dense, kinds.experts, left_out, remarks,
        )  # fmt: skip
    return out


def _scored_run(run: PublishedTraining, ratio: float, left_out_ratio: float) -> ScoredRun:
    job, split, predicted_s = run.job, run.job.parallel, ratio * run.measured_s
    return ScoredRun(
        run.line, run.source, job.model.name, run.machine.gpu.name, run.num_gpus, split.tp, split.pp, split.dp,
        split.cp, split.ep, job.batch.micro, job.batch.global_, job.batch.sequence, job.precision, job.recompute,
        run.metric, run.measured_s, predicted_s, ratio - 1, left_out_ratio - 1, job.software.year, run.convention,
        run.spread.of(predicted_s), run.remarks, run.readings,
    )  # fmt: skip


def _scaling(runs: Sequence[PublishedTraining], ratio: Floats) -> ScalingErrors:
    off = [abs(ratio[b] / ratio[a] - 1) for a, b in scaling_pairs(runs)]
    if not off:
        return ScalingErrors(0, None, None)
    return ScalingErrors(len(off), float(np.median(off)), float(np.quantile(off, 0.9)))


def _ranks(runs: Sequence[PublishedTraining], ratio: Floats) -> RankCorrelations:
    from scipy.stats import spearmanr

    found = {}
    for name, numbers in sweeps(runs).items():
        tokens = np.array([runs[i].tokens_per_gpu / runs[i].measured_s for i in numbers])
        moves = np.ptp(tokens) > 0
        found[name] = float(spearmanr(tokens, tokens / ratio[numbers]).statistic) if moves else 1.0
    return RankCorrelations(len(found), float(np.median(list(found.values()))) if found else None, found)


def _series(run: PublishedTraining) -> tuple[object, ...]:
    """Return what runs of one scaling series share: all but the number of replicas."""
    job, split, batch = run.job, run.job.parallel, run.job.batch
    facts = (job.precision, job.recompute, job.compiled, job.overlap.tp, job.attention, job.token_drop)
    layout = (split.tp, split.pp, split.cp, split.ep, split.virtual, split.zero, batch.micro, batch.sequence)
    return (run.source, run.model, run.machine.gpu.name, *facts, *layout, batch.global_ / run.num_gpus)


def scaling_pairs(runs: Sequence[PublishedTraining]) -> list[tuple[int, int]]:
    """Return neighbouring runs of each scaling series, fewer GPUs first."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        groups[_series(run)].append(number)
    pairs = []
    for numbers in groups.values():
        numbers.sort(key=lambda i: runs[i].num_gpus)
        pairs += [(a, b) for a, b in pairwise(numbers) if runs[a].num_gpus < runs[b].num_gpus]
    return pairs


def sweeps(runs: Sequence[PublishedTraining]) -> dict[str, list[int]]:
    """Return tables of at least four runs on one part that can be ranked: one model's where a table has many of it."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        groups[f"{run.table} / {run.machine.gpu.name}"].append(number)
    out: dict[str, list[int]] = {}
    for name, numbers in groups.items():
        models: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            models[runs[number].model].append(number)
        many = {f"{name} / {model}": found for model, found in models.items() if len(found) >= MIN_SWEEP}
        out |= many or ({name: numbers} if len(numbers) >= MIN_SWEEP else {})
    return out
