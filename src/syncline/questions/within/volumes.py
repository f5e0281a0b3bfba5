"""How many bytes does each kind of parallelism send, and what do size, rate and time of a transfer make?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from syncline.describe import units
from syncline.describe.guide import cite
from syncline.describe.model import reported
from syncline.errors import UsageError
from syncline.questions.answer import Answer, Parameter, question
from syncline.questions.inputs import JobSource, job_of
from syncline.workload.parallel import Parallel
from syncline.workload.volumes import Volume, unpriced_volumes
from syncline.workload.volumes import volumes as count
from syncline.workload.zoo import model, names


@dataclass(frozen=True)
class Volumes(Answer):
    """What one GPU sends in a step, by kind of parallelism."""

    schema_name: ClassVar[str] = "step-volumes"

    job: str
    gpus: int
    parallel: Parallel
    volumes: tuple[Volume, ...]

    @reported
    def total_bytes(self) -> float:
        """All kinds together."""
        return sum(volume.size_bytes for volume in self.volumes)


@dataclass(frozen=True)
class Transfer(Answer):
    """A transfer over a link that carries nothing else."""

    schema_name: ClassVar[str] = "transfer"

    size_bytes: float
    rate_Bps: float
    time_s: float


@dataclass(frozen=True)
class ModelList(Answer):
    """The models that ship, and how many parameters they have."""

    schema_name: ClassVar[str] = "models"

    models: dict[str, float]


def volumes(job: JobSource, *, gpus: int | None = None) -> Volumes:
    """Count how many bytes one GPU sends in a step, by kind of parallelism, with formula and place in the graph.

    >>> volumes("llama3-70b", gpus=512).gpus
    512
    """
    described = job_of(job)
    split = described.parallel.fill(gpus or described.gpus)
    num = split.model_ranks * (split.dp or 1)
    described = described.on(num)
    return Volumes(described.name, num, described.parallel, tuple(count(described) + unpriced_volumes(described)))


def transfer(*, size: str | None = None, rate: str | None = None, time: str | None = None) -> Transfer:
    """Return size, rate and time of a transfer of which two are given.

    >>> transfer(size="125MB", rate="1Gbps").time_s
    1.0
    """
    if sum(text is not None for text in (size, rate, time)) != 2:
        raise UsageError("two of `size`, `rate` and `time` give the third.", hint="Leave one of them out.")
    size_bytes = float(units.size(size)) if size else units.rate(rate or "") * units.time(time or "")
    rate_Bps = units.rate(rate) if rate else size_bytes / _positive(units.time(time or ""), "`time`")
    time_s = units.time(time) if time else size_bytes / _positive(rate_Bps, "`rate`")
    return Transfer(size_bytes, rate_Bps, time_s)


def _positive(value: float, argument: str) -> float:
    if value <= 0:
        raise UsageError(f"{argument} is {value:g}; it must be above 0.")
    return value


@question(
    "syncline step volumes job.yaml",
    "syncline step volumes job.yaml --gpus 1024 --json",
    "syncline step volumes --models",
    "syncline step volumes --size 140GB --rate 100Gbps",
)
def traffic(
    job: Annotated[JobSource | None, Parameter(f"A job file ({cite('job-file')}).", kind=str)] = None,
    *,
    gpus: Annotated[int | None, Parameter("GPUs, where the job file does not fix dp.")] = None,
    models: Annotated[bool, Parameter("List the models that ship, with their parameters.")] = False,
    size: Annotated[str | None, Parameter("With `rate` or `time`: bytes over one link, without a job.")] = None,
    rate: Annotated[
        str | None, Parameter("With `size`: how long it takes. With `time`: how much that carries.")
    ] = None,
    time: Annotated[str | None, Parameter("With `size`: the rate that it needs.")] = None,
) -> Volumes | Transfer | ModelList:
    """Count how many bytes one GPU sends in a step, by kind of parallelism, with formula and place in the graph.

    Without a job: two of `size`, `rate` and `time` give the third, for a link that carries nothing else.
    """
    if models:
        return ModelList({name: model(name).params for name in names()})
    if size is not None or rate is not None or time is not None:
        return transfer(size=size, rate=rate, time=time)
    if job is None:
        raise UsageError("no job is given.", hint="Name a job file, or give two of `size`, `rate` and `time`.")
    return volumes(job, gpus=gpus)
