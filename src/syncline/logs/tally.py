"""What a rule has seen so far, in bounded memory: counts, a few lines, who wrote them, and the values they named."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from syncline.finding import Place
from syncline.logs.context import LineContext, context, host_of, uptime_s
from syncline.logs.emitter import is_grave
from syncline.logs.rule import LogRule

MAX_EVIDENCE = 6
MAX_PLACES = 4096
MAX_ROWS = 20_000
MAX_SHOWN = 400
NUMBERS = re.compile(r"(?:0x)?[0-9a-fA-F]*\d[0-9a-fA-F:.]*")
"""What lines of one kind differ in."""
_DETAILED = 20_000
"""After so many matches of one rule only the count goes on, by place."""


@dataclass(frozen=True)
class Evidence:
    """One line as it was read, and where it stands."""

    path: str
    line: int
    text: str
    context: LineContext
    order: int
    """Number of the file in the order they were read."""

    @property
    def when(self) -> tuple[bool, float, int, int]:
        """What orders lines: those with a time by it, then by file and line."""
        time_s = self.context.time_s
        return time_s is None, time_s or 0.0, self.order, self.line

    def __str__(self) -> str:
        shown = self.text.strip()
        return f"{self.path}:{self.line}: {shown[:MAX_SHOWN]}{' ...' if len(shown) > MAX_SHOWN else ''}"


@dataclass(slots=True)
class MatchRow:
    """The named groups of one match, for the checks in code; `count` grows with each one like it."""

    groups: dict[str, str]
    host: str
    evidence: Evidence
    takers: frozenset[str] = frozenset()
    """Rules that took its lines: where one of them says so, they are explained."""
    count: int = 1
    last: int = 0
    """Number of the last line like it."""

    def get(self, name: str) -> str:
        return self.groups.get(name, "")


@dataclass
class Tally:
    """All matches of one rule."""

    rule: LogRule
    all_rows: bool = False
    count: int = 0
    evidence: list[Evidence] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    parts: dict[str, Place] = field(default_factory=dict)
    """By the name of a place: its host and part."""
    values: dict[str, dict[str, Evidence]] = field(default_factory=dict)
    by_host: dict[str, set[str]] = field(default_factory=dict)
    rows: dict[tuple[object, ...], MatchRow] = field(default_factory=dict)
    bursts: dict[str, Evidence] = field(default_factory=dict)
    """By place: the line with which enough had come at once."""
    went_on: Mapping[int, int] = field(default_factory=dict)
    """By file, in the order they were read: the line in front of which nothing stopped the job."""
    explained: frozenset[str] | None = None
    """The rules that explain their lines, once that is known: lines that only others took are open."""
    is_weak: bool = field(init=False)
    """Whether no line was seen that says why something failed."""
    _last: dict[int, int] = field(default_factory=dict)
    _in_file: Counter[tuple[str, int]] = field(default_factory=Counter)
    _recent: dict[tuple[str, int], deque[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.is_weak = any(matcher.weak for matcher in self.rule.matchers)

    def add(self, match: re.Match[str], path: str, line: int, text: str, order: int, host: str = "") -> None:
        """Note one match; `host` is the log's own, where the line names none."""
        self.count += 1
        self._last[order] = line
        if self.is_weak:
            self.is_weak = any(matcher.weak and matcher.pattern is match.re for matcher in self.rule.matchers)
        if self.rule.signal:
            self._add_row(match, host_of(text[:200]) or host, path, line, text, order, host)
            return
        groups = _groups(match)
        if self.count > _DETAILED:
            name = host_of(text[:200]) or host
            if name in self.places:
                self.places[name] += 1
            return
        where = context(text, host)
        place = groups.get(self.rule.place, "") if self.rule.place else ""
        name = str(Place(where.host, place)) or where.place
        if name in self.places or len(self.places) < MAX_PLACES:
            self.places[name] = self.places.get(name, 0) + 1
            self.parts[name] = Place(where.host, place or where.who)
        seen = Evidence(path, line, text, where, order)
        fresh = len(self.evidence) < 2 or (self.places.get(name) == 1 and len(self.evidence) < MAX_EVIDENCE)
        if fresh:
            self.evidence.append(seen)
        self._add_values(groups, where.host, seen)
        time_s = where.time_s if where.time_s is not None else uptime_s(text)
        is_burst = self._add_time((name, 0 if where.host else order), time_s, groups)
        if is_burst and len(self.bursts) < MAX_PLACES:
            self.bursts.setdefault(name, seen)
        if self.rule.check:
            self._add_row(match, where.host, path, line, text, order, host)

    def add_open(
        self, match: re.Match[str], path: str, line: int, text: str, order: int, host: str, takers: frozenset[str]
    ) -> None:
        """Note a line for people to look at, once for all that differ in numbers; `takers` are rules that took it."""
        self.count += 1
        self._last[order] = line
        where = context(text, host)
        key = (order, where.host, where.rank, NUMBERS.sub("0", text), takers)
        self._keep(key, _groups(match), where.host, Evidence(path, line, text, where, order), takers)

    def _add_row(
        self, match: re.Match[str], host: str, path: str, line: int, text: str, order: int, log_host: str
    ) -> None:
        key: tuple[object, ...]
        if self.all_rows:
            key = (order, line)
        else:
            key = (host, match.re, *match.groups()) if match.re.groupindex else (order, host)
        self._keep(key, _groups(match), host, Evidence(path, line, text, context(text, log_host), order))

    def _keep(
        self,
        key: tuple[object, ...],
        groups: dict[str, str],
        host: str,
        seen: Evidence,
        takers: frozenset[str] = frozenset(),
    ) -> None:
        old = self.rows.get(key)
        if old is not None:
            old.count += 1
            old.last = seen.line
        elif len(self.rows) < MAX_ROWS:
            self.rows[key] = MatchRow(groups, host, seen, takers, last=seen.line)
            if len(self.evidence) < MAX_EVIDENCE:
                self.evidence.append(self.rows[key].evidence)

    def _add_values(self, groups: dict[str, str], host: str, seen: Evidence) -> None:
        for name, value in groups.items():
            values = self.values.setdefault(name, {})
            if value not in values and len(values) < MAX_PLACES:
                values[value] = seen
        wanted = self.rule.distinct
        if wanted and wanted.group in groups and len(self.by_host) < MAX_PLACES:
            self.by_host.setdefault(host, set()).add(groups[wanted.group])

    def _add_time(self, place: tuple[str, int], time_s: float | None, groups: Mapping[str, str]) -> bool:
        """Note when a line of a place came, and say whether enough of its kind have come at once."""
        if self.rule.rate is None:
            return False
        if time_s is None:
            if len(self._in_file) < MAX_PLACES and ("after" not in groups or self._in_file[place]):
                self._in_file[place] += 1
            return self._in_file[place] >= self.rule.rate.count
        is_first = place not in self._recent
        recent = self._recent.setdefault(place, deque(maxlen=self.rule.rate.count))
        if "after" in groups and is_first:
            return False
        if "echo" in groups and recent and 0 <= time_s - recent[-1] < self.rule.rate.apart_s:
            return False
        recent.append(time_s)
        return len(recent) == self.rule.rate.count and recent[-1] - recent[0] <= self.rule.rate.within_s

    def holds(self) -> bool:
        """Say whether the rule's own conditions are met, whatever other rules say."""
        if self.count < self.rule.min_count or (self.rule.setup and self.is_over()):
            return False
        if self.rule.rate and not self.bursts:
            return False
        wanted = self.rule.distinct
        if wanted is None:
            return True
        if wanted.across == "host":
            kinds = {frozenset(values) for values in self.by_host.values()}
            return len(kinds) >= wanted.min
        return len(self.values.get(wanted.group, {})) >= wanted.min

    def is_over(self) -> bool:
        """Say whether the job went on after all that was seen, and nothing of it was grave."""
        past = all(line < self.went_on.get(order, 0) for order, line in self._last.items())
        return past and not any(is_grave(e.text) for e in self.evidence)

    def open_rows(self) -> list[MatchRow]:
        """Return the rows that nothing given explains, without those after which the job went on."""
        return [row for row in self.rows.values() if self._is_open(row) and not self._is_past(row)]

    def _is_open(self, row: MatchRow) -> bool:
        return not row.takers or (self.explained is not None and not row.takers & self.explained)

    def _is_past(self, row: MatchRow) -> bool:
        seen = row.evidence
        return row.last < self.went_on.get(seen.order, 0) and not is_grave(seen.text)


Tallies = Mapping[str, Tally]
"""What each rule has seen, by its id."""


def rows_of(tallies: Tallies, rule: str) -> list[MatchRow]:
    """Return what a rule has seen, row by row; nothing where there is no such rule."""
    return list(tallies[rule].rows.values()) if rule in tallies else []


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in match.groupdict().items() if value is not None}
