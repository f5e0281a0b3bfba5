"""What a job does not state about its pipeline and its memory, and what stating it would gain.

A paper states tp, pp and the batch, but not chunks a rank, kernel and allocator; a step then takes the plain ones.
Where others fit the memory, or are clearly faster, the answer names them instead of leaving a wrong "no".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from syncline.describe.plain import JsonValue
from syncline.errors import DescriptionError
from syncline.sim.step.constants import Constants
from syncline.sim.step.step import StepResult
from syncline.sim.step.step import step as price
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.stages import virtual_choices

#: A gain that is worth a line; below it the plain choice may as well be what was meant.
WORTH = 0.03
#: Of two that are so close, the one that changes less is named.
ALIKE = 0.005
#: Of the part's memory; fuller than this is named only where nothing else fits.
ROOMY = 0.98


@dataclass(frozen=True)
class UnstatedKey:
    """A key that a job does not state, with the value that serves it best and the one that was taken."""

    key: str
    value: str
    taken: str


@dataclass(frozen=True)
class UnstatedKeys:
    """Keys that a job does not state, with the values that serve it best, and its step then."""

    keys: tuple[UnstatedKey, ...]
    step_time_s: float
    mfu: float
    memory_bytes: float


def unstated(
    job: Job,
    result: StepResult,
    constants: Constants | None = None,
    executed: Callable[[StepResult], StepResult] = lambda priced: priced,
) -> UnstatedKeys | None:
    """Return the unstated keys that make a job fit, or faster by 3 % and fit; None where there are none.

    `job` is as its file states it, `result` its price: that one has its gaps filled. `executed` turns a price into the
    step as it is executed.
    """
    if not isinstance(job.model, Shape) or job.kind != "train":
        return None
    fitting = [
        (keys, then) for keys in _choices(job, result.job)
        if keys and (then := _priced(result, keys, constants)) is not None and then.fits
    ]  # fmt: skip
    if not fitting:
        return None
    room = ROOMY * result.machine.gpu.memory_bytes
    fitting = [found for found in fitting if found[1].memory_bytes["total"] <= room] or fitting
    fastest = min(then.step_time_s for _, then in fitting)
    keys, then = min(
        (found for found in fitting if found[1].step_time_s <= fastest * (1 + ALIKE)), key=lambda found: len(found[0])
    )
    if result.fits and then.step_time_s > result.step_time_s * (1 - WORTH):
        return None
    named = tuple(UnstatedKey(key, _written(value), _written(_taken(result, key))) for key, value in keys.items())
    then = executed(then)
    return UnstatedKeys(named, then.step_time_s, then.mfu, then.memory_bytes["total"])


def _priced(result: StepResult, keys: dict[str, JsonValue], constants: Constants | None) -> StepResult | None:
    """Return the step with these keys; None where they break a rule of its model."""
    try:
        return price(result.machine, _with(result.job, keys), constants)
    except DescriptionError:
        return None


def _choices(stated: Job, filled: Job) -> Iterator[dict[str, JsonValue]]:
    """Return every combination of keys that the job does not state."""
    shape, split, keys = filled.model, filled.parallel, stated.parallel.model_fields_set
    assert isinstance(shape, Shape)
    chunks: list[dict[str, JsonValue]] = [{}]
    if split.pp > 1 and not keys & {"virtual", "schedule"} and filled.num_micro % split.pp == 0:
        chunks += [{"virtual": v, "schedule": "interleaved"} for v in virtual_choices(shape.layers, split.pp) if v > 1]
    facts = facts_of(filled)
    kernels: list[dict[str, JsonValue]] = [{}]
    if shape.gated and stated.fused_act is None and not facts.fused_act:
        kernels.append({"fused_act": True})
    allocators: list[dict[str, JsonValue]] = [{}]
    if stated.allocator == "auto" and facts.allocator == "caching":
        allocators.append({"allocator": "expandable"})
    yield from (a | b | c for a, b, c in product(chunks, kernels, allocators))


def _with(job: Job, keys: dict[str, JsonValue]) -> Job:
    split = {name: value for name, value in keys.items() if name in ("virtual", "schedule")}
    other = {name: value for name, value in keys.items() if name not in split}
    return job.model_copy(update={"parallel": job.parallel.model_copy(update=split), **other})


def _taken(result: StepResult, name: str) -> JsonValue:
    split = result.job.parallel
    return {
        "virtual": split.virtual, "schedule": split.schedule, "fused_act": result.facts.fused_act,
        "allocator": result.facts.allocator,
    }[name]  # fmt: skip


def _written(value: JsonValue) -> str:
    """Return a value as a job file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
