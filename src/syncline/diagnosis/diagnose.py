"""Logs in, first causes out: one pass over every file, then a verdict on what the rules have seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.describe.model import Handle, reported
from syncline.diagnosis.settings import settings
from syncline.finding import Finding, Label, Severity, worst
from syncline.logs.causes import Cause, arrange, rivals
from syncline.logs.judge import judge
from syncline.logs.read_rules import shipped_rules
from syncline.logs.reading import read
from syncline.logs.rule import LogRule
from syncline.logs.source import Sources, Unread
from syncline.logs.tally import rows_of
from syncline.logs.unexplained import FAILURES, OpenLine, open_lines

if TYPE_CHECKING:
    from syncline.fabric import Fabric


@dataclass(frozen=True)
class Diagnosis:
    """What went wrong, first causes first, and what was and was not read."""

    causes: tuple[Cause, ...]
    unread: tuple[Unread, ...]
    num_files: int
    num_bytes: int
    num_lines: int
    unexplained: tuple[OpenLine, ...] = ()
    """Lines at error and warning level that no rule explains, the most telling first."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """By file: who writes in its form; empty where its form is not known."""
    table: Handle[str] = ""
    """The first file with a table of nccl-tests, which `bench --read` judges."""

    @property
    def findings(self) -> list[Finding]:
        """Every finding, each cause before its effects."""
        return [finding for cause in self.causes for finding in cause.all()]

    @reported
    def severity(self) -> Label:
        """The worst finding's; unknown where nothing could be read, or what was read is not understood."""
        if self.nothing_read or ((self.unread or not self.understood) and not self.causes):
            return Severity.UNKNOWN
        return worst(self.findings)

    @reported
    def understood(self) -> bool:
        """Say whether the form of every log is known and no failure on a line is left without a rule."""
        return all(self.forms.values()) and not any(line.level in FAILURES for line in self.unexplained)

    @property
    def nothing_read(self) -> bool:
        """Say whether no byte of any log was read, though logs were named."""
        return not self.num_files or not self.num_bytes


def diagnose(
    paths: Sequence[str | Path],
    *,
    rules: Mapping[str, LogRule] | None = None,
    cluster: Fabric | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Diagnosis:
    """Read logs (files, folders, "-" for stdin) and say what went wrong; `cluster` sharpens the environment lint."""
    sources = Sources(paths, on_bytes=on_bytes)
    reading = read(sources, shipped_rules() if rules is None else rules)
    causes = rivals(arrange(judge(reading.tallies, settings(reading.tallies, cluster))))
    bench = rows_of(reading.tallies, "signal.bench")
    table = next((row.evidence.path for row in bench if row.get("busbw")), "")
    return Diagnosis(
        causes,
        tuple(sources.unread),
        sources.num_files,
        sources.num_bytes,
        reading.num_lines,
        open_lines(reading.tallies, reading.lengths),
        {head.name: head.forms.source for head in reading.heads},
        table,
    )
