"""Effects under their causes: clocks that differ a little do not part them, a cause that comes much later is none."""

from __future__ import annotations

import pytest

from syncline.finding import Finding, Severity
from syncline.logs.causes import RankedFinding, arrange
from syncline.logs.context import LineContext
from syncline.logs.tally import Evidence


def found(rule: str, time_s: float | None, explains: frozenset[str] = frozenset()) -> RankedFinding:
    finding = Finding(rule, Severity.WARNING, "host-0", "seen", "not seen")
    return RankedFinding(finding, Evidence("a.log", 1, "text", LineContext(time_s=time_s), 0), explains)


@pytest.mark.parametrize(
    ("later_s", "is_under"), [(-3600.0, True), (0.0, True), (29.0, True), (30.0, True), (31.0, False), (None, True)]
)
def test_a_cause_may_seem_half_a_minute_later_than_its_effect(later_s: float | None, is_under: bool) -> None:
    effect = found("effect", 100.0)
    cause = found("cause", None if later_s is None else 100.0 + later_s, frozenset({"effect"}))
    roots = arrange([effect, cause])
    assert [root.rule for root in roots if root.effects] == (["cause"] if is_under else [])
    assert len(roots) == (1 if is_under else 2)
