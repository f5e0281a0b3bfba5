"""Messages that a component's source prints are known to a rule of their family.

`research/diagnosis/families.py` diagnoses them one by one; here only the patterns are tried.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.describe.own_data import parsed
from syncline.diagnosis import shipped_rules

FAMILIES = parsed(Path(__file__).with_name("families.yaml").read_text("utf-8"))
SIGNALS = {"rdma.peer.unreachable": "signal.status-12"}
LEFT = {
    "Warning  FailedPostStartHook  pod/a  Exec lifecycle hook failed",
    "ray.exceptions.RaySystemError: System error: Broken pipe",
    "HIP error: the operation cannot be performed in the present state",
    "NVRM: gpuHandleSanityCheckRegReadError_GM107: Possible bad register read: addr: 0x110094, regvalue: 0xbadf4100",
    "rdma.c:3672:_qp_reset_failed_sends: *ERROR*: Failed to post a send for the qpair 0xd10160 with errno -22",
}
"""Known, and left to a fallback or to nothing: they do not say what is the matter."""


def _known(line: str, rules: list[str]) -> bool:
    book = shipped_rules()
    return any(
        any(text in part for text in matcher.texts) and matcher.pattern.search(part)
        for rule in rules
        for id_ in (rule, SIGNALS.get(rule, rule))
        for matcher in book[id_].matchers
        for part in line.split("\n")
    )


@pytest.mark.parametrize("family", FAMILIES, ids=[family["family"].split(",")[0] for family in FAMILIES])
def test_messages_of_a_family_are_known(family: dict[str, object]) -> None:
    lines, rules = family["lines"], family["rules"]
    assert isinstance(lines, list)
    assert isinstance(rules, list)
    assert [line for line in lines if line not in LEFT and not _known(line, rules)] == []
