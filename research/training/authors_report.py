"""What authors chose against what the search finds: the rank of every published layout, and why it differs."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import numpy as np
from research.training.authors import RankedRun, one_per_setting, rank_run, within
from research.training.observed import observed_runs


def run() -> dict[str, Any]:
    """Rank every distinct setting of the published rows."""
    started = time.process_time()
    runs = observed_runs(0)
    rows = [row for row in (rank_run(one) for one in one_per_setting(runs)) if row is not None]
    by_source: dict[str, list[RankedRun]] = defaultdict(list)
    for row in rows:
        by_source[row.source].append(row)
    return {
        "settings": len(rows),
        "cpu_s": time.process_time() - started,
        "median_gain": float(np.median([row.gain for row in rows])),
        "within_1_percent": within(rows, 0.01),
        "within_5_percent": within(rows, 0.05),
        "within_10_percent": within(rows, 0.10),
        "sources": {name: _summary(found) for name, found in by_source.items()},
        "runs": [row.to_json() for row in sorted(rows, key=lambda r: (r.source, r.model, r.num_gpus))],
    }


def _summary(rows: list[RankedRun]) -> dict[str, Any]:
    return {
        "settings": len(rows),
        "median_rank": float(np.median([row.rank for row in rows])),
        "median_fitting": float(np.median([row.num_fitting for row in rows])),
        "median_gain": float(np.median([row.gain for row in rows])),
        "best_possible": sum(row.rank == 1 for row in rows),
        "does_not_fit_by_our_model": sum(not row.theirs_fits for row in rows),
    }
