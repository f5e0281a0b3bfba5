"""Logs in, first causes out: one pass over every file, then a verdict on what the rules have seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from syncline.audit.diagnose import flight
from syncline.audit.diagnose.causes import Cause, arrange
from syncline.audit.diagnose.context import plain
from syncline.audit.diagnose.judge import judge
from syncline.audit.diagnose.read_rules import shipped_rules
from syncline.audit.diagnose.rule import Matcher, Rule
from syncline.audit.diagnose.scan import Scanner
from syncline.audit.diagnose.source import Sources, Unread
from syncline.audit.diagnose.tally import Tally
from syncline.fabric import Fabric
from syncline.finding import Finding, Severity, worst

_ALL_ROWS = {"signal.bench"}


@dataclass(frozen=True)
class Diagnosis:
    """What went wrong, first causes first, and what was and was not read."""

    causes: tuple[Cause, ...]
    unread: tuple[Unread, ...]
    num_files: int
    num_bytes: int
    num_lines: int

    @property
    def findings(self) -> list[Finding]:
        """Every finding, each cause before its effects."""
        return [finding for cause in self.causes for finding in cause.all()]

    @property
    def severity(self) -> Severity:
        """The worst finding's; unknown where nothing could be read."""
        return worst(self.findings) if self.num_files else Severity.UNKNOWN

    def to_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity.label,
            "causes": [cause.to_json() for cause in self.causes],
            "unread": [{"path": item.path, "reason": item.reason} for item in self.unread],
            "num_files": self.num_files,
            "num_bytes": self.num_bytes,
            "num_lines": self.num_lines,
        }


def diagnose(
    paths: Sequence[str | Path],
    *,
    rules: Mapping[str, Rule] | None = None,
    cluster: Fabric | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Diagnosis:
    """Read logs (files, folders, "-" for stdin) and say what went wrong; `cluster` sharpens the environment lint."""
    sources = Sources(paths, on_bytes=on_bytes)
    reading = read(sources, shipped_rules() if rules is None else rules)
    causes = arrange(judge(reading.tallies, cluster))
    return Diagnosis(causes, tuple(sources.unread), sources.num_files, sources.num_bytes, reading.num_lines)


def read(sources: Sources, book: Mapping[str, Rule]) -> Reading:
    """Return what the rules have seen in all sources."""
    reading = Reading(book)
    for name, blocks in sources:
        reading.read(name, blocks, sources.unread)
    return reading


class Reading:
    """The tallies of all rules while files go by."""

    def __init__(self, book: Mapping[str, Rule]) -> None:
        self.tallies = {rule.id: Tally(rule, all_rows=rule.id in _ALL_ROWS) for rule in book.values()}
        self.num_lines = 0
        self._order = -1
        texts: dict[str, list[tuple[Tally, Matcher]]] = {}
        for tally in self.tallies.values():
            for matcher in tally.rule.matchers:
                for text in matcher.texts:
                    texts.setdefault(text, []).append((tally, matcher))
        self._texts = list(texts)
        self._wanted = list(texts.values())

    def read(self, name: str, blocks: Iterator[bytes], unread: list[Unread]) -> None:
        """Take in one file."""
        self._order += 1
        first = next(blocks, b"")
        if flight.is_pickle(first):
            unread.append(Unread(name, "a pickle, which could run code; dump the flight recorder as JSON"))
        elif flight.is_flight(first):
            self._read_flight(name, chain([first], blocks), unread)
        elif first:
            self._scan(name, chain([first], blocks))

    def _scan(self, name: str, blocks: Iterable[bytes]) -> None:
        wanted = [list(entries) for entries in self._wanted]

        def found(line: int, text: str, indices: Sequence[int]) -> None:
            shown = plain(text)
            tried: set[int] = set()
            for index in indices:
                for entry in list(wanted[index]):
                    tally, matcher = entry
                    if id(matcher) in tried:
                        continue
                    tried.add(id(matcher))
                    match = matcher.pattern.search(shown)
                    if match is None or not _within(matcher, match):
                        continue
                    tally.add(match, name, line, shown, self._order)
                    if tally.rule.signal and not matcher.pattern.groupindex:
                        wanted[index].remove(entry)  # once in a file is enough
                if not wanted[index]:
                    scanner.drop(index)

        scanner = Scanner(self._texts, found)
        scanner.scan(blocks)
        self.num_lines += scanner.num_lines

    def _read_flight(self, name: str, blocks: Iterable[bytes], unread: list[Unread]) -> None:
        parts, size = [], 0
        for block in blocks:
            size += len(block)
            if size > flight.MAX_BYTES:
                unread.append(Unread(name, f"a flight-recorder dump above {flight.MAX_BYTES >> 20} MiB"))
                return
            parts.append(block)
        try:
            rows = list(flight.rows(name, self._order, b"".join(parts)))
        except (ValueError, RecursionError) as error:
            unread.append(Unread(name, f"not a flight-recorder dump that can be read: {error}"))
            return
        tally = self.tallies.get("signal.flight")
        for number, row in enumerate(rows if tally else ()):
            assert tally is not None
            tally.rows[(self._order, number)] = row


def _within(matcher: Matcher, match: re.Match[str]) -> bool:
    for name, low, high in matcher.limits:
        try:
            if not low <= float(match[name]) <= high:
                return False
        except (TypeError, ValueError):
            return False
    return True
