"""What an audit of one host says: findings, what was fine, what did not apply, what could not be read, and facts.

Its fields are its JSON, which is read back, so that reports of many hosts can be collected and compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from syncline.describe.model import reported
from syncline.errors import DescriptionError, FileError
from syncline.finding import Finding, Label, Severity, worst

MAX_REPORT_BYTES = 64 * 2**20


@dataclass(frozen=True)
class HostReport:
    """The audit of one host."""

    host: str
    source: str
    findings: tuple[Finding, ...] = ()
    passed: tuple[str, ...] = ()
    skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Why -> the rules that do not apply."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    """What should be equal on all hosts of a job, for the matrix."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Figures to compare across hosts."""
    lost: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Other host -> share of small and of full-size packets lost on the way there and back."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name -> the addresses this host takes it for; none where it asked and nobody knew."""
    addresses: tuple[str, ...] = ()
    """Where other hosts can reach this one."""
    seconds: float = 0.0

    @reported
    def status(self) -> Label:
        """The worst of what was found."""
        return worst(self.findings)

    def count(self, severity: Severity) -> int:
        """Return how many findings are of that severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def without_unknown(self) -> HostReport:
        """Return the report without UNKNOWN findings."""
        kept = tuple(finding for finding in self.findings if finding.severity is not Severity.UNKNOWN)
        return replace(self, findings=kept)


REPORT = TypeAdapter(HostReport)
"""Reads and writes a report as JSON."""


def read_reports(paths: list[Path]) -> list[HostReport]:
    """Read reports: files with one audit each, or with one on each line, as `srun` mixes them."""
    reports: list[HostReport] = []
    for path in paths:
        reports += _read(path)
    if not reports:
        raise FileError("no report in these files.", hint="Each comes from `syncline audit --json` on one host.")
    return reports


def report_of(row: object, where: str) -> HostReport:
    """Return the report that a JSON object holds."""
    if not isinstance(row, dict) or not {"host", "findings"} <= row.keys():
        raise DescriptionError(
            "this is not an audit report: it lacks a host and its findings.",
            where=where,
            hint="Make one with `syncline audit --json`.",
        )
    try:
        return REPORT.validate_python(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise DescriptionError(f"the report is damaged ({reason}).", where=where)


def _read(path: Path) -> list[HostReport]:
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            raise FileError(
                f'"{path}" is larger than {MAX_REPORT_BYTES // 2**20} MiB.', hint="Collect fewer hosts in one file."
            )
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise FileError(
            f'cannot read "{path}": {error.strerror}.', hint="Name files that `syncline audit --json` wrote."
        ) from None
    decoder, at, found = json.JSONDecoder(), 0, []
    while (at := re.compile(r"\s*").match(text, at).end()) < len(text):  # type: ignore[union-attr]
        line = text.count("\n", 0, at) + 1
        try:
            data, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise DescriptionError(
                "this is not JSON.", where=f"{path} line {line}", hint="Was the output cut off?"
            ) from None
        rows = data["hosts"] if isinstance(data, dict) and isinstance(data.get("hosts"), list) else [data]
        found += [report_of(row, f"{path} line {line}") for row in rows]
    return found
