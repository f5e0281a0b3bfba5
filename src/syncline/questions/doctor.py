"""What is wrong, on which host and part, from whatever an incident left behind?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.model import Handle, handle
from syncline.diagnosis.bundle import pack
from syncline.diagnosis.doctor import Examination, examine, examine_host
from syncline.diagnosis.suspect import IncidentSuspect
from syncline.diagnosis.weighing import Measured
from syncline.errors import FileError
from syncline.finding import Severity
from syncline.logs.unexplained import OpenLine
from syncline.questions.answer import Answer, Output, Parameter, question
from syncline.questions.inputs import Cluster, built


@dataclass(frozen=True)
class UnreadFile:
    """A file that could not be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class DoctorAnswer(Answer):
    """Suspects, the likeliest first: host, part, probability, evidence, price and the next command."""

    schema_name: ClassVar[str] = "doctor"
    outputs: ClassVar[Mapping[str, Output]] = {
        "bundle": Output("Pack files and answer for a ticket, secrets removed.", lambda answer, path: answer.pack(path))
    }

    suspects: tuple[IncidentSuspect, ...]
    measured: Measured | None
    unexplained: tuple[OpenLine, ...]
    unread: tuple[UnreadFile, ...]
    hosts: tuple[str, ...]
    files: dict[str, str]
    cluster: str | None = None
    examination: Handle[Examination | None] = handle()

    @property
    def severity(self) -> Severity:
        """Critical where something is likely wrong, warning where something may be."""
        sure = max((one.probability for one in self.suspects), default=0.0)
        return Severity.CRITICAL if sure >= 0.5 else Severity.WARNING if sure >= 0.2 else Severity.OK

    def pack(self, path: str | Path) -> list[Path]:
        """Write an archive of the files that were read and of this answer, without secrets."""
        return pack(Path(path), list(self.files), str(self))


@question(
    "syncline doctor incident/ --cluster cluster.yaml",
    "syncline doctor incident/ --bundle ticket.tar.gz",
    "syncline doctor",
)
def doctor(
    folder: Annotated[
        Sequence[str], Parameter("Folders and files of an incident; without one, this host.", metavar="FOLDER")
    ] = (),
    *,
    cluster: Annotated[
        Cluster | None,
        Parameter("The cluster: prices every suspect.", names=("--cluster", "-c"), metavar="FILE|PRESET", kind=str),
    ] = None,
) -> DoctorAnswer:
    """Say what is wrong, on which host and part, from whatever there is; nothing is changed.

    It joins kernel logs, syslogs of switches, job logs, ethtool, ibstat, lspci, nvidia-smi, nccl-tests tables and
    flight-recorder dumps; hosts come from file names (`dmesg-gpu11.txt`), folders, pdsh's prefixes and lines. With
    `cluster` every suspect that slows a link becomes a fault of the cluster, is priced, and is compared with what
    nccl-tests measured.
    """
    fabric = built(cluster) if cluster is not None else None
    if isinstance(folder, (str, Path)):
        folder = (str(folder),)
    found = examine(list(folder), fabric) if folder else examine_host(fabric)
    if folder and not found.files:
        raise FileError("no file could be read.", hint="Name a folder with logs and tools' output, or a file of them.")
    return DoctorAnswer(
        found.suspects,
        found.measured,
        found.unexplained,
        tuple(UnreadFile(item.path, item.reason) for item in found.unread),
        found.hosts,
        dict(found.files),
        fabric.name if fabric is not None else None,
        examination=found,
    )


COMMANDS = {"": doctor}
RUNS_BARE = True
