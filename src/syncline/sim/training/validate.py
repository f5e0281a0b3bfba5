"""Predicted against published training runs: by source, dense and with experts, ratios, ranks, and left out of the fit.

    validation = validate_training()                          # the rows that ship
    validation = validate_training("mine.csv", "mine.yaml")
    validation.to_json()["overall"]["dense"]["median_error"]

Error is |predicted / measured step time - 1| over distinct runs. Rows that cannot be modelled are listed with reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.sim.step.constants import default_constants, left_out_constants
from syncline.sim.training.fit import left_out_s
from syncline.sim.training.observed import Observed, Unmodelled, family, observe, predictions
from syncline.sim.training.rows import Row, read_file, read_rows
from syncline.sim.training.systems import load_systems

Floats = npt.NDArray[np.float64]
SHIPPED = "training_throughput.csv"
MIN_SWEEP = 4


@dataclass(frozen=True, eq=False)
class TrainingValidation:
    """All runs of a file with what was predicted for them; ratios are predicted over measured."""

    source: str
    num_rows: int
    runs: tuple[Observed, ...]
    ratio: Floats
    left_out_ratio: Floats
    unmodelled: tuple[Unmodelled, ...]

    def to_json(self) -> dict[str, Any]:
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
            "scaling_ratios": _ratios(self),
            "rank": _ranks(self),
            "sources": self._sources(experts),
            "constants": {"fitted": asdict(default_constants().fitted), "num_fitted": 12},
            "runs": [self._run(i) for i in range(len(self.runs))],
            "unmodelled": [_lost(item) for item in self.unmodelled],
        }

    def _sources(self, experts: npt.NDArray[np.bool_]) -> dict[str, Any]:
        lost: dict[str, int] = defaultdict(int)
        for item in self.unmodelled:
            lost[family(item.row.text("source"))] += 1
        out: dict[str, Any] = {}
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

    def _run(self, index: int) -> dict[str, Any]:
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
            "convention": run.described.convention, "remarks": list(run.described.remarks),
        }  # fmt: skip


def errors(ratio: Floats) -> dict[str, Any]:
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


def _groups(ratio: Floats, experts: npt.NDArray[np.bool_]) -> dict[str, Any]:
    return {"dense": errors(ratio[~experts]), "experts": errors(ratio[experts]), "all": errors(ratio)}


def series_key(run: Observed) -> tuple[Any, ...]:
    """Return what runs of one scaling series share: all but the number of replicas."""
    job, best = run.described.job, run.run.best
    split, batch = job.parallel, job.batch
    per_gpu = batch.global_ / run.described.num_gpus
    facts = (job.precision, job.recompute, job.compiled, job.overlap.tp, job.attention, job.token_drop)
    layout = (split.tp, split.pp, split.cp, split.ep, split.virtual, split.zero, batch.micro, batch.sequence, per_gpu)
    return (run.source, best.text("model"), run.described.machine.gpu.name, *facts, *layout)


def scaling_pairs(runs: Sequence[Observed]) -> list[tuple[int, int]]:
    """Return neighbouring runs of each scaling series, fewer GPUs first."""
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        groups[series_key(run)].append(number)
    pairs = []
    for numbers in groups.values():
        numbers.sort(key=lambda i: runs[i].described.num_gpus)
        pairs += [(a, b) for a, b in pairwise(numbers) if runs[a].described.num_gpus < runs[b].described.num_gpus]
    return pairs


def _ratios(v: TrainingValidation) -> dict[str, Any]:
    pairs = scaling_pairs(v.runs)
    off = np.array([abs(v.ratio[b] / v.ratio[a] - 1) for a, b in pairs])
    found = {"num_pairs": len(pairs), "median_error": None, "p90_error": None}
    return found | (
        {"median_error": float(np.median(off)), "p90_error": float(np.quantile(off, 0.9))} if len(off) else {}
    )


def sweeps(runs: Sequence[Observed]) -> dict[str, list[int]]:
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


def _ranks(v: TrainingValidation) -> dict[str, Any]:
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


def _lost(item: Unmodelled) -> dict[str, Any]:
    row = item.row
    return {
        "line": row.line,
        "source": row.text("source"),
        "model": row.text("model"),
        "metric": row.text("metric"),
        "reason": item.reason,
    }


def shipped_rows() -> list[Row]:
    """Return the published rows that ship with syncline."""
    return read_rows((files("syncline.sim") / "data" / SHIPPED).read_text(encoding="utf-8"), SHIPPED)


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
