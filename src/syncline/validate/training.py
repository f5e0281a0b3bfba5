"""Predicted against measured training runs: by source, dense and with experts, ratios, ranks, and left out of the fit.

    validation = validate_training()                          # the published runs that ship
    validation = validate_training("mine.csv", "mine.yaml")   # one's own: docs/guides/validate.md has the columns
    validation.to_json()["overall"]["dense"]["median_error"]

Error is |predicted / measured step time - 1| over distinct runs. Rows that cannot be modelled are listed with reasons.
`data/training-runs.json.gz` holds the published runs that the constants were fitted to, each as a job on a host;
`research/training` reads them from their publications.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from syncline.describe.plain import JsonObject
from syncline.sim.step.constants import default_constants
from syncline.validate.training_rows import read_runs
from syncline.validate.training_run import (
    Floats,
    SkippedRow,
    TrainingRun,
    family,
    left_out_predictions,
    predictions,
    published_runs,
)

#: A table of fewer runs on one part is not ranked.
MIN_SWEEP = 4


@dataclass(frozen=True, eq=False)
class TrainingValidation:
    """All runs of a file with what was predicted for them; ratios are predicted over measured."""

    source: str
    num_rows: int
    runs: tuple[TrainingRun, ...]
    ratio: Floats
    left_out_ratio: Floats
    unmodelled: tuple[SkippedRow, ...]

    def to_json(self) -> JsonObject:
        """Return `overall`, `sources`, `scaling_ratios`, `rank`, `left_out`, `runs`, `unmodelled` and the constants."""
        experts = np.array([run.has_experts for run in self.runs], dtype=bool)
        return {
            "source": self.source,
            "error": "abs(predicted / measured step time - 1), distinct runs",
            "rows": self.num_rows,
            "predicted_rows": sum(run.num_rows for run in self.runs),
            "num_runs": len(self.runs),
            "overall": _groups(self.ratio, experts),
            "left_out": _groups(self.left_out_ratio, experts),
            "coverage": self.coverage(),
            "scaling_ratios": self._scaling(),
            "rank": self._ranks(),
            "sources": self._sources(experts),
            "constants": {"fitted": asdict(default_constants().fitted), "num_fitted": 12},
            "runs": [self._run(i) for i in range(len(self.runs))],
            "unmodelled": [asdict(row) for row in self.unmodelled],
        }

    def coverage(self) -> JsonObject:
        """Return how many runs lie inside their 90 and 50 % intervals."""
        spreads = [(run.spread, 1 / ratio) for run, ratio in zip(self.runs, self.ratio, strict=True)]
        if not spreads:
            return {"num_runs": 0, "in_90": None, "in_50": None}
        in_90 = sum(spread.low_90 <= ratio <= spread.high_90 for spread, ratio in spreads)
        in_50 = sum(spread.low_50 <= ratio <= spread.high_50 for spread, ratio in spreads)
        return {"num_runs": len(spreads), "in_90": in_90 / len(spreads), "in_50": in_50 / len(spreads)}

    def _sources(self, experts: npt.NDArray[np.bool_]) -> JsonObject:
        lost: dict[str, int] = defaultdict(int)
        for row in self.unmodelled:
            lost[family(row.source)] += 1
        out: JsonObject = {}
        names = np.array([run.source for run in self.runs], dtype=object)
        for name in dict.fromkeys([*names.tolist(), *lost]):
            mine = names == name
            rows = sum(run.num_rows for run in self.runs if run.source == name)
            out[name] = {
                "rows": rows + lost[name],
                "predicted_rows": rows,
                **errors(self.ratio[mine]),
                "dense": errors(self.ratio[mine & ~experts]),
                "experts": errors(self.ratio[mine & experts]),
                "left_out": errors(self.left_out_ratio[mine]),
                "remarks": sorted({remark for run in self.runs if run.source == name for remark in run.remarks}),
            }
        return out

    def _run(self, index: int) -> JsonObject:
        run, job = self.runs[index], self.runs[index].job
        split, predicted_s = job.parallel, float(self.ratio[index]) * run.measured_s
        return {
            "line": run.line, "source": run.source, "model": job.model.name, "gpu": run.machine.gpu.name,
            "gpus": run.num_gpus, "tp": split.tp, "pp": split.pp, "dp": split.dp, "cp": split.cp, "ep": split.ep,
            "micro": job.batch.micro, "global": job.batch.global_, "sequence": job.batch.sequence,
            "precision": job.precision, "recompute": job.recompute, "metric": run.metric,
            "measured_s": run.measured_s, "predicted_s": predicted_s, "error": float(self.ratio[index] - 1),
            "left_out_error": float(self.left_out_ratio[index] - 1), "software_year": job.software.year,
            "convention": run.convention, "interval": run.spread.of(predicted_s),
            "remarks": list(run.remarks), "readings": list(run.readings),
        }  # fmt: skip

    def _scaling(self) -> JsonObject:
        pairs = scaling_pairs(self.runs)
        off = np.array([abs(self.ratio[b] / self.ratio[a] - 1) for a, b in pairs])
        return {
            "num_pairs": len(pairs),
            "median_error": float(np.median(off)) if len(off) else None,
            "p90_error": float(np.quantile(off, 0.9)) if len(off) else None,
        }

    def _ranks(self) -> JsonObject:
        """Return Spearman's correlation of tokens per second and GPU inside each sweep."""
        rank = {}
        for name, numbers in sweeps(self.runs).items():
            tokens = np.array([self.runs[i].tokens_per_gpu / self.runs[i].measured_s for i in numbers])
            predicted = tokens / self.ratio[numbers]
            rank[name] = float(np.corrcoef(_order(tokens), _order(predicted))[0, 1]) if np.ptp(tokens) > 0 else 1.0
        values = list(rank.values())
        return {"num_sweeps": len(values), "median": float(np.median(values)) if values else None, "sweeps": rank}


def errors(ratio: Floats) -> JsonObject:
    """Return runs, median and 90th percentile of the error, and the median's bias."""
    if not len(ratio):
        return {"num_runs": 0, "median_error": None, "p90_error": None, "bias": None}
    off = np.abs(ratio - 1)
    return {
        "num_runs": len(ratio),
        "median_error": float(np.median(off)),
        "p90_error": float(np.quantile(off, 0.9)),
        "bias": float(np.median(ratio - 1)),
    }


def _groups(ratio: Floats, experts: npt.NDArray[np.bool_]) -> JsonObject:
    return {"dense": errors(ratio[~experts]), "experts": errors(ratio[experts]), "all": errors(ratio)}


def _series(run: TrainingRun) -> tuple[object, ...]:
    """Return what runs of one scaling series share: all but the number of replicas."""
    job, split, batch = run.job, run.job.parallel, run.job.batch
    facts = (job.precision, job.recompute, job.compiled, job.overlap.tp, job.attention, job.token_drop)
    layout = (split.tp, split.pp, split.cp, split.ep, split.virtual, split.zero, batch.micro, batch.sequence)
    return (run.source, run.model, run.machine.gpu.name, *facts, *layout, batch.global_ / run.num_gpus)


def scaling_pairs(runs: Sequence[TrainingRun]) -> list[tuple[int, int]]:
    """Return neighbouring runs of each scaling series, fewer GPUs first."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        groups[_series(run)].append(number)
    pairs = []
    for numbers in groups.values():
        numbers.sort(key=lambda i: runs[i].num_gpus)
        pairs += [(a, b) for a, b in pairwise(numbers) if runs[a].num_gpus < runs[b].num_gpus]
    return pairs


def sweeps(runs: Sequence[TrainingRun]) -> dict[str, list[int]]:
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


def _order(values: Floats) -> Floats:
    """Return ranks, ties sharing their mean."""
    return np.array([(values < v).sum() + ((values == v).sum() - 1) / 2 for v in values], dtype=np.float64)


def validate_training(data: str | Path | None = None, systems: str | Path | None = None) -> TrainingValidation:
    """Predict every run of a CSV file (default: the published runs that ship) and compare."""
    runs, skipped, num_rows = published_runs() if data is None else read_runs(Path(data), systems)
    measured = np.array([run.measured_s for run in runs])
    ratio, without = (predictions(runs, default_constants()) / measured, left_out_predictions(runs) / measured)
    return TrainingValidation(
        "published training runs" if data is None else str(data), num_rows, tuple(runs), ratio, without, tuple(skipped)
    )
