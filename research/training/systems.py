"""The systems file: what each source ran that its rows do not say.

    systems:
      - source: "a paper"            # a pattern in the source column (`system`: plain text); notes, model, gpu too
        cluster: {host: dgx-h100, network: rail-optimized NDR}
        job: {recompute: full, software: {framework: megatron, year: 2023}}
        convention: megatron-model

Every entry that matches a row adds to the ones before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from research.published import DATA
from research.training.rows import PublishedRow

from syncline.describe.document import read_document, read_text
from syncline.describe.mistakes import first_mistake
from syncline.errors import DescriptionError
from syncline.validation.metrics import CONVENTIONS
from syncline.workload.job import Job, Overlap, Software, Sync
from syncline.workload.parallel import Parallel

PATTERNS = ("source", "notes", "model", "gpu", "zero_or_fsdp")
_KEYS = {
    *PATTERNS, "job", "cluster", "network", "convention", "precision", "micro", "virtual", "skip", "remark",
    "peak_tflops", "software", "calibrate", "vocab", "mock_vocab",
}  # fmt: skip
_PARTS: Mapping[str, type[BaseModel]] = {"software": Software, "parallel": Parallel, "overlap": Overlap, "sync": Sync}


@dataclass(frozen=True)
class TrainingSystemEntry:
    """One entry of a systems file."""

    patterns: Mapping[str, re.Pattern[str]]
    fields: Mapping[str, Any]

    def matches(self, row: PublishedRow) -> bool:
        """Say whether this entry speaks of a row."""
        return all(pattern.search(row.text(column)) for column, pattern in self.patterns.items())


def read_systems(text: str, where: str) -> tuple[TrainingSystemEntry, ...]:
    """Read a systems file; errors name file and line."""
    document = read_document(text, where)
    entries = document.data.get("systems") if isinstance(document.data, dict) else document.data
    if not isinstance(entries, list):
        raise DescriptionError("a systems file is a list of entries under `systems:`.", where=where)
    path: tuple[str, ...] = ("systems",) if isinstance(document.data, dict) else ()
    return tuple(_entry(entry, document.where((*path, number))) for number, entry in enumerate(entries))


def load_systems(path: str | Path | None) -> tuple[TrainingSystemEntry, ...]:
    """Return the entries that ship, with those of a file laid over them."""
    text = (DATA / "training-systems.yaml").read_text(encoding="utf-8")
    shipped = read_systems(text, "training-systems.yaml")
    return shipped if path is None else (*shipped, *read_systems(read_text(Path(path)), str(path)))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `over` laid on it, mapping by mapping."""
    out = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = merged(out[key], value) if both else value
    return out


def _entry(entry: Any, where: str) -> TrainingSystemEntry:
    if not isinstance(entry, dict) or not set(entry) & {*PATTERNS, "system"}:
        raise DescriptionError("an entry needs a pattern: `source`, `notes`, `model` or `gpu`.", where=where)
    if "system" in entry:  # plain text, as in the systems file of collectives
        entry = {"source": re.escape(str(entry["system"]))} | {k: v for k, v in entry.items() if k != "system"}
    if unknown := {str(key) for key in entry} - _KEYS:
        raise DescriptionError(
            f'unknown key "{min(unknown)}".', where=where, hint=f"Known: {', '.join(sorted(_KEYS))}."
        )
    problem = _problem(entry)
    if problem:
        raise DescriptionError(problem, where=where)
    try:
        patterns = {c: re.compile(str(entry[c])) for c in PATTERNS if c in entry}
    except re.error as error:
        raise DescriptionError(f"not a pattern: {error}.", where=where) from None
    fields = {k: v for k, v in entry.items() if k not in patterns and k != "calibrate"}
    return TrainingSystemEntry(patterns, _with_software(fields))


def _with_software(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with framework and year of `software` in the job, where a job file has them."""
    software = {k: v for k, v in dict(fields.pop("software", {})).items() if k in ("framework", "year")}
    return merged(fields, {"job": {"software": software}}) if software else fields


def _problem(entry: Mapping[str, Any]) -> str:
    """Return what is wrong with an entry, empty where nothing is."""
    for key in ("network", "peak_tflops"):
        value = entry.get(key, 1.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            what = "a rate of one GPU in Gb/s" if key == "network" else "a rate"
            return f"`{key}` must be {what} above 0, not {value!r}."
    if entry.get("convention", CONVENTIONS[0]) not in CONVENTIONS:
        return f'there is no FLOP convention "{entry["convention"]}"; known: {", ".join(CONVENTIONS)}.'
    micro, virtual = entry.get("micro", 1), entry.get("virtual", 1)
    numbers = list(micro.values()) if isinstance(micro, dict) else [micro]
    if not all(number in ("local", "whole") or (isinstance(number, int) and number >= 1) for number in numbers):
        return f"`micro` must be a number, `local`, `whole` or {{pipeline: 1, otherwise: 4}}, not {micro!r}."
    if virtual != "deepest" and not (isinstance(virtual, int) and virtual >= 1):
        return f"`virtual` must be a number or `deepest`, not {virtual!r}."
    vocab = entry.get("vocab", 1)
    if isinstance(vocab, bool) or not isinstance(vocab, int) or vocab < 1:
        return f"`vocab` must be a number of tokens, not {vocab!r}."
    if not isinstance(entry.get("software", {}), dict):
        return f"`software` must be a mapping, not {entry['software']!r}."
    return _job_problem(entry.get("job", {}))


def _job_problem(job: Any) -> str:
    if not isinstance(job, dict):
        return f"`job` must be a mapping of job-file facts, not {job!r}."
    if unknown := {str(key) for key in job} - set(Job.model_fields):
        return f'`job` has the unknown key "{min(unknown)}".'
    for key in ("software", "parallel", "overlap", "sync", "batch"):
        if not isinstance(job.get(key, {}), dict):
            return f"`job.{key}` must be a mapping, not {job[key]!r}."
    try:
        for key, part in _PARTS.items():
            part.model_validate(job.get(key, {}))
    except ValidationError as error:
        return f"`job.{key}`: {first_mistake(error)}."
    return ""
