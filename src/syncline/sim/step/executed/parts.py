"""Where an executed step goes: the busiest stage's work, and what it waits for, by part of the step's price.

    parts = busiest_parts(built, begin_s, end_s)    # {"compute": 0.86, "dp": 0.02, "bubble": 0.03, ...}, the whole step

Between two of its operations a stage waits for a chain of tasks, each of which begins when the last that it waits for
ends: an exchange is a wait for its data, another stage's work is the bubble.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from syncline.sim.step.executed.footprint import Floats
from syncline.sim.step.executed.tasks import OPTIMIZER, StepTasks
from syncline.workload.graph import Op

LAST = ("optimizer", "fixed", "codec", "storage")
"""Parts of the price that the graph draws as one operation at its end."""


def busiest_parts(built: StepTasks, begin_s: Floats, end_s: Floats) -> dict[str, float]:
    """Return the seconds of each part on the stage that computes longest."""
    tasks, begins, ends = built.draft.columns, begin_s.tolist(), end_s.tolist()
    found: dict[str, float] = defaultdict(float)

    def wait(task: int, since_s: float) -> None:
        """Add what lies between a moment and the end of a task."""
        while task >= 0 and ends[task] > since_s:
            part = tasks.part[task]
            found["bubble" if part in ("compute", OPTIMIZER) else part] += ends[task] - max(begins[task], since_s)
            task = max(tasks.waits[task], key=ends.__getitem__, default=-1)

    done_s = 0.0
    for op in _operations(built, begins):
        begin, end = built.begin[op], built.end[op]
        wait(begin, done_s)
        found[tasks.part[end]] += ends[end] - begins[end]
        done_s = ends[end]
    if len(end_s):
        wait(int(end_s.argmax()), done_s)
    price = built.result.parts_s
    _share(found, "compute", ("compute", "host"), price)
    _share(found, OPTIMIZER, LAST, price)
    return {part: found.get(part, 0.0) for part in price}


def _operations(built: StepTasks, begins: list[float]) -> list[int]:
    """Return what the stage with the most work computes, in order."""
    w = built.workload
    by_stage: dict[int, list[int]] = defaultdict(list)
    for op, (stage, kind) in enumerate(zip(w.rank.tolist(), w.kind.tolist(), strict=True)):
        if kind == Op.COMPUTE:
            by_stage[stage].append(op)
    busiest = max(by_stage.values(), key=lambda ops: sum(built.compute_s[op] for op in ops), default=[])
    return sorted(busiest, key=lambda op: begins[built.begin[op]])


def _share(found: dict[str, float], whole: str, parts: tuple[str, ...], price: Mapping[str, float]) -> None:
    """Divide the time of one operation among the parts that it stands for, as they are priced."""
    seconds, total = found.pop(whole, 0.0), sum(price.get(part, 0.0) for part in parts)
    for part in parts:
        share = price.get(part, 0.0) / total if total > 0 else float(part == whole)
        found[part] += seconds * share
