"""What went wrong first, from logs of any size?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from syncline.describe.plain import JsonObject
from syncline.diagnose import Cause, Diagnosis, read_rules, shipped_rules
from syncline.diagnose import diagnose as run
from syncline.finding import Severity
from syncline.questions.answer import Answer
from syncline.questions.inputs import Cluster, built


@dataclass(frozen=True, eq=False)
class DiagnosisAnswer(Answer):
    """First causes with the lines that show them, what they mean, what to do, and what they led to."""

    schema_name: ClassVar[str] = "diagnose"

    diagnosis: Diagnosis = field(repr=False)

    @property
    def causes(self) -> Sequence[Cause]:
        return self.diagnosis.causes

    @property
    def severity(self) -> Severity:
        """The worst of what was found."""
        return self.diagnosis.severity

    def to_json(self) -> JsonObject:
        return self.diagnosis.to_json()


def diagnose(
    logs: str | Path | Sequence[str | Path],
    *,
    rules: Sequence[str | Path] = (),
    cluster: Cluster | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> DiagnosisAnswer:
    """Say what went wrong first in logs: files, folders, or "-" for stdin; plain or compressed."""
    book = shipped_rules()
    for path in rules:
        book = read_rules(Path(path), book)
    named = [logs] if isinstance(logs, (str, Path)) else list(logs)
    fabric = built(cluster) if cluster is not None else None
    told = on_bytes or (lambda count: None)
    return DiagnosisAnswer(run([str(log) for log in named], rules=book, cluster=fabric, on_bytes=told))
