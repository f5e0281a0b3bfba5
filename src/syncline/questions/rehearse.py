"""Were the predictions right: predict, run on an emulated copy of a cluster, and compare; a script, or a stand-in?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe import units
from syncline.describe.guide import cite
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.rehearsal.job import load_job
from syncline.rehearsal.rehearse import Rehearsal
from syncline.rehearsal.rehearse import rehearse as run
from syncline.rehearsal.script import ScriptRehearsal, rehearse_script


@dataclass(frozen=True, eq=False)
class RehearsalAnswer(Answer):
    """Predicted beside measured for collectives and training steps, and a recommended synchronisation."""

    schema_name: ClassVar[str] = "rehearse"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write the report: timelines, links and the loss.")

    rehearsal: Rehearsal = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.rehearsal.to_json()


@dataclass(frozen=True, eq=False)
class ScriptRehearsalAnswer(Answer):
    """A script's step: predicted, run on an emulated copy of a cluster, and where the two differ."""

    schema_name: ClassVar[str] = "rehearse-script"
    content: ClassVar[str] = "found"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write the report.")

    found: ScriptRehearsal = field(repr=False)


def _subject(words: Sequence[str] | None) -> str | tuple[str, ...] | None:
    """Return the job file that a command line names, or the command that would start a script."""
    if words and len(words) == 1 and not words[0].endswith(".py"):
        return words[0]
    return tuple(words) if words else None


@question(
    "syncline rehearse cluster.yaml -- torchrun --nnodes 4 train.py",
    "syncline rehearse cluster.yaml --scale 0.1 -- python train.py",
    "syncline rehearse cluster.yaml job.yaml --scale 0.1 --html rehearsal.html",
    "syncline rehearse cluster.yaml --loopback",
    help="""Predict, run on an emulated copy of the cluster, and compare.

    With the command that would start a training job after `--`, the script itself runs: its step is predicted from what
    it computes on this machine's processors and what it sends, then measured between ranks on shaped links. `python
    train.py` starts one rank a GPU of the cluster. Ranks compute on processors and talk through gloo.

    Without one a small model stands in: collectives and training under several synchronisations, as JOB describes.
    """,
)
def rehearse(
    cluster: Annotated[str | Path, Parameter("A cluster file or a preset.", kind=str)],
    job: Annotated[
        str | Path | Sequence[str] | None,
        Parameter(
            f"A file of what to rehearse ({cite('rehearse')}; default: a little of all), or what would start the job.",
            metavar="[JOB | -- COMMAND]",
            kind=list[str],
            read=_subject,
        ),
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
    timeout: Annotated[str, Parameter("The longest that one part of a script's rehearsal may run.")] = "10min",
    tell: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
) -> RehearsalAnswer | ScriptRehearsalAnswer:
    """Predict, run on an emulated copy of a cluster, and compare: a script (`job` is its command), or a stand-in."""
    if job is not None and not isinstance(job, str | Path):
        if loopback:
            raise UsageError(
                "a script's own gloo cannot be held to a rate: `loopback` is for the stand-in.",
                hint="Leave it out; `syncline lab check` says what a lab needs.",
            )
        limit_s = units.time(timeout)
        return ScriptRehearsalAnswer(
            rehearse_script(str(cluster), job, scale=scale, hosts=hosts, timeout_s=limit_s, tell=tell, warn=warn)
        )
    described = load_job(Path(job) if job is not None else None)
    return RehearsalAnswer(
        run(str(cluster), described, scale=scale, hosts=hosts, loopback=loopback, tell=tell, warn=warn)
    )


COMMANDS = {"": rehearse}
