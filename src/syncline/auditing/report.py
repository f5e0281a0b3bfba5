"""What an audit of one host says: findings, what was fine, what did not apply, what could not be read, and facts.

A report goes to JSON and back, so that reports of many hosts can be collected and compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError, FileError
from syncline.finding import Finding, Severity, worst

SCHEMA = "syncline-audit/1"
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

    @property
    def status(self) -> Severity:
        return worst(self.findings)

    def count(self, severity: Severity) -> int:
        """Return how many findings are of that severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def without_unknown(self) -> HostReport:
        """Return the report without UNKNOWN findings."""
        kept = tuple(finding for finding in self.findings if finding.severity is not Severity.UNKNOWN)
        return replace(self, findings=kept)

    def to_json(self) -> JsonObject:
        """Return the report as plain values."""
        return {
            "schema": SCHEMA,
            "host": self.host,
            "source": self.source,
            "status": self.status.label,
            "findings": [finding.to_json() for finding in self.findings],
            "passed": list(self.passed),
            "not_applicable": {reason: list(ids) for reason, ids in self.skipped.items()},
            "unreadable": dict(self.unreadable),
            "facts": dict(self.facts),
            "measures": dict(self.measures),
            "lost": {peer: list(shares) for peer, shares in self.lost.items()},
            "names": {name: list(addresses) for name, addresses in self.names.items()},
            "addresses": list(self.addresses),
            "seconds": round(self.seconds, 3),
        }


_REPORT = TypeAdapter(HostReport)


def read_reports(paths: list[Path]) -> list[HostReport]:
    """Read reports: files with one JSON object each, or with one on each line, as `srun` mixes them."""
    reports: list[HostReport] = []
    for path in paths:
        reports += _read(path)
    if not reports:
        raise FileError("no report in these files.", hint="Each comes from `syncline audit --json` on one host.")
    return reports


def from_json(data: object, where: str) -> HostReport:
    """Return the report that a JSON object holds."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("host"), str):
        raise DescriptionError(
            f"this is not an audit report: it lacks schema {SCHEMA} and a host.",
            where=where,
            hint="Make one with `syncline audit --json`.",
        )
    try:
        findings = [{**row, "severity": Severity[str(row["severity"]).upper()]} for row in data.get("findings", ())]
        skipped = data.get("not_applicable", {})
        return _REPORT.validate_python({**data, "findings": findings, "skipped": skipped})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
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
        found += [from_json(row, f"{path} line {line}") for row in rows]
    return found
