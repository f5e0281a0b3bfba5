"""Were the predictions right: calibrate, predict, run on an emulated copy of a cluster, and compare?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from syncline.describe.plain import JsonObject
from syncline.questions.answer import Answer, Output, page_output
from syncline.rehearse.job import load_job
from syncline.rehearse.rehearse import Rehearsal
from syncline.rehearse.rehearse import rehearse as run


@dataclass(frozen=True, eq=False)
class RehearsalAnswer(Answer):
    """Predicted beside measured for collectives and training steps, and a recommended synchronisation."""

    schema_name: ClassVar[str] = "rehearse"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write the report: timelines, links and the loss.")

    rehearsal: Rehearsal = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.rehearsal.to_json()


def rehearse(
    cluster: str | Path,
    job: str | Path | None = None,
    *,
    scale: float | None = None,
    hosts: int | None = None,
    loopback: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
) -> RehearsalAnswer:
    """Calibrate, predict, run, compare; recommend a way to synchronise and train with it."""
    described = load_job(Path(job) if job is not None else None)
    return RehearsalAnswer(
        run(str(cluster), described, scale=scale, hosts=hosts, loopback=loopback, tell=tell, warn=warn)
    )
