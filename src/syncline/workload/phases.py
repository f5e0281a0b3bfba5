"""A run of several phases in one job file: what they share stands once, what each needs stands with it.

    model: llama3-70b
    start: 2027-01-15
    budget: $30M
    phases:
      - {name: pre-training, tokens: 15T, batch: {global: 2048, sequence: 8192}}
      - {name: long context, tokens: 100B, batch: {global: 128, sequence: 131072}}
      - {name: instructions, tokens: 5B, frozen: true, gpus: 64, batch: {global: 128, sequence: 8192}}
      - {name: reinforcement, steps: 500, rollout: {prompts: 512, answers: 8, prompt: 1000, answer: 4000}}

Keys beside `phases` hold for every phase unless it says otherwise; start, deadline and budget are those of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from syncline.describe.document import Document
from syncline.describe.mistakes import first_mistake, problem, read_described
from syncline.describe.quantity import Strict
from syncline.errors import DescriptionError
from syncline.workload.goal import Goal
from syncline.workload.job import Job
from syncline.workload.load import Length
from syncline.workload.read_job import GUIDE, parse_job

_OF_THE_RUN = ("start", "deadline", "budget")
#: Sequences of one length are packed to a multiple of this.
_PACKED = 1024


class Rollout(Strict):
    """What a step of reinforcement learning generates before it trains on it."""

    prompts: int = Field(ge=1, le=10**7, description="a step")
    answers: int = Field(default=1, ge=1, le=10**4, description="to every prompt")
    prompt: Length
    answer: Length
    on: Literal["shared", "split", "best"] = Field(
        default="best", description="the same GPUs by turns, or some that generate while others train"
    )

    @property
    def sequences(self) -> int:
        return self.prompts * self.answers


@dataclass(frozen=True)
class Phase:
    """One phase: its job (with `tokens`), and what it generates where it learns from its own answers."""

    name: str
    job: Job
    rollout: Rollout | None = None

    @property
    def steps(self) -> float:
        return (self.job.tokens or 0.0) / (self.job.batch.global_ * self.job.batch.sequence)


@dataclass(frozen=True)
class TrainingRun:
    """Phases one after the other, and what the whole is for."""

    name: str
    goal: Goal
    phases: tuple[Phase, ...]


def has_phases(path: str | Path) -> bool:
    """Say whether a job file has several phases."""
    if not Path(path).is_file() or str(path).endswith(".json"):
        return False
    data = read_described(Path(path), GUIDE).data
    return isinstance(data, dict) and "phases" in data


def load_run(path: str | Path) -> TrainingRun:
    """Read a job file that has `phases`."""
    document = read_described(Path(path), GUIDE)
    data = document.data
    listed = data.get("phases") if isinstance(data, dict) else None
    if not isinstance(listed, list) or not listed or not all(isinstance(each, dict) for each in listed):
        raise DescriptionError(
            "`phases` is a list of jobs, one after the other.", where=document.where(("phases",)),
            hint="Write `phases: [{name: pre-training, tokens: 15T, batch: {...}}, ...]`.",
        )  # fmt: skip
    shared = {key: value for key, value in data.items() if key not in ("phases", "name", *_OF_THE_RUN)}
    phases = tuple(_phase(document, number, shared, each) for number, each in enumerate(listed))
    names = [phase.name for phase in phases]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DescriptionError(f'two phases are called "{twice}".', where=document.source, hint="Name them apart.")
    total = sum(phase.job.tokens or 0.0 for phase in phases)
    goal = {key: data[key] for key in _OF_THE_RUN if key in data}
    try:
        found = Goal.model_validate({"tokens": total, **goal})
    except ValidationError as error:
        raise problem(document, error, GUIDE, Goal) from None
    return TrainingRun(str(data.get("name") or Path(path).stem), found, phases)


def _phase(document: Document, number: int, shared: Mapping[str, Any], given: Mapping[str, Any]) -> Phase:
    """Return one phase, checked; a mistake names the phase."""
    name = str(given.get("name") or f"phase {number + 1}")
    where = f"{document.where(('phases', number))}, {name}"
    merged = {key: value for key, value in given.items() if key not in ("name", "rollout", "steps")}
    if misplaced := next((key for key in _OF_THE_RUN if key in given), None):
        raise DescriptionError(
            f"{misplaced} is set for the whole run.", where=where, hint="Write it beside `phases`, not inside one."
        )
    merged = _merged(shared, merged)
    rollout = _rollout(given.get("rollout"), where)
    if rollout is not None:
        length = rollout.prompt.mean + rollout.answer.mean
        trained = {"global": rollout.sequences, "sequence": int(-(-length // _PACKED) * _PACKED)}
        merged["batch"] = trained | dict(given.get("batch") or {})
    batch = merged.get("batch")
    if "steps" in given and isinstance(batch, dict):
        merged["tokens"] = _steps(given["steps"], where) * batch.get("global", 1) * batch.get("sequence", 2048)
    try:
        job = parse_job(Document(merged, {}, "job"), Path(document.source).parent)
    except DescriptionError as error:
        error.where = where
        raise
    if not job.tokens:
        raise DescriptionError("a phase says how long it is.", where=where, hint="Add `tokens: 100B` or `steps: 500`.")
    if job.kind != "train":
        raise DescriptionError(f"a phase trains; its kind is {job.kind}.", where=where, hint="Plan it as its own job.")
    return Phase(name, job.model_copy(update={"name": name}), rollout)


def _steps(given: Any, where: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise DescriptionError(f"steps is {given!r}; it must be a whole number above 0.", where=where)
    return given


def _rollout(given: Any, where: str) -> Rollout | None:
    if given is None:
        return None
    try:
        return Rollout.model_validate(given)
    except ValidationError as error:
        raise DescriptionError(
            f"{first_mistake(error, 'rollout')}.", where=where,
            hint="Write `rollout: {prompts: 512, answers: 8, prompt: 1000, answer: 4000}`.",
        ) from None  # fmt: skip


def _merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a phase says over what all share; mappings are joined key by key."""
    out = dict(shared)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict) and key != "model"
        out[key] = _merged(out[key], value) if both else value
    return out
