"""Is a host fit to train on, and who among many is the odd one out?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

from syncline.auditing.audit import audit as audit_host
from syncline.auditing.audit import select
from syncline.auditing.expect import Expect, from_cluster, scaled
from syncline.auditing.matrix import Matrix
from syncline.auditing.matrix import compare as compare_hosts
from syncline.auditing.report import HostReport, read_reports
from syncline.auditing.rule import CAPABILITIES
from syncline.describe.model import reported
from syncline.finding import Action, Finding, Label, worst
from syncline.host.host import Host
from syncline.host.root import Root
from syncline.questions.answer import Answer


@dataclass(frozen=True)
class AuditAnswer(Answer):
    """What was found on each host, and across them where there are several."""

    schema_name: ClassVar[str] = "audit"

    hosts: tuple[HostReport, ...]
    across: Matrix | None = None
    """What differs between the hosts, where there are several."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found, host by host, then across hosts."""
        found = [finding for report in self.hosts for finding in report.findings]
        return (*found, *(self.across.findings if self.across else ()))

    @reported
    def severity(self) -> Label:
        """The worst of what was found."""
        return worst(list(self.findings))

    def without_unknown(self) -> AuditAnswer:
        """Return the answer without what could not be checked."""
        hosts = tuple(report.without_unknown() for report in self.hosts)
        return replace(self, hosts=hosts, across=compare_hosts(hosts) if self.across else None)


@dataclass(frozen=True)
class ListedCheck:
    """One rule, without what it runs."""

    id: str
    about: str
    severity: Label
    needs: str
    """What the question does not arise without, with spaces between."""
    action: Action
    meaning: str
    fix: str
    reference: str


@dataclass(frozen=True)
class AuditRules(Answer):
    """What is asked of a host."""

    schema_name: ClassVar[str] = "audit-rules"

    rules: tuple[ListedCheck, ...]
    needs: Mapping[str, str]
    """What a rule needs -> why it does not apply where that is missing."""


def audit_rules() -> AuditRules:
    """Return the rules, those that load the host last."""
    names = [one.name for one in fields(ListedCheck)]
    rules = tuple(ListedCheck(*(getattr(rule, name) for name in names)) for rule in select(active=True))
    return AuditRules(rules, {name: reason for name, (reason, _) in CAPABILITIES.items()})


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
