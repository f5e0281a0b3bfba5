"""Were the predictions right: calibrate, predict, run on an emulated copy of a cluster, and compare?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.guide import cite
from syncline.describe.plain import JsonObject
from syncline.questions.answer import Answer, Output, page_output
from syncline.questions.parameter import Parameter, question
from syncline.rehearsal.job import load_job
from syncline.rehearsal.rehearse import Rehearsal
from syncline.rehearsal.rehearse import rehearse as run


@dataclass(frozen=True, eq=False)
class RehearsalAnswer(Answer):
    """Predicted beside measured for collectives and training steps, and a recommended synchronisation."""

    schema_name: ClassVar[str] = "rehearse"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write the report: timelines, links and the loss.")

    rehearsal: Rehearsal = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.rehearsal.to_json()


@question(
    "syncline rehearse cluster.yaml",
    "syncline rehearse cluster.yaml job.yaml --scale 0.1 --html rehearsal.html",
    "syncline rehearse cluster.yaml --loopback",
)
def rehearse(
    cluster: Annotated[str | Path, Parameter("A cluster file or a preset.", kind=str)],
    job: Annotated[
        str | Path | None, Parameter(f"What to rehearse ({cite('rehearse')}); default: a little of all.")
    ] = None,
    *,
    scale: Annotated[float | None, Parameter("Factor on all rates (default: what this machine can).")] = None,
    hosts: Annotated[int | None, Parameter("Only this many hosts of the cluster.")] = None,
    loopback: Annotated[
        bool,
        Parameter(
            "Without a lab: over loopback, at rates that the runtime itself holds. Chosen where no lab can be made."
        ),
    ] = False,
    tell: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
) -> RehearsalAnswer:
    """Calibrate, predict, run, compare; recommend a way to synchronise and train with it."""
    described = load_job(Path(job) if job is not None else None)
    return RehearsalAnswer(
        run(str(cluster), described, scale=scale, hosts=hosts, loopback=loopback, tell=tell, warn=warn)
    )


COMMANDS = {"": rehearse}
