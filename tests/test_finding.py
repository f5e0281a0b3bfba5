from __future__ import annotations

import json

import pytest

from syncline.finding import Action, Finding, Severity, worst


def finding(severity: Severity) -> Finding:
    return Finding("net.mtu.mismatch", severity, "h3/eth0", "1500", "9000", ("mtu: 1500",), action=Action.CONFIGURE)


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ([], Severity.OK),
        ([Severity.OK, Severity.UNKNOWN], Severity.UNKNOWN),
        ([Severity.UNKNOWN, Severity.WARNING], Severity.WARNING),
        ([Severity.WARNING, Severity.CRITICAL, Severity.UNKNOWN], Severity.CRITICAL),
    ],
)
def test_the_worst_speaks_for_all(severities: list[Severity], expected: Severity) -> None:
    assert worst(map(finding, severities)) is expected


def test_json_holds_words_not_numbers() -> None:
    shown = json.loads(json.dumps(finding(Severity.CRITICAL).to_json()))
    assert (shown["severity"], shown["action"], shown["evidence"]) == ("critical", "configure", ["mtu: 1500"])
