"""When nothing fits: what is missing, and the nearest thing that would work."""

from __future__ import annotations

from dataclasses import replace

from syncline.errors import PlanError
from syncline.planning.block import PlanQuestion
from syncline.planning.search import SearchResult, search
from syncline.planning.space import Axes
from syncline.sim.step.memory import USABLE
from syncline.workload.shape import Shape

GIB = 2**30
MOST_GPUS = 1 << 20


def nothing_fits(question: PlanQuestion, found: SearchResult, num_gpus: int, axes: Axes, fixed: bool) -> PlanError:
    """Return the error that says why no configuration fits in memory and what would."""
    shape = question.job.model
    assert isinstance(shape, Shape)
    has = question.machine.gpu.memory_bytes / max(question.machine.gpu.num_dies, 1)
    least = f"The leanest of {found.num_considered:,} configurations needs {found.least_bytes / GIB:.1f} GiB a GPU"
    lean = f" ({found.least.label})" if found.least else ""
    state = 16 * shape.params
    detail = f"{least}{lean}; {question.machine.gpu.name} has {has / GIB:.0f} GiB, of which {USABLE:.1%} can be used."
    detail += f" Parameters, gradients and optimizer alone are {state / 1e12:.2f} TB."
    return PlanError(
        f"{shape.name} does not fit on {num_gpus:,} {question.machine.gpu.name}"
        f"{' with these fixed choices' if fixed else ''}.",
        detail=detail,
        hint=_nearest(question, found, num_gpus, axes, fixed),
    )


def _nearest(question: PlanQuestion, found: SearchResult, num_gpus: int, axes: Axes, fixed: bool) -> str:
    if fixed:
        free = search(question, num_gpus, axes=axes, keep=1)
        if free.best:
            return f"Without `fix` the best is: {free.best[0].decision.label}."
    count = fewest_gpus(question, num_gpus, axes)
    need = found.least_bytes / USABLE / GIB
    more = f"It fits on {count:,} GPUs of this kind" if count else "No number of these GPUs is enough"
    shorter = _shorter(question, num_gpus, axes)
    return f"{more}{shorter}, or GPUs with {need:.0f} GiB."


def fewest_gpus(question: PlanQuestion, num_gpus: int, axes: Axes) -> int | None:
    """Return the smallest doubling of the GPUs on which the job fits; the batch grows where it must divide."""
    count = num_gpus
    while count < MOST_GPUS:
        count *= 2
        batch = question.job.batch
        total = max(batch.global_, count)
        job = question.job.model_copy(update={"batch": batch.model_copy(update={"global_": total}), "gpus": None})
        if search(replace(question, job=job), count, axes=axes, keep=1).best:
            return count
    return None


def _shorter(question: PlanQuestion, num_gpus: int, axes: Axes) -> str:
    """Return the longest shorter sequence that fits, in words."""
    batch = question.job.batch
    length = batch.sequence // 2
    while length >= 1024:
        job = question.job.model_copy(update={"batch": batch.model_copy(update={"sequence": length})})
        if search(replace(question, job=job), num_gpus, axes=axes, keep=1).best:
            return f", or with sequences of {length:,}"
        length //= 2
    return ""
