"""Where an executed step goes: the busiest stage's work, and what it waits for, by part of the step's price.

    parts = busiest_parts(built, begin_s, end_s)    # {"compute": 0.86, "dp": 0.02, "bubble": 0.03, ...}, the whole step

Between two of its operations a stage waits for a chain of tasks, each of which begins when the last that it waits for
ends: an exchange is a wait for its data, another stage's work is the bubble.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from syncline.sim.step.executed.footprint import Floats, Longs
from syncline.sim.step.executed.tasks import OPTIMIZER, TASK_PARTS, StepTasks
from syncline.workload.graph import Op

ALIKE = 1e-9
"""Stages whose work differs by less have the same; the first stands for them."""
WORK = ("compute", OPTIMIZER)
LAST = ("optimizer", "fixed", "codec", "storage")
"""Parts of the price that the graph draws as one operation at its end."""


def busiest_parts(built: StepTasks, begin_s: Floats, end_s: Floats) -> dict[str, float]:
    """Return the seconds of each part on the stage that computes longest."""
    tasks = built.columns
    found: dict[str, float] = defaultdict(float)
    start, waits = tasks.waits.start, tasks.waits.link

    def wait(task: int, since_s: float) -> None:
        """Add what lies between a moment and the end of a task."""
        while end_s[task] > since_s:
            part = TASK_PARTS[tasks.part[task]]
            found["bubble" if part in WORK else part] += float(end_s[task] - max(begin_s[task], since_s))
            others = waits[start[task] : start[task + 1]]
            if not len(others):
                return
            task = others[end_s[others].argmax()]

    done_s = 0.0
    for op in _operations(built, begin_s).tolist():
        begin, end = built.begin[op], built.end[op]
        wait(begin, done_s)
        found[TASK_PARTS[tasks.part[end]]] += float(end_s[end] - begin_s[end])
        done_s = float(end_s[end])
    if len(end_s):
        wait(int(end_s.argmax()), done_s)
    price = built.result.parts_s
    _share(found, "compute", ("compute", "host"), price)
    _share(found, OPTIMIZER, LAST, price)
    return {part: found.get(part, 0.0) for part in price}


def _operations(built: StepTasks, begin_s: Floats) -> Longs:
    """Return what the stage with the most work computes, in order."""
    w = built.workload
    ops = np.flatnonzero(w.kind == Op.COMPUTE)
    work = np.bincount(w.rank[ops], weights=built.compute_s[ops], minlength=1)
    busiest = int((work > work.max() * (1 - ALIKE)).argmax())
    mine = ops[w.rank[ops] == busiest]
    order: Longs = np.argsort(begin_s[built.begin[mine]], kind="stable")
    return np.asarray(mine[order])


def _share(found: dict[str, float], whole: str, parts: tuple[str, ...], price: Mapping[str, float]) -> None:
    """Divide the time of one operation among the parts that it stands for, as they are priced."""
    seconds, total = found.pop(whole, 0.0), sum(price.get(part, 0.0) for part in parts)
    for part in parts:
        share = price.get(part, 0.0) / total if total > 0 else float(part == whole)
        found[part] += seconds * share
