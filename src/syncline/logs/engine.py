"""Lines in, first causes out: what `diagnose`, `audit` and `watch` ask."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncline.finding import Finding
from syncline.logs.causes import Cause, arrange, rivals
from syncline.logs.judge import judge
from syncline.logs.read_rules import shipped_rules
from syncline.logs.reading import Reading
from syncline.logs.unexplained import OpenLine, open_lines


@dataclass(frozen=True)
class LineVerdict:
    """What some lines say: causes with their effects, and what no rule explains."""

    causes: tuple[Cause, ...]
    unexplained: tuple[OpenLine, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, each cause before its effects."""
        return tuple(finding for cause in self.causes for finding in cause.all())


def judge_lines(lines: Iterable[str], name: str) -> LineVerdict:
    """Return what the lines of one log say; `name` is what evidence calls it."""
    reading = Reading(shipped_rules())
    reading.read(name, iter(["\n".join(lines).encode()]), [])
    causes = rivals(arrange(judge(reading.tallies)))
    return LineVerdict(causes, open_lines(reading.tallies, reading.lengths))
