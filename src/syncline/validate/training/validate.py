"""Predicted against published training runs: by source, dense and with experts, ratios, ranks, and left out of the fit.

    validation = validate_training()                          # the rows that ship
    validation = validate_training("mine.csv", "mine.yaml")
    validation.to_json()["overall"]["dense"]["median_error"]

Error is |predicted / measured step time - 1| over distinct runs. Rows that cannot be modelled are listed with reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.describe.plain import JsonObject
from syncline.sim.step.constants import default_constants, left_out_constants
from syncline.sim.step.step import kind_of, stated_of
from syncline.sim.uncertainty import Spread, StepFacets, generation_of, step_spread
from syncline.validate.training.convert import convention_of
from syncline.validate.training.fit import left_out_s
from syncline.validate.training.observed import ObservedRun, SkippedRow, family, observe, predictions
from syncline.validate.training.rows import PublishedRow, read_file, read_rows
from syncline.validate.training.systems import load_systems
from syncline.workload.software import facts_of

Floats = npt.NDArray[np.float64]
SHIPPED = "training_throughput.csv"
MIN_SWEEP = 4


@dataclass(frozen=True, eq=False)
class TrainingValidation:
    """All runs of a file with what was predicted for them; ratios are predicted over measured."""

    source: str
    num_rows: int
    runs: tuple[ObservedRun, ...]
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
            "predicted_rows": sum(len(run.rows) for run in self.runs),
            "num_runs": len(self.runs),
            "overall": _groups(self.ratio, experts),
            "left_out": _groups(self.left_out_ratio, experts),
            "coverage": self.coverage(),
            "scaling_ratios": _ratios(self),
            "rank": _ranks(self),
            "sources": self._sources(experts),
            "constants": {"fitted": asdict(default_constants().fitted), "num_fitted": 12},
            "runs": [self._run(i) for i in range(len(self.runs))],
            "unmodelled": [_lost(item) for item in self.unmodelled],
        }

    def coverage(self) -> JsonObject:
        """Return how many runs lie inside their 90 and 50 % intervals."""
        inside = [_inside(spread_of(run), 1 / self.ratio[i]) for i, run in enumerate(self.runs)]
        count = max(len(inside), 1)
        shares = {"in_90": sum(a for a, _ in inside) / count, "in_50": sum(b for _, b in inside) / count}
        return {"num_runs": len(inside), **(shares if inside else {"in_90": None, "in_50": None})}

    def _sources(self, experts: npt.NDArray[np.bool_]) -> JsonObject:
        lost: dict[str, int] = defaultdict(int)
        for item in self.unmodelled:
            lost[family(item.row.text("source"))] += 1
        out: JsonObject = {}
        names = np.array([run.source for run in self.runs], dtype=object)
        for name in dict.fromkeys([*names.tolist(), *lost]):
            mine = names == name
            rows = sum(len(run.rows) for run in self.runs if run.source == name)
            out[name] = {
                "rows": rows + lost[name],
                "predicted_rows": rows,
                **errors(self.ratio[mine]),
                "dense": errors(self.ratio[mine & ~experts]),
                "experts": errors(self.ratio[mine & experts]),
                "left_out": errors(self.left_out_ratio[mine]),
                "remarks": sorted({r for run in self.runs if run.source == name for r in run.described.remarks}),
            }
        return out

    def _run(self, index: int) -> JsonObject:
        run, job = self.runs[index], self.runs[index].described.job
        split = job.parallel
        return {
            "line": run.rows[0][0].line, "source": run.source, "model": job.model.name,
            "gpu": run.described.machine.gpu.name,
            "gpus": run.described.num_gpus, "tp": split.tp, "pp": split.pp, "dp": split.dp, "cp": split.cp,
            "ep": split.ep,
            "micro": job.batch.micro, "global": job.batch.global_, "sequence": job.batch.sequence,
            "precision": job.precision,
            "recompute": job.recompute, "metric": run.rows[0][0].text("metric"), "measured_s": run.measured_s,
            "predicted_s": float(self.ratio[index]) * run.measured_s, "error": float(self.ratio[index] - 1),
            "left_out_error": float(self.left_out_ratio[index] - 1), "software_year": job.software.year,
            "convention": convention_of(run.rows[0][0].text("metric"), run.described.convention, job),
            "interval": spread_of(run).of(float(self.ratio[index]) * run.measured_s),
            "remarks": list(run.described.remarks), "readings": list(run.described.readings),
        }  # fmt: skip


def spread_of(run: ObservedRun) -> Spread:
    """Return how far off the prediction of a published run may be, by what its row and systems file state."""
    described, job, gpu = run.described, run.described.job, run.described.machine.gpu
    stated = "guessed" if run.assumed or run.recalled else stated_of(job, facts_of(job))
    generation = generation_of(gpu.architecture, gpu.vendor)
    found = step_spread(StepFacets(kind_of(job), stated, generation, job.precision, described.num_gpus))
    if any(remark.startswith("precision") for remark in described.remarks):
        why = "the precision is not published, and 8 bits would be up to twice as fast"
        return replace(found, low_90=found.low_90 / 2, low_50=found.low_50 / 1.5, unmeasured=(*found.unmeasured, why))
    return found


def _inside(spread: Spread, ratio: float) -> tuple[bool, bool]:
    return spread.low_90 <= ratio <= spread.high_90, spread.low_50 <= ratio <= spread.high_50


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


def series_key(run: ObservedRun) -> tuple[Any, ...]:
    """Return what runs of one scaling series share: all but the number of replicas."""
    job, best = run.described.job, run.run.best
    split, batch = job.parallel, job.batch
    per_gpu = batch.global_ / run.described.num_gpus
    facts = (job.precision, job.recompute, job.compiled, job.overlap.tp, job.attention, job.token_drop)
    layout = (split.tp, split.pp, split.cp, split.ep, split.virtual, split.zero, batch.micro, batch.sequence, per_gpu)
    return (run.source, best.text("model"), run.described.machine.gpu.name, *facts, *layout)


def scaling_pairs(runs: Sequence[ObservedRun]) -> list[tuple[int, int]]:
    """Return neighbouring runs of each scaling series, fewer GPUs first."""
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        groups[series_key(run)].append(number)
    pairs = []
    for numbers in groups.values():
        numbers.sort(key=lambda i: runs[i].described.num_gpus)
        pairs += [(a, b) for a, b in pairwise(numbers) if runs[a].described.num_gpus < runs[b].described.num_gpus]
    return pairs


def _ratios(v: TrainingValidation) -> JsonObject:
    pairs = scaling_pairs(v.runs)
    off = np.array([abs(v.ratio[b] / v.ratio[a] - 1) for a, b in pairs])
    return {
        "num_pairs": len(pairs),
        "median_error": float(np.median(off)) if len(off) else None,
        "p90_error": float(np.quantile(off, 0.9)) if len(off) else None,
    }


def sweeps(runs: Sequence[ObservedRun]) -> dict[str, list[int]]:
    """Return tables of at least four runs on one part that can be ranked: one model's where a table has many of it."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        groups[f"{run.run.source} / {run.described.machine.gpu.name}"].append(number)
    out: dict[str, list[int]] = {}
    for name, numbers in groups.items():
        models: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            models[runs[number].run.best.text("model")].append(number)
        many = {f"{name} / {model}": found for model, found in models.items() if len(found) >= MIN_SWEEP}
        out |= many or ({name: numbers} if len(numbers) >= MIN_SWEEP else {})
    return out


def _ranks(v: TrainingValidation) -> JsonObject:
    """Return Spearman's correlation of tokens per second and GPU inside each sweep."""
    rank = {}
    for name, numbers in sweeps(v.runs).items():
        tokens = np.array([v.runs[i].tokens_per_gpu / v.runs[i].measured_s for i in numbers])
        guess = tokens / v.ratio[numbers]
        rank[name] = float(np.corrcoef(_order(tokens), _order(guess))[0, 1]) if np.ptp(tokens) > 0 else 1.0
    values = list(rank.values())
    return {"num_sweeps": len(values), "median": float(np.median(values)) if values else None, "sweeps": rank}


def _order(values: Floats) -> Floats:
    """Return ranks, ties sharing their mean."""
    return np.array([(values < v).sum() + ((values == v).sum() - 1) / 2 for v in values], dtype=np.float64)


def _lost(item: SkippedRow) -> JsonObject:
    row = item.row
    return {
        "line": row.line,
        "source": row.text("source"),
        "model": row.text("model"),
        "metric": row.text("metric"),
        "reason": item.reason,
    }


def shipped_rows() -> list[PublishedRow]:
    """Return the published rows that ship with syncline."""
    return read_rows((files("syncline.validate") / "data" / SHIPPED).read_text(encoding="utf-8"), SHIPPED)


def validate_training(data: str | Path | None = None, systems: str | Path | None = None) -> TrainingValidation:
    """Predict every run of a file of rows (default: the published rows that ship) and compare."""
    rows = shipped_rows() if data is None else read_file(data)
    runs, lost = observe(rows, load_systems(systems))
    name = SHIPPED if data is None else str(data)
    if not runs:
        nothing = np.empty(0)
        return TrainingValidation(name, len(rows), (), nothing, nothing, tuple(lost))
    measured = np.array([run.measured_s for run in runs])
    ratio = predictions(runs, default_constants()) / measured
    without = left_out_s(runs, left_out_constants(), default_constants()) / measured
    return TrainingValidation(name, len(rows), tuple(runs), ratio, without, tuple(lost))
