"""One rule: which lines it looks for, when they count, what they mean and what they lead to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from syncline.finding import Action, Severity

SYMPTOMS = "symptoms"
"""In `explains`: every rule that is marked as a symptom."""


@dataclass(frozen=True)
class Matcher:
    """A line that matters: `texts` (one of which it must contain; they make the search fast) and a pattern.

    `limits` keeps only matches whose named group is a number in the range. A `weak` one takes lines that say that
    something failed and not why: where no other pattern of its rule was seen, the rule tells what may be.
    """

    texts: tuple[str, ...]
    pattern: re.Pattern[str]
    limits: tuple[tuple[str, float, float], ...] = ()
    weak: bool = False


@dataclass(frozen=True)
class Distinct:
    """The rule holds only if a named group takes at least `min` values, by host if `across` is "host"."""

    group: str
    min: int = 2
    across: str = ""


@dataclass(frozen=True)
class Rate:
    """The rule holds only if so many matches of one place lie within so many seconds (where lines carry times).

    A line whose pattern has a group `echo` repeats what another says; it counts only `apart_s` after the last that did.
    """

    count: int
    within_s: float
    apart_s: float = 0.0


@dataclass(frozen=True)
class LogRule:
    """What to look for and what it says. A `signal` is looked for but not reported: other rules need or exclude it.

    `place` names the group that says where (a device, a peer); the host and rank of the line are used without it.
    `explains` lists the rules whose findings this one causes. `check` names a test in code for what lines alone cannot
    say. A `multi_host` rule holds where the log shows several hosts, or something failed and it does not show one. A
    `symptom` is what many causes lead to; a rule that explains `symptoms` explains them all. `max_lines` ends the
    search for a signal in a file; a `leftover` signal gets only lines that no rule has taken (a signal that `takes` its
    lines counts as one). What a `setup` rule tells matters only until the job goes on: it falls silent where steps or
    results follow. A `fallback` speaks only where no other rule names a cause: an exception's type, an error of
    the operating system.
    """

    id: str
    title: str
    matchers: tuple[Matcher, ...] = ()
    severity: Severity = Severity.CRITICAL
    confidence: float = 0.9
    min_count: int = 1
    distinct: Distinct | None = None
    rate: Rate | None = None
    requires: tuple[str, ...] = ()
    requires_any: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    place: str = ""
    check: str = ""
    meaning: str = ""
    fix: str = ""
    reference: str = ""
    action: Action = Action.INSPECT
    explains: tuple[str, ...] = ()
    signal: bool = False
    symptom: bool = False
    max_lines: int = 0
    leftover: bool = False
    takes: bool = False
    fallback: bool = False
    setup: bool = False
    multi_host: bool = False
    example: str = ""
    source: str = field(default="", compare=False)
