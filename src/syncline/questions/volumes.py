"""How many bytes does each kind of parallelism send, and what do size, rate and time of a transfer make?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.questions.answer import Answer
from syncline.questions.job import JobSource, job_of
from syncline.workload.job import Job
from syncline.workload.volumes import Volume
from syncline.workload.volumes import volumes as count


@dataclass(frozen=True, eq=False)
class Volumes(Answer):
    """What one GPU sends in a step, by kind of parallelism."""

    job: Job = field(repr=False)
    num_gpus: int
    volumes: tuple[Volume, ...]

    @property
    def total_bytes(self) -> float:
        return sum(volume.size_bytes for volume in self.volumes)

    def to_json(self) -> JsonObject:
        return {
            "job": self.job.name, "gpus": self.num_gpus, "parallel": self.job.parallel.model_dump(),
            "volumes": [asdict(volume) for volume in self.volumes], "total_bytes": self.total_bytes,
        }  # fmt: skip


@dataclass(frozen=True)
class Transfer(Answer):
    """A transfer over a link that carries nothing else."""

    size_bytes: float
    rate_Bps: float
    time_s: float

    def to_json(self) -> JsonObject:
        return asdict(self)


def volumes(job: JobSource, *, gpus: int | None = None) -> Volumes:
    """Say how many bytes one GPU sends in a step, by kind of parallelism, with formula and place in the graph.

    >>> volumes("llama3-70b", gpus=512).num_gpus
    512
    """
    described = job_of(job)
    split = described.parallel.fill(gpus or described.gpus)
    num = split.model_ranks * (split.dp or 1)
    described = described.on(num)
    return Volumes(described, num, tuple(count(described)))


def transfer(*, size: str | None = None, rate: str | None = None, time: str | None = None) -> Transfer:
    """Return size, rate and time of a transfer of which two are given.

    >>> transfer(size="125MB", rate="1Gbps").time_s
    1.0
    """
    if sum(text is not None for text in (size, rate, time)) != 2:
        raise UsageError("two of --size, --rate and --time give the third.", hint="Leave one of them out.")
    size_bytes = float(units.size(size)) if size else units.rate(rate or "") * units.time(time or "")
    rate_Bps = units.rate(rate) if rate else size_bytes / _positive(units.time(time or ""), "--time")
    time_s = units.time(time) if time else size_bytes / _positive(rate_Bps, "--rate")
    return Transfer(size_bytes, rate_Bps, time_s)


def _positive(value: float, option: str) -> float:
    if value <= 0:
        raise UsageError(f"{option} is {value:g}; it must be above 0.")
    return value
