"""What a check in code found, before it becomes a Finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncline.logs.tally import Evidence


@dataclass(frozen=True)
class CheckVerdict:
    """What was observed, where, and the lines that show it; without a confidence the rule's own holds."""

    observed: str
    place: str
    evidence: tuple[Evidence, ...]
    confidence: float | None = None


def some(names: Iterable[str], limit: int = 4) -> str:
    """Return a few of many names for people to read."""
    ordered = sorted(set(names), key=lambda n: (len(n), n))
    return ", ".join(ordered[:limit]) + (f" and {len(ordered) - limit} more" if len(ordered) > limit else "")
