"""Jobs by name: those that ship with syncline, and files, read and written."""

from __future__ import annotations

import difflib
from functools import cache
from importlib import resources
from pathlib import Path

import yaml

from syncline.describe.document import read_document
from syncline.errors import FileError, SynclineError
from syncline.workload.job import Job
from syncline.workload.read_job import load_job, parse_job
from syncline.workload.shape import Shape
from syncline.workload.zoo import model, names

_FOLDER = resources.files("syncline.planning") / "jobs"
DEFAULT_JOB = "llama3-70b"
#: Of a job that is a model's name: 4 M tokens a step, as most published runs of 2024 and after, in sequences of 8,192.
TOKENS, SEQUENCE, SAMPLES = 2**22, 8192, 4096


@cache
def job_names() -> tuple[str, ...]:
    """Return the names of the jobs that ship."""
    return tuple(
        sorted(entry.name.removesuffix(".yaml") for entry in _FOLDER.iterdir() if entry.name.endswith(".yaml"))
    )


def named_job(name: str) -> Job:
    """Return the job of a file, or one that ships."""
    if name in job_names():
        job = parse_job(read_document((_FOLDER / f"{name}.yaml").read_text("utf-8"), f"job {name}"), Path())
        return job.model_copy(update={"name": name})
    path = Path(name)
    if path.exists() or path.suffix in (".yaml", ".yml", ".json"):
        return load_job(path)
    if name in names():
        return _model_job(name)
    close = difflib.get_close_matches(name, job_names(), n=3, cutoff=0.3)
    raise FileError(
        f'there is no job file "{name[:200]}".',
        detail=f"Jobs that ship: {', '.join(close or job_names())}.",
        hint="Two lines make one: `model: llama3-70b` and `batch: {global: 1024, sequence: 8192}`.",
    )


def _model_job(name: str) -> Job:
    """Return a job that trains a model by its name, with a batch that is assumed and said so."""
    positions = getattr(model(name), "positions", 0)
    length = min(SEQUENCE, 1 << positions.bit_length() - 1) if positions else SEQUENCE
    try:
        job = load_job({"model": name, "batch": {"global": TOKENS // length, "sequence": length}})
    except SynclineError:  # a list of layers has samples, not tokens
        return load_job({"model": name, "batch": {"global": SAMPLES}}).model_copy(update={"name": name})
    return job.model_copy(update={"name": name})


def assumed_batch(job: Job) -> str:
    """Say what a job that was asked for by the name of a model takes for granted; empty: it was described."""
    if job.name not in names() or job.name in job_names():
        return ""
    batch = job.batch
    of = f" of {batch.sequence:,} tokens" if isinstance(job.model, Shape) else ""
    return (
        f'"{job.name}" is a model: {batch.global_:,} sequences{of} a step, {job.precision} (a job file says otherwise)'
    )


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
