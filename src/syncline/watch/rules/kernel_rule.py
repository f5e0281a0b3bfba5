"""What the kernel reports while a job runs, read by the engine that `diagnose` and `audit` use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from syncline.finding import Finding, Severity
from syncline.logs.engine import judge_lines
from syncline.watch.rules.rule import Context, RuleVerdict, WatchRule

KEPT_S = 600.0
"""How long a message counts."""
KEPT_LINES = 2000


class KernelLog(WatchRule):
    """Findings of the kernel's log, each under the name that the log rules give it."""

    id = "kernel.log"
    severity = Severity.WARNING
    meaning = "The kernel saw something fail."
    fix = "See the finding."
    raise_after_s = 0.0
    clear_after_s = 0.0

    def __init__(self, lines: Callable[[], list[str]]) -> None:
        self._lines = lines
        self._kept: deque[tuple[float, str]] = deque(maxlen=KEPT_LINES)
        self._found: tuple[Finding, ...] = ()

    def look(self, context: Context) -> RuleVerdict:
        """Return what the messages of the last minutes say; without new ones, what they said before."""
        now_s, new = context.frame.mono_s, self._lines()
        self._kept.extend((now_s, line) for line in new)
        is_old = bool(self._kept) and now_s - self._kept[0][0] > KEPT_S
        while self._kept and now_s - self._kept[0][0] > KEPT_S:
            self._kept.popleft()
        if new or is_old:
            self._found = judge_lines([line for _, line in self._kept], "kernel").findings
        return RuleVerdict({f"{one.rule} {one.place}".strip(): partial(_same, one) for one in self._found}, {})


def _same(finding: Finding) -> Finding:
    return finding
