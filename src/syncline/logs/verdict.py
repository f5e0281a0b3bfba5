"""What a check in code found, before it becomes a Finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncline.finding import Place
from syncline.logs.tally import Evidence


@dataclass(frozen=True)
class CheckVerdict:
    """What was observed, where, and the lines that show it; without a confidence the rule's own holds."""

    observed: str
    place: str
    evidence: tuple[Evidence, ...]
    confidence: float | None = None
    places: tuple[Place, ...] = ()
    """The first of what `place` names, where a check does not say them all in words."""


MAX_NAMES = 4


def some(names: Iterable[str], limit: int = MAX_NAMES) -> str:
    """Return a few of many names for people to read."""
    ordered = in_order(names)
    return ", ".join(ordered[:limit]) + (f" and {len(ordered) - limit} more" if len(ordered) > limit else "")


def in_order(names: Iterable[str]) -> list[str]:
    """Return names as people count: those of equal length together."""
    return sorted(set(names), key=lambda n: (len(n), n))
