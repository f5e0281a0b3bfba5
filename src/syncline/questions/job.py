"""The job that a question is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from syncline.describe.guide import cite
from syncline.plan.named_job import named_job
from syncline.questions.parameter import Parameter
from syncline.workload.job import Job
from syncline.workload.read_job import load_job

JobSource = str | Path | Mapping[str, object] | Job
"""A job file, the name of a job that ships, a description as a mapping, or a Job."""

JobArgument = Annotated[JobSource, Parameter(f"A job file ({cite('job-file')}), or a shipped name.", kind=str)]


def job_of(job: JobSource) -> Job:
    """Return the Job of a file, of a name that ships, of a mapping, or the Job itself."""
    if isinstance(job, Job):
        return job
    return named_job(str(job)) if isinstance(job, (str, Path)) else load_job(job)
