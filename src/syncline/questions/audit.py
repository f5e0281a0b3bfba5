"""Is a host fit to train on, and who among many is the odd one out?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from syncline.auditing.audit import audit as audit_host
from syncline.auditing.audit import select
from syncline.auditing.expect import Expect, from_cluster, scaled
from syncline.auditing.matrix import Matrix
from syncline.auditing.matrix import compare as compare_hosts
from syncline.auditing.report import HostReport, read_reports
from syncline.describe.plain import JsonObject
from syncline.finding import Finding, Severity, worst
from syncline.host.host import Host
from syncline.host.root import Root
from syncline.questions.answer import Answer


@dataclass(frozen=True, eq=False)
class AuditAnswer(Answer):
    """What was found on each host, and across them where there are several."""

    schema_name: ClassVar[str] = "audit"

    reports: tuple[HostReport, ...]
    across: Matrix | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found, host by host, then across hosts."""
        found = [finding for report in self.reports for finding in report.findings]
        return (*found, *(self.across.findings if self.across else ()))

    @property
    def severity(self) -> Severity:
        """The worst of what was found."""
        return worst(list(self.findings))

    def without_unknown(self) -> AuditAnswer:
        """Return the answer without what could not be checked."""
        reports = tuple(report.without_unknown() for report in self.reports)
        return replace(self, reports=reports, across=compare_hosts(list(reports)) if self.across else None)

    def to_json(self) -> JsonObject:
        if len(self.reports) == 1 and self.across is None:
            return self.reports[0].to_json()
        hosts: JsonObject = {"hosts": [report.to_json() for report in self.reports]}
        if self.across is None:
            return hosts
        matrix = [
            {"fact": row.fact, "majority": row.majority, "odd": row.odd, "missing": list(row.missing),
             "values": dict(row.values)}
            for row in self.across.rows
        ]  # fmt: skip
        return {**hosts, "matrix": matrix, "findings": [finding.to_json() for finding in self.across.findings]}


def audit(
    roots: Sequence[str | Path] = (),
    *,
    cluster: str | None = None,
    host: str | None = None,
    only: Sequence[str] = (),
    ignore: Sequence[str] = (),
    active: bool = False,
    anyway: bool = False,
) -> AuditAnswer:
    """Check this host, or captured trees, for what slows or breaks training: read-only, in seconds.

    `active` also loads processors, memory, disks, GPUs and RDMA ports for seconds, unless somebody works there.
    """
    select(list(only), list(ignore), active=active)  # a wrong pattern is an error before anything is read
    reports = []
    for one in [Root.under(Path(path)) for path in roots] or [Root.live()]:
        expect = from_cluster(cluster, host or Host(one).name) if cluster else Expect()
        if (scale := one.environment().get("SYNCLINE_LAB_SCALE")) is not None:
            expect = scaled(expect, float(scale))
        reports.append(audit_host(one, expect, only=list(only), ignore=list(ignore), active=active, anyway=anyway))
    return AuditAnswer(tuple(reports), compare_hosts(reports) if len(reports) > 1 else None)


def audit_matrix(reports: Sequence[str | Path]) -> AuditAnswer:
    """Compare reports of hosts, as `syncline audit --json` wrote them: the majority decides, ties are reported."""
    read = read_reports([Path(path) for path in reports])
    return AuditAnswer(tuple(read), compare_hosts(read))
