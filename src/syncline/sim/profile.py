"""The profile of a system: what was measured on it, in one file that predictions of steps and collectives read.

    profile = load_profile("profile.yaml")
    profile.constants(job)                         # for step_cost, plan and step
    profile.collective("all_reduce", num_hosts=8)  # for NCCL's model
    save_profile(profile, "profile.yaml")

`syncline calibrate step` and `syncline calibrate collective` write it, each adding to what is there.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syncline.describe.files import write_text
from syncline.describe.guide import cite
from syncline.describe.mistakes import problem, read_described
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError, UsageError
from syncline.sim.nccl.job import NcclCalibration
from syncline.sim.shared import ErrorKey, KnownError, learnt, levels_of
from syncline.sim.step.calibrate import NAMES, Multipliers, StepCalibration
from syncline.sim.step.constants import Constants
from syncline.sim.swept import calibration_of
from syncline.workload.job import Job
from syncline.workload.shape import Shape

FORMAT = "syncline profile 2"
GUIDE = cite("calibrate")
Factor = Annotated[float, Field(gt=0.01, lt=100, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def split_words(job: Job) -> str:
    """Return how a job is split and fed, in the words by which a profile knows it again."""
    axes = " ".join(f"{axis}{getattr(job.parallel, axis)}" for axis in ("tp", "pp", "cp", "dp", "ep"))
    return f"{axes} batch {job.batch.global_}/{job.batch.micro} of {job.batch.sequence}"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MeasuredStep(_Strict):
    """One run that a profile was made from."""

    job: str
    model: str = ""
    gpus: Annotated[int, Field(ge=1)]
    precision: str
    split: str
    measured_s: Positive
    predicted_s: Positive  # by the model as it ships
    source: str
    own: float = 0.0  # log of what this run is off by beside the multipliers

    @property
    def seen(self) -> KnownError:
        """The run as a measurement that others share something with."""
        keys = {"model": self.model or self.job, "precision": self.precision, "job": self.split, "gpus": str(self.gpus)}
        return KnownError(ErrorKey(keys), self.own)


def thing_of(job: Job, num_gpus: int = 0) -> ErrorKey:
    """Return a job as what a measurement may say something of; without a number of GPUs any split of it."""
    split = split_words(job) if num_gpus else ""
    keys = {"model": job.model.name, "precision": job.precision, "job": split, "gpus": str(num_gpus)}
    return ErrorKey(keys)


def in_common(one: ErrorKey, other: ErrorKey) -> str:
    """Return what two steps of one system have in common: the job at another size, its model, or the system alone.

    >>> small = ErrorKey({"model": "a", "precision": "bf16", "job": "tp2 pp1 cp1 dp4 ep1 batch 64/2 of 4096"})
    >>> large = ErrorKey({"model": "a", "precision": "bf16", "job": "tp2 pp1 cp1 dp64 ep1 batch 1024/2 of 4096"})
    >>> in_common(small, large), in_common(small, ErrorKey({**large.keys, "precision": "fp8"}))
    ('job', 'system')
    """
    if any(one.keys[name] != other.keys[name] for name in ("model", "precision")):
        return "system"
    splits = {re.sub(r"dp\d+|\d+/", "", thing.keys["job"]) for thing in (one, other)}
    return "job" if len(splits) == 1 else "model"


@dataclass(frozen=True, eq=False)
class MeasuredCollective:
    """One sweep of nccl-tests that a profile was made from: what the model was off by at each size."""

    op: str
    ranks: int
    hosts: int
    source: str
    seen: tuple[KnownError, ...]


@dataclass(frozen=True, eq=False)
class SystemProfile:
    """What was measured on one system."""

    cluster: str
    gpu: str
    steps: StepCalibration = field(default_factory=StepCalibration)
    measured: tuple[MeasuredStep, ...] = ()
    collectives: tuple[MeasuredCollective, ...] = ()
    path: str = ""

    def learnt(self, job: Job, num_gpus: int = 0) -> tuple[float, float]:
        """Return the log of what a job is off by here, and how sure that is: one standard deviation."""
        experts = isinstance(job.model, Shape) and job.model.moe is not None
        found = learnt(
            levels_of("experts" if experts else "step"), [run.seen for run in self.measured], [thing_of(job, num_gpus)]
        )
        return float(found.mean[0]), float(found.sigma[0])

    def shared(self, job: Job, num_gpus: int = 0) -> str:
        """Return the most that a job has in common with a measured one; empty where none was measured."""
        wanted = thing_of(job, num_gpus)
        found = {in_common(run.seen.thing, wanted) for run in self.measured}
        return next((shared for shared in ("job", "model", "system") if shared in found), "")

    def constants(self, job: Job, num_gpus: int = 0) -> Constants:
        """Return the constants of a job on this system; a run that was measured is reproduced."""
        return self.steps.constants(own=self.learnt(job, num_gpus)[0])

    def check(self, gpu: str) -> None:
        """Raise where the profile is of another part: its multipliers mean nothing there."""
        if gpu != self.gpu:
            raise UsageError(
                f"the profile was measured on {self.gpu}, and this cluster has {gpu}.",
                where=self.path, hint="Measure one step there: syncline calibrate step.",
            )  # fmt: skip

    def remarks(self, precision: str) -> tuple[str, ...]:
        """Return what a prediction with this profile should say of its reach."""
        seen = sorted({run.precision for run in self.measured})
        if not seen or precision in seen:
            return ()
        return (f"the profile was measured in {', '.join(seen)}; {precision} products were not",)

    def with_collective(self, added: MeasuredCollective) -> SystemProfile:
        """Return the profile with a sweep, in the place of an older one of the same operation and size."""
        kept = tuple(c for c in self.collectives if (c.op, c.hosts) != (added.op, added.hosts))
        return replace(self, collectives=(*kept, added))

    def collective(self, op: str, num_hosts: int) -> NcclCalibration:
        """Return the calibration of an operation on so many hosts, from all sweeps."""
        seen = [one for sweep in self.collectives for one in sweep.seen]
        if not seen:
            raise UsageError(
                "the profile has no measured collective.", where=self.path,
                hint="Add one: syncline calibrate collective CLUSTER LOG --out PROFILE.",
            )  # fmt: skip
        return calibration_of(seen, op, num_hosts)

    def to_json(self) -> JsonObject:
        """Return the profile as its file has it."""
        found: JsonObject = {"format": FORMAT, "cluster": self.cluster, "gpu": self.gpu}
        if self.measured:
            found["steps"] = {
                "multipliers": {name: float(f"{v:.4g}") for name, v in asdict(self.steps.multipliers).items()},
                "covariance": [[float(f"{v:.4g}") for v in row] for row in self.steps.covariance.tolist()],
                "measured": [run.model_dump() for run in self.measured],
            }
        if self.collectives:
            found["collectives"] = [
                {"op": c.op, "ranks": c.ranks, "hosts": c.hosts, "source": c.source,
                 "sizes_bytes": [round(one.thing.size) for one in c.seen],
                 "off": [float(f"{one.off:.4g}") for one in c.seen]}
                for c in self.collectives
            ]  # fmt: skip
        return found


def save_profile(profile: SystemProfile, path: str | Path) -> None:
    """Write a profile; the old file stays whole until the new one is complete."""
    text = yaml.safe_dump(profile.to_json(), sort_keys=False, width=120, default_flow_style=None)
    write_text(Path(path), f"# What was measured on this system, see {GUIDE}.\n{text}")


def load_profile(path: str | Path) -> SystemProfile:
    """Read a profile; a damaged one is an error with its line."""
    document = read_described(Path(path), GUIDE)
    data = document.data if isinstance(document.data, dict) else {}
    if data.get("format") != FORMAT:
        raise DescriptionError("not a profile.", where=str(path), hint=f'A profile starts with "format: {FORMAT}".')
    try:
        read = _File.model_validate(data)
    except ValidationError as error:
        raise problem(document, error, GUIDE, _File) from None
    steps = StepCalibration()
    measured: tuple[MeasuredStep, ...] = ()
    if read.steps is not None:
        covariance = np.array(read.steps.covariance, dtype=np.float64)
        if not _is_covariance(covariance):
            raise DescriptionError(
                f"steps.covariance must be {len(NAMES)} rows of {len(NAMES)}, symmetric and positive.",
                where=document.where(("steps",)), hint="Do not edit it by hand: calibrate again.",
            )  # fmt: skip
        steps = StepCalibration(Multipliers(**read.steps.multipliers.model_dump()), covariance)
        measured = read.steps.measured
    sweeps = tuple(_sweep(c, document.where(("collectives",))) for c in read.collectives)
    return SystemProfile(read.cluster, read.gpu, steps, measured, sweeps, str(path))


def _is_covariance(found: Any) -> bool:
    if found.shape != (len(NAMES), len(NAMES)) or not np.allclose(found, found.T, rtol=1e-2, atol=1e-9):
        return False
    return bool(np.linalg.eigvalsh((found + found.T) / 2).min() > 0)


class _Multipliers(_Strict):
    products: Factor = 1.0
    attention: Factor = 1.0
    memory: Factor = 1.0
    exchange: Factor = 1.0
    host: Factor = 1.0


class _Steps(_Strict):
    multipliers: _Multipliers
    covariance: list[list[float]]
    measured: tuple[MeasuredStep, ...] = ()


class _Sweep(_Strict):
    op: str
    ranks: Annotated[int, Field(ge=1)]
    hosts: Annotated[int, Field(ge=1)]
    source: str = ""
    sizes_bytes: list[Positive]
    off: list[float]


class _File(_Strict):
    format: str
    cluster: str
    gpu: str
    steps: _Steps | None = None
    collectives: list[_Sweep] = []


def _sweep(read: _Sweep, where: str) -> MeasuredCollective:
    if len(read.sizes_bytes) != len(read.off) or not read.off:
        raise DescriptionError(
            "a collective has one `off` for each of its sizes.", where=where,
            hint="Do not edit it by hand: calibrate again.",
        )  # fmt: skip
    keys = {"op": read.op, "hosts": str(read.hosts)}
    seen = tuple(KnownError(ErrorKey(keys, size), off) for size, off in zip(read.sizes_bytes, read.off, strict=True))
    return MeasuredCollective(read.op, read.ranks, read.hosts, read.source, seen)
