"""One rule: which lines it looks for, when they count, what they mean and what they lead to.

A rule is validated where it is read, with the context `{"trusted": bool, "where": str}`: patterns of rules that do not
ship with syncline are tried on hostile lines.
"""

from __future__ import annotations

import re
from functools import cached_property
from math import inf
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from syncline.describe.quantity import Strict
from syncline.finding import Action, Severity
from syncline.logs.form import LogLevel, stated, texts_of
from syncline.logs.guard import compile_pattern
from syncline.logs.template import compile_template
from syncline.logs.words import log_odds, table
from syncline.logs.words import texts as texts_of_failure

SYMPTOMS = "symptoms"
"""In `explains`: every rule that is marked as a symptom."""
MIN_TEXT = 4
_SEVERITIES = {severity.label: severity for severity in Severity if severity is not Severity.UNKNOWN}


def _listed(value: object) -> object:
    """Return one as a list of one."""
    return [value] if isinstance(value, (str, dict)) else value


def _severity(value: object) -> object:
    if value not in _SEVERITIES:
        raise ValueError(f"must be one of {', '.join(_SEVERITIES)}, not {value!r}")
    return _SEVERITIES[str(value)]


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class Matcher(Strict):
    """A line that matters: a template (`says`), or `texts` (one of which it must contain) and a pattern.

    The texts make the search fast. `source` and `level` ask for the form of the line: who writes it (`forms.yaml`),
    how grave it calls itself at least; a level alone takes every such line. One that `speaks` takes lines
    whose words speak of a failure. `limit` keeps only matches whose named group is a number in the range. A `weak`
    one takes lines that say that something failed and not why: where no other pattern of its rule was seen, the rule
    tells what may be.
    """

    texts: Names = Field((), alias="text")
    says: str = ""
    regex: str | None = None
    source: Names = ()
    level: LogLevel | None = None
    speaks: bool = False
    limit: dict[str, tuple[float | None, float | None]] = Field(default_factory=dict)
    weak: bool = False
    _trusted: bool = PrivateAttr(default=False)

    @field_validator("level", mode="before")
    @classmethod
    def _named_level(cls, value: object) -> object:
        if isinstance(value, str) and value.upper() in LogLevel.__members__:
            return LogLevel[value.upper()]
        raise ValueError(f"must be one of {', '.join(level.name.lower() for level in LogLevel)}, not {value!r}")

    @model_validator(mode="before")
    @classmethod
    def _from_template(cls, row: object) -> object:
        if isinstance(row, str):
            row = {"says": row}
        if not isinstance(row, dict) or "says" not in row:
            return row
        if {"text", "regex"} & set(row):
            raise ValueError("a match is a template (`says`) or `text` with `regex`, not both")
        try:
            texts, pattern = compile_template(str(row["says"]))
        except ValueError as error:
            raise ValueError(f'the template "{row["says"]}" {error}') from None
        return {**row, "text": texts, "regex": pattern}

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Matcher:
        if not self.texts and self.regex is None and (self.speaks or self.level is not None):
            found = texts_of_failure() if self.speaks else texts_of(self.level or LogLevel.DEBUG)
            object.__setattr__(self, "texts", found)
            object.__setattr__(self, "regex", r"\S")
        if not self.texts or any(len(text.encode()) < MIN_TEXT or "\n" in text for text in self.texts):
            raise ValueError(f"a match needs `says`, or `text`: {MIN_TEXT} or more characters that the line contains")
        self._trusted = bool(info.context and info.context["trusted"])
        if not self._trusted and (unknown := set(self.limit) - set(self.pattern.groupindex)):
            raise ValueError(f'limit: no pattern has a group "(?P<{min(unknown)}>...)"')
        return self

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when it is first asked for: a log calls few of the thousand that ship."""
        if self.regex is None:
            return re.compile("|".join(map(re.escape, self.texts)))
        try:
            return compile_pattern(self.regex, self.texts, trusted=self._trusted)
        except ValueError as error:
            raise ValueError(f'the pattern "{self.regex}" {error}') from None

    @cached_property
    def limits(self) -> tuple[tuple[str, float, float], ...]:
        """The groups that must be numbers, each with its range."""
        return tuple(
            (name, -inf if low is None else low, inf if high is None else high)
            for name, (low, high) in self.limit.items()
        )

    def fits(self, line: str) -> bool:
        """Say whether the form of a line is one that is asked for."""
        if self.speaks:
            return log_odds(line) > table().shown
        form = stated(line)
        if form is None or (self.source and form.source not in self.source):
            return False
        return self.level is None or (form.level is not None and form.level >= self.level)


class Distinct(Strict):
    """The rule holds only if a named group takes at least `min` values, by host if `across` is "host"."""

    group: str
    min: int = 2
    across: Literal["", "host"] = ""


class Rate(Strict):
    """The rule holds only if so many matches of one place lie within so many seconds (where lines carry times).

    A line whose pattern has a group `echo` repeats what another says; it counts only `apart_s` after the last that did.
    One with a group `after` counts only after another: a link comes up once at every boot.
    """

    count: int
    within_s: float
    apart_s: float = 0.0


class LogRule(Strict):
    """What to look for and what it says. A `signal` is looked for but not reported: other rules need or exclude it.

    An operator writes one with `says` (a template, or several), `source`, `cause` (what it means), `effect_of` (rules
    that lead to it), `fix`, `reference` and `example`; `title` and `match` say the same in more detail.

    `place` names the group that says where (a device, a peer); the host and rank of the line are used without it.
    `explains` lists the rules whose findings this one causes. `check` names a test in code for what lines alone cannot
    say. A `multi_host` rule holds where the log shows several hosts, or something failed and it does not show one. A
    `symptom` is what many causes lead to; a rule that explains `symptoms` explains them all. `max_lines` ends the
    search for a signal in a file; a `leftover` signal gets only lines that no rule has taken (a signal that `takes` its
    lines counts as one). What a `setup` rule tells matters only until the job goes on: it falls silent where steps or
    results follow. A `fallback` speaks only where no other rule names a cause: an exception's type, an error of
    the operating system.
    """

    model_config = ConfigDict(str_strip_whitespace=True)

    id: str
    title: str
    matchers: Annotated[tuple[Matcher, ...], BeforeValidator(_listed)] = Field((), alias="match")
    severity: Annotated[Severity, BeforeValidator(_severity)] = Severity.CRITICAL
    confidence: float = Field(default=0.9, gt=0, le=1)
    min_count: int = 1
    distinct: Distinct | None = None
    rate: Rate | None = None
    requires: Names = ()
    requires_any: Names = ()
    excludes: Names = ()
    before: Names = ()
    place: str = ""
    check: str = ""
    meaning: str = ""
    fix: str = ""
    reference: str = ""
    action: Action = Action.INSPECT
    explains: Names = ()
    effect_of: Names = ()
    signal: bool = False
    symptom: bool = False
    max_lines: int = 0
    leftover: bool = False
    takes: bool = False
    fallback: bool = False
    setup: bool = False
    multi_host: bool = False
    example: Annotated[str, StringConstraints(strip_whitespace=False)] = ""
    _where: str = PrivateAttr()
    _is_trusted: bool = PrivateAttr(default=False)

    def model_post_init(self, context: Any) -> None:
        self._where = context["where"]
        self._is_trusted = context["trusted"]

    @property
    def ships(self) -> bool:
        """Whether the rule comes with syncline."""
        return self._is_trusted

    @property
    def where(self) -> str:
        """The file and line where the rule stands."""
        return self._where

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, row: object) -> object:
        """Return a rule in an operator's words as one in ours."""
        if not isinstance(row, dict):
            return row
        row = {"title": row.get("cause", row.get("id", "")), **row}
        if "cause" in row:
            cause = row.pop("cause")
            row.setdefault("meaning", cause)
        if "says" in row:
            asked = {"source": row.pop("source")} if "source" in row else {}
            templates = row.pop("says")
            row["match"] = [
                {"says": one, **asked} for one in ([templates] if isinstance(templates, str) else templates)
            ]
        return row

    @model_validator(mode="after")
    def _complete(self) -> LogRule:
        if not self.matchers and not self.check:
            raise ValueError(f'rule "{self.id}" has nothing to look for: give it `match`')
        if not self.signal and not (self.meaning and self.fix):
            raise ValueError(f'rule "{self.id}" needs `meaning` and `fix`')
        if self._is_trusted:  # a test asks the same of those that ship
            return self
        groups = {name for matcher in self.matchers for name in matcher.pattern.groupindex}
        for name in filter(None, (self.place, self.distinct.group if self.distinct else "")):
            if name not in groups:
                raise ValueError(f'rule "{self.id}": no pattern has a group "(?P<{name}>...)"')
        return self
