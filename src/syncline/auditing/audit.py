"""Audit a host: run the rules, and return what they found, what they could not tell and what did not apply.

report = audit(Root.live())
report.status                     # Severity.WARNING
report.findings[0].fix
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Sequence

from syncline.auditing.active import ACTIVE_RULES
from syncline.auditing.active.busy import HARMLESS, why_busy
from syncline.auditing.checks import RULES
from syncline.auditing.checks.names import resolved_names
from syncline.auditing.expect import Expect
from syncline.auditing.facts import facts
from syncline.auditing.measure import measure
from syncline.auditing.report import HostReport
from syncline.auditing.rule import CAPABILITIES, AuditRule, CannotTell
from syncline.describe.guide import cite
from syncline.errors import UsageError
from syncline.finding import Finding, Severity
from syncline.host.host import Host
from syncline.host.root import Root

_SHOWN_PATHS = 3


def audit(
    root: Root,
    expect: Expect | None = None,
    *,
    only: Sequence[str] = (),
    ignore: Sequence[str] = (),
    active: bool = False,
    anyway: bool = False,
) -> HostReport:
    """Run all rules (or those that match `only`, less those that match `ignore`) on one host.

    `active` also runs those that load the host for seconds, unless somebody is at work there; `anyway` even then.
    """
    host, expect = Host(root), expect or Expect()
    if active and not root.is_live:
        raise UsageError(f"{root.source} is a capture, and cannot be loaded.", hint="Run --active on the host itself.")
    began_s = time.monotonic()
    findings: list[Finding] = []
    skipped: dict[str, list[str]] = {}
    passed = []
    busy = why_busy(host) if active and not anyway else ""
    if busy:
        findings.append(_not_loaded(host.name, busy))
    for rule in select(only, ignore, active=active):
        spared = busy and rule.id in ACTIVE_RULES and rule.id not in HARMLESS
        reason = f"the host is at work: {busy}" if spared else ""
        reason = reason or _missing(host, expect, rule)
        if reason:
            skipped.setdefault(reason, []).append(rule.id)
            continue
        found = run(host, expect, rule)
        findings += found
        if not found:
            passed.append(rule.id)
    known = facts(host)
    with root.noting():
        names = resolved_names(host)
    return HostReport(
        host=host.name,
        source=root.source,
        findings=tuple(sorted(findings, key=_order)),
        passed=tuple(passed),
        skipped={reason: tuple(ids) for reason, ids in skipped.items()},
        unreadable=dict(sorted(root.problems.items())),
        facts=known,
        measures=measure(host, active) | _loaded_measures(host),
        names=names,
        addresses=tuple(sorted(host.own_addresses)),
        seconds=round(time.monotonic() - began_s, 3),
    )


def select(only: Sequence[str] = (), ignore: Sequence[str] = (), *, active: bool = False) -> list[AuditRule]:
    """Return the rules that match a list of ids or patterns (`net.*`), in the order of their subjects.

    With `active` those that load the host come last.
    """
    book = {**RULES, **ACTIVE_RULES} if active else RULES
    for pattern in (*only, *ignore):
        if not any(fnmatch.fnmatchcase(id_, pattern) for id_ in book):
            if any(fnmatch.fnmatchcase(id_, pattern) for id_ in ACTIVE_RULES):
                raise UsageError(f'"{pattern}" puts load on the host, and runs only on demand.', hint="Add --active.")
            raise UsageError(f'no rule matches "{pattern}".', hint="List the rules with `syncline audit rules`.")
    return [
        rule
        for rule in book.values()
        if (not only or any(fnmatch.fnmatchcase(rule.id, p) for p in only))
        and not any(fnmatch.fnmatchcase(rule.id, p) for p in ignore)
    ]


def run(host: Host, expect: Expect, rule: AuditRule) -> list[Finding]:
    """Run one rule; what it could not read becomes an UNKNOWN finding beside what it found."""
    found: list[Finding] = []
    reason = ""
    with host.root.noting() as problems:
        try:
            for seen in rule.check(host, expect):
                found.append(rule.finding(host.name, seen))  # noqa: PERF401  (what was seen before CannotTell counts)
        except CannotTell as error:
            reason = str(error)
    if reason or problems:
        reads = [f"{path}: {why}" for path, why in problems.items()]
        more = f" (and {len(reads) - 1} more)" if len(reads) > 1 else ""
        found.append(rule.unknown(host.name, reason or f"{reads[0]}{more}", tuple(reads[:_SHOWN_PATHS])))
    return found


def _not_loaded(host: str, busy: str) -> Finding:
    return Finding(
        "active.busy", Severity.UNKNOWN, host, f"not loaded: {busy}", "an idle host", (),
        "Tests under load would take what a job needs, and measure the job.",
        "Drain the host first; --anyway loads it all the same.", cite("audit"),
    )  # fmt: skip


def _loaded_measures(host: Host) -> dict[str, float]:
    """Return what tests under load measured, to compare hosts: memory of the host, the slowest GPU of each test."""
    found = {"memory copy": float(host.made["cpu_stream"][0])} if "cpu_stream" in host.made else {}
    if "gpu_load" in host.made:
        load = host.made["gpu_load"][0]
        for test, name in (("matrix", "gpu matrix"), ("memory", "gpu memory"), ("all-reduce", "gpu all-reduce")):
            values = [float(row["value"]) for row in load.of(test)]
            found |= {name: min(values)} if values else {}
    return found


def _missing(host: Host, expect: Expect, rule: AuditRule) -> str:
    """Return why a rule does not apply, "" where it does."""
    for need in rule.needs.split():
        reason, present = CAPABILITIES[need]
        if not present(host, expect):
            return reason
    return ""


def _order(finding: Finding) -> tuple[int, str, str]:
    rank = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.UNKNOWN: 2, Severity.OK: 3}
    return rank[finding.severity], finding.rule, finding.place
