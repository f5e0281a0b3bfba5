"""An audit as text: a first line that stands alone, then each finding with what to do, then what was not checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from syncline.auditing.matrix import Matrix
from syncline.auditing.report import HostReport
from syncline.describe.names import few
from syncline.describe.units import counted
from syncline.finding import Action, Finding, Severity, worst
from syncline.questions.audit import AuditAnswer

_MAX_IN_FIRST_LINE = 3
_MAX_ALIKE = 4


def first_line(reports: Sequence[HostReport], matrix: Matrix | None = None) -> str:
    """Return one line for a pager: how bad, how much, where, what."""
    across = matrix.findings if matrix else ()
    findings = [*across, *(finding for report in reports for finding in report.findings)]
    status = worst(findings)
    bad = [f for f in findings if f.severity in (Severity.WARNING, Severity.CRITICAL)]
    unknown = sum(f.severity is Severity.UNKNOWN for f in findings)
    where = reports[0].host if len(reports) == 1 else f"{len(reports)} hosts"
    if status is Severity.OK:
        rules = len({rule for report in reports for rule in report.passed})
        return f"OK: nothing found on {where}, {counted(rules, 'rule')} passed"
    if not bad:
        return f"UNKNOWN: nothing found on {where}, but {counted(unknown, 'check')} could not be made"
    bad.sort(key=lambda finding: -finding.severity)
    shown = "; ".join(f"{_place(f, reports)} {_short(f)}".strip() for f in bad[:_MAX_IN_FIRST_LINE])
    more = f"; {len(bad) - _MAX_IN_FIRST_LINE} more" if len(bad) > _MAX_IN_FIRST_LINE else ""
    return f"{status.name}: {counted(len(bad), 'finding')} on {where}: {shown}{more}"


def perfdata(reports: Sequence[HostReport], matrix: Matrix | None = None) -> str:
    """Return counts as Nagios performance data."""
    findings = [*(matrix.findings if matrix else ()), *(f for report in reports for f in report.findings)]
    names = (Severity.CRITICAL, Severity.WARNING, Severity.UNKNOWN)
    counts = " ".join(f"{s.label}={sum(finding.severity is s for finding in findings)}" for s in names)
    return f"{counts} passed={sum(len(report.passed) for report in reports)}"


def report_lines(report: HostReport, *, every: bool = False) -> Iterator[str]:
    """Yield one host's findings and what was not checked; `every` names all rules."""
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if finding.severity is not Severity.UNKNOWN:
            groups[finding.rule, finding.fix].append(finding)
    for alike in groups.values():
        yield ""
        yield from finding_lines(alike, report.host)
    yield from _unknown_lines(report)
    if report.skipped:
        yield ""
        yield "does not apply:"
        for reason, ids in report.skipped.items():
            yield f"  {reason}: {', '.join(ids) if every else counted(len(ids), 'rule')}"
    yield ""
    yield f"{counted(len(report.passed), 'rule')} passed in {report.seconds:.1f} s" + (
        f": {', '.join(report.passed)}" if every else ""
    )


def together_lines(reports: Sequence[HostReport]) -> Iterator[str]:
    """Yield the findings of many hosts: what is alike is said once, with the hosts it is on."""
    groups: dict[str, list[Finding]] = defaultdict(list)
    unknown: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        for finding in report.findings:
            if finding.severity is Severity.UNKNOWN:
                unknown[f"{finding.rule}: {finding.observed}"].add(report.host)
            else:
                groups[finding.rule].append(finding)
    for alike in sorted(groups.values(), key=lambda found: -max(f.severity for f in found)):
        yield ""
        yield from _alike_lines(alike, len(reports))
    if unknown:
        yield ""
        yield f"could not be checked ({counted(len(unknown), 'rule')}):"
        for said, told in unknown.items():
            yield f"  {_hosts(sorted(told), len(reports))} {said}"
    yield ""
    yield f"{counted(sum(len(report.passed) for report in reports), 'rule')} passed on {counted(len(reports), 'host')}"


def _alike_lines(alike: Sequence[Finding], num_hosts: int) -> Iterator[str]:
    hosts: dict[str, list[str]] = defaultdict(list)
    for finding in alike:
        host, _, rest = finding.place.partition(" ")
        hosts[f"{rest + ': ' if rest else ''}{finding.observed}; expected {finding.expected}"].append(host)
    yield f"{alike[0].severity.name:<9} {alike[0].rule}"
    for said, names in hosts.items():
        yield f"  {_hosts(names, num_hosts)} {said}"
    yield f"  why   {alike[0].meaning}"
    yield f"  fix   {alike[0].fix} ({alike[0].action.value})"


def _hosts(names: Sequence[str], total: int) -> str:
    if len(names) == total > 2:
        return f"all {total} hosts"
    return few(names, 6)


def finding_lines(alike: Sequence[Finding], host: str = "") -> Iterator[str]:
    """Yield findings of one rule and one remedy together."""
    first = alike[0]
    yield f"{first.severity.name:<9} {first.rule}"
    for finding in alike[:_MAX_ALIKE]:
        place = finding.place.removeprefix(host).strip() or finding.place
        expected = f"; expected {finding.expected}" if finding.expected else ""
        sure = f" (confidence {finding.confidence:.0%})" if finding.confidence < 1 else ""
        yield f"  {place}: {finding.observed}{expected}{sure}"
    if len(alike) > _MAX_ALIKE:
        names = ", ".join(finding.place.removeprefix(host).strip() for finding in alike[_MAX_ALIKE:])
        yield f"  and the same on {names}"
    yield f"  why   {first.meaning}"
    kind = f" ({first.action.value})" if first.action is not Action.NONE else ""
    yield f"  fix   {first.fix}{kind}"
    if first.evidence:
        yield f"  seen  {'; '.join(first.evidence)}"
    if first.reference:
        yield f"  see   {first.reference}"


def matrix_lines(matrix: Matrix) -> Iterator[str]:
    """Yield what differs between hosts, then what is equal, in one line."""
    for finding in matrix.findings:
        yield ""
        yield from finding_lines([finding])
    equal = [row.fact for row in matrix.rows if row.agrees]
    yield ""
    yield f"equal on {len(matrix.hosts)} hosts: {', '.join(equal) or 'nothing'}"


def _unknown_lines(report: HostReport) -> Iterator[str]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for finding in report.findings:
        if finding.severity is Severity.UNKNOWN:
            reasons[finding.observed].append(finding.rule)
    if reasons:
        yield ""
        yield f"could not be checked ({counted(sum(map(len, reasons.values())), 'rule')}):"
        for reason, ids in reasons.items():
            yield f"  {reason}: {few(ids)}"


def _place(finding: Finding, reports: Sequence[HostReport]) -> str:
    return finding.place.removeprefix(f"{reports[0].host} ") if len(reports) == 1 else finding.place


def _short(finding: Finding) -> str:
    if finding.place == finding.observed.split(" ")[0]:
        return finding.observed.partition(" ")[2]
    return finding.observed if len(finding.observed) < 60 else finding.observed[:57] + "..."


def audit_lines(reports: Sequence[HostReport], across: Matrix | None, *, every: bool = False) -> list[str]:
    """Return the whole audit: a first line that stands alone, what differs across hosts, then host by host."""
    lines = [f"{first_line(reports, across)} | {perfdata(reports, across)}"]
    if across is not None:
        lines += matrix_lines(across)
    hosts = report_lines(reports[0], every=every) if len(reports) == 1 else together_lines(reports)
    return [*lines, *hosts]


def text(answer: AuditAnswer, width: int) -> Iterable[str]:
    """Return the findings of hosts."""
    return audit_lines(answer.hosts, answer.across)
