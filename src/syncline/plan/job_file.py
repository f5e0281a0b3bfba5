"""The job of a plan as a file: what `syncline step` and the launchers read."""

from __future__ import annotations

import yaml

from syncline.workload.job import Job
from syncline.workload.zoo import names


def job_text(job: Job) -> str:
    """Return the YAML of a job whose split is decided."""
    data = job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    if job.model.name in names():
        data["model"] = job.model.name
    split = job.parallel.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    data["parallel"] = split | {"tp": job.parallel.tp, "pp": job.parallel.pp}
    data["batch"] = {"global": job.batch.global_, "micro": job.batch.micro, "sequence": job.batch.sequence}
    data |= {"recompute": job.recompute}
    if overlap := job.overlap.model_dump(exclude_none=True):
        data["overlap"] = overlap
    return yaml.safe_dump(data, sort_keys=False)
