"""An audit as JUnit XML: one suite for each host, one case for each rule."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from html import escape

from syncline.auditing.matrix import Matrix
from syncline.auditing.report import HostReport
from syncline.finding import Finding, Severity

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")


def junit(reports: Sequence[HostReport], matrix: Matrix | None = None) -> str:
    """Return the document: findings are failures; what did not apply or could not be told is skipped."""
    suites = [_suite(report.host, report.findings, report.passed, report.skipped, report.seconds) for report in reports]
    if matrix is not None:
        equal = tuple(f"cluster.{row.fact.replace(' ', '_')}" for row in matrix.rows if row.agrees)
        suites.append(_suite("across hosts", matrix.findings, equal, {}, 0.0))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="syncline audit">\n'
        + "".join(suites)
        + "</testsuites>\n"
    )


def _suite(host: str, findings: Sequence[Finding], passed: Sequence[str], skipped: object, seconds: float) -> str:
    by_rule: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_rule[finding.rule].append(finding)
    cases = [_case(host, rule, found) for rule, found in by_rule.items()]
    cases += [f'<testcase classname="{_x(host)}" name="{_x(rule)}"/>' for rule in passed]
    left = skipped if isinstance(skipped, dict) else {}
    cases += [_skip(host, rule, f"does not apply: {reason}") for reason, rules in left.items() for rule in rules]
    failures = sum(any(f.severity is not Severity.UNKNOWN for f in found) for found in by_rule.values())
    not_run = sum(map(len, left.values())) + len(by_rule) - failures
    head = f'name="{_x(host)}" tests="{len(cases)}" failures="{failures}" skipped="{not_run}" time="{seconds:.3f}"'
    return f"<testsuite {head}>\n" + "\n".join(cases) + "\n</testsuite>\n"


def _case(host: str, rule: str, found: Sequence[Finding]) -> str:
    bad = [finding for finding in found if finding.severity is not Severity.UNKNOWN]
    if not bad:
        return _skip(host, rule, f"could not be checked: {found[0].observed}")
    rows = [f"{f.place}: {f.observed}; expected {f.expected}\n{f.meaning}\nfix: {f.fix}\n" for f in bad]
    message = f"{bad[0].place}: {bad[0].observed}"
    kind = max(finding.severity for finding in bad).label
    body = _x("\n".join(rows))
    return (
        f'<testcase classname="{_x(host)}" name="{_x(rule)}">'
        f'<failure type="{kind}" message="{_x(message)}">{body}</failure></testcase>'
    )


def _skip(host: str, rule: str, why: str) -> str:
    return f'<testcase classname="{_x(host)}" name="{_x(rule)}"><skipped message="{_x(why)}"/></testcase>'


def _x(text: str) -> str:
    return escape(_NOT_XML.sub("?", text), quote=True)
