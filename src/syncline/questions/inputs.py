"""What most questions take: a cluster, a job, and what is assumed about money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from syncline.describe import units
from syncline.describe.document import read_document
from syncline.describe.guide import cite
from syncline.errors import UnitError, UsageError
from syncline.fabric import Fabric, load
from syncline.planning.named_job import named_job
from syncline.questions.answer import Parameter
from syncline.workload.job import Job
from syncline.workload.read_job import load_job

Cluster = str | Path | Mapping[str, object] | Fabric
"""A preset's name, a cluster file, a description as a mapping, or a Fabric that was built already."""

ClusterArgument = Annotated[Cluster, Parameter("A cluster file or a preset (`syncline fabric list`).", kind=str)]
"""The first argument of most questions."""

ClusterOption = Annotated[
    Cluster, Parameter("The cluster.", names=("--cluster", "-c"), metavar="FILE|PRESET", kind=str)
]
"""The cluster of questions that begin with something else."""


def built(cluster: Cluster) -> Fabric:
    """Return the Fabric of a preset, a file, a mapping, or the Fabric itself."""
    return cluster if isinstance(cluster, Fabric) else load(cluster)


JobSource = str | Path | Mapping[str, object] | Job
"""A job file, the name of a job that ships, a description as a mapping, or a Job."""

JobArgument = Annotated[JobSource, Parameter(f"A job file ({cite('job-file')}), or a shipped name.", kind=str)]


def job_of(job: JobSource, served: bool = False) -> Job:
    """Return the Job of a file, of a name that ships, of a mapping, or the Job itself.

    A load to serve is refused unless the question knows what to do with it.
    """
    if not isinstance(job, Job):
        job = named_job(str(job)) if isinstance(job, (str, Path)) else load_job(job)
    if job.kind == "serve" and not served:
        raise UsageError(
            f"{job.name} is a load to serve, and this question is about training.",
            hint="`syncline plan CLUSTER JOB` serves it; `syncline plan compare A B JOB` compares clusters for it, and "
            "`syncline plan compare JOB --gpus 128` fabrics.",
        )
    return job


def read_set(pairs: Sequence[str] | None) -> dict[str, object]:
    """Read NAME=VALUE pairs, each value as YAML."""
    values: dict[str, object] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f'--set "{pair}" has no value.', hint="Write --set NAME=VALUE.")
        values[name.strip()] = read_document(value, "--set").data
    return values


AssumeOption = Annotated[
    Mapping[str, object] | None,
    Parameter("One assumption about money: --set years=3.", names=("--set",), kind=list[str], read=read_set),
]
AssumptionsOption = Annotated[str | Path | None, Parameter("YAML with any assumption about money by name.")]
PricesOption = Annotated[str | Path | None, Parameter("CSV of prices instead of those that ship.")]
ReliabilityOption = Annotated[
    str | Path | None,
    Parameter("How often parts fail: llama3-405b, rsc-1, rsc-2, opt-175b, infinitehbd, or a CSV (a log of your own)."),
]
MoreOption = Annotated[bool, Parameter("Show everything, not the answer alone.")]
ProfileOption = Annotated[str | Path | None, Parameter("Measurements of this system (`syncline calibrate`).")]


def read_number(argument: str, given: str | float) -> float:
    """Read 250000, 4M, 2.5B or $500k.

    >>> read_number("budget", "$2.5M")
    2500000.0
    """
    try:
        return units.count(given)
    except UnitError:
        hint = "Write it as 250000, 4M or 500k."
        raise UsageError(f"`{argument}` must be a positive number, got {given}.", hint=hint) from None
