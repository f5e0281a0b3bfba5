"""Which finding led to which: effects stand under their cause, and the first cause comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from syncline.finding import Finding, Severity, worst
from syncline.logs.tally import Evidence

SLACK_S = 30.0
"""Clocks of hosts differ; a cause may seem this much later than its effect."""


RIVAL = 0.85
"""What a cause's confidence is worth where another stands beside it."""


@dataclass(frozen=True)
class RankedFinding:
    """A finding with what is needed to order it."""

    finding: Finding
    first: Evidence | None
    explains: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cause(Finding):
    """A finding that no other explains, or an effect under its cause; `effects` are what it led to."""

    effects: tuple[Cause, ...] = ()

    @property
    def worst(self) -> Severity:
        return worst(self.all())

    def all(self) -> list[Finding]:
        """Return this finding and all below it, cause before effect."""
        return [self, *(finding for effect in self.effects for finding in effect.all())]


def arrange(found: Sequence[RankedFinding]) -> tuple[Cause, ...]:
    """Return the first causes, the gravest and then the earliest first, each with its effects below it."""
    depth: dict[int, int] = {}
    parent: dict[int, int | None] = {}
    for i in range(len(found)):
        _place(i, found, depth, parent, ())
    children: dict[int | None, list[int]] = {}
    for i, above in parent.items():
        children.setdefault(above, []).append(i)

    def tree(i: int) -> Cause:
        below = sorted(children.get(i, []), key=lambda k: _when(found[k]))
        return Cause(**vars(found[i].finding), effects=tuple(map(tree, below)))

    roots = [(tree(i), _when(found[i])) for i in children.get(None, [])]
    roots.sort(key=lambda item: (-_GRAVITY[item[0].worst], item[1]))
    return tuple(root for root, _ in roots)


def rivals(causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Return the causes, each less sure where several critical ones stand side by side and none explains another."""
    critical = [cause for cause in causes if cause.severity is Severity.CRITICAL]
    if len(critical) < 2:
        return causes
    return tuple(
        replace(cause, confidence=round(RIVAL * cause.confidence, 2)) if cause in critical else cause
        for cause in causes
    )


def _place(
    i: int, found: Sequence[RankedFinding], depth: dict[int, int], parent: dict[int, int | None], above: tuple[int, ...]
) -> int:
    """Put a finding under its nearest cause: the one that itself lies deepest."""
    if i in depth:
        return depth[i]
    best: tuple[int, int] | None = None
    for k, other in enumerate(found):
        if k == i or k in above or found[i].finding.rule not in other.explains or not _may_precede(other, found[i]):
            continue
        level = _place(k, found, depth, parent, (*above, i))
        if best is None or level > best[0]:
            best = (level, k)
    depth[i] = 0 if best is None else best[0] + 1
    parent[i] = None if best is None else best[1]
    return depth[i]


def _may_precede(cause: RankedFinding, effect: RankedFinding) -> bool:
    if cause.first is None or effect.first is None:
        return True
    a, b = cause.first.context.time_s, effect.first.context.time_s
    return a is None or b is None or a <= b + SLACK_S


def _when(found: RankedFinding) -> tuple[bool, float, int, int]:
    return (True, 0.0, 0, 0) if found.first is None else found.first.when


_GRAVITY: Mapping[Severity, int] = {Severity.OK: 0, Severity.UNKNOWN: 1, Severity.WARNING: 2, Severity.CRITICAL: 3}
