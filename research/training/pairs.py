"""Two published runs of one model, precision and publication: how far apart the model is off on them.

    spread_of(pairs("experts", same_gpu=False))

What a publication's software and way of counting make is in both residuals and cancels. Which of two clusters is
cheaper depends on the rest (`plan.decide.apart`).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import cache

import numpy as np
from research.intervals.residuals import all_residuals
from research.published import BLIND_SETS, TRAINING, training_rows
from research.training.accelerator import accelerator_of

from syncline.planning.decide.uncertain import Z80


def pairs(kind: str, *, same_gpu: bool, stated: str = "plain") -> list[float]:
    """Return the differences of the residuals of all pairs, in log units."""
    groups = defaultdict(list)
    for row in all_residuals():
        if row.subject == "step" and row.facets["kind"] == kind and row.facets["stated"] == stated:
            model, gpu = _ran()[row.line]
            groups[row.publication, model, row.facets["precision"]].append((gpu, row.residual))
    return [
        a[1] - b[1] for group in groups.values() for a, b in itertools.combinations(group, 2)
        if (a[0] == b[0]) is same_gpu
    ]  # fmt: skip


def spread_of(differences: list[float]) -> float:
    """Return the standard deviation of the normal distribution that holds as many as eight of ten of them do."""
    return float(np.quantile(np.abs(differences), 0.8)) / Z80


@cache
def _ran() -> dict[str, tuple[str, str]]:
    """Return the model and the GPU of every published line that has a residual."""
    judged = {row.line for row in all_residuals()}
    return {
        f"{TRAINING}:{row.line}": (row.text("model").lower(), accelerator_of(row)[0].gpu)
        for blind_set in BLIND_SETS
        for row in training_rows(blind_set)
        if f"{TRAINING}:{row.line}" in judged
    }
