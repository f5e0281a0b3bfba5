"""One pass over logs: every line on which a rule's text stands is shown to that rule's patterns, and tallied."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from syncline.logs import flight
from syncline.logs.checks.steps import SIGNAL, LogEnd, StepTally
from syncline.logs.context import plain
from syncline.logs.emitter import heeds
from syncline.logs.form import FormCount
from syncline.logs.guard import is_digit_blind
from syncline.logs.origin import host_of_file, is_prefixed, split_prefix
from syncline.logs.rule import LogRule, Matcher
from syncline.logs.scan import Scanner
from syncline.logs.source import Sources, Unread
from syncline.logs.tally import MAX_SHOWN, Tally
from syncline.logs.wrapped import excerpt, piece, unwrapped

_ALL_ROWS = {"signal.bench", "signal.error", "signal.doubt", "signal.warning", SIGNAL}
HARMLESS = "signal.harmless"
"""A line that it takes is told by no other rule."""
MAX_LINES = 60_000
"""Lines of one rule that are looked at in one file; a flood says nothing new after that."""
MAX_FORMS = 4096
"""Forms of lines (their digits aside) of which is remembered which patterns they are shown to."""
_ZEROS = str.maketrans("123456789", "000000000")


class _Entry:
    """A pattern of a rule, with what is asked of it for every line."""

    __slots__ = ("asks_form", "general", "harmless", "is_heard", "late", "limits", "matcher", "rule", "tally")

    def __init__(self, tally: Tally, matcher: Matcher) -> None:
        self.tally, self.matcher, self.rule = tally, matcher, tally.rule
        self.limits = matcher.limits
        self.asks_form = bool(matcher.source) or matcher.level is not None or matcher.speaks
        self.general = tally.rule.leftover or tally.rule.fallback
        self.late = (tally.rule.fallback, tally.rule.leftover)
        """What makes its turn come after those without: it knows a word of failure, or only that there is one."""
        self.is_heard = self.general or not tally.rule.signal
        self.general &= matcher.level is None  # what states its severity is heard from any part of the kernel
        self.harmless = tally.rule.id == HARMLESS


class LogHead:
    """What a log's first lines and a few of every block tell: its form, and the host it comes from."""

    def __init__(self, name: str) -> None:
        self.name, self.host = name, host_of_file(name)
        self.forms = FormCount()
        self.is_prefixed = False

    def passing(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the blocks as they are, having looked at them."""
        for number, block in enumerate(blocks):
            lines = [line.decode("utf-8", "replace") for line in block[:_HEAD_BYTES].splitlines()[:_HEAD_LINES]]
            if not number:
                self.is_prefixed = is_prefixed([line for line in lines if line.strip()])
            some = lines if not number else lines[1:_LATER_LINES]
            self.forms.count(plain(split_prefix(line)[1] if self.is_prefixed else line) for line in some)
            yield block


_HEAD_BYTES, _HEAD_LINES, _LATER_LINES = 1 << 16, 200, 20
_Tries = list[tuple[int, _Entry, bool]]
"""Patterns to show a line to, each with the text that called it and whether its rule is known to heed the line."""


def read(sources: Sources, book: Mapping[str, LogRule]) -> Reading:
    """Return what the rules have seen in all sources."""
    reading = Reading(book)
    for name, blocks in sources:
        reading.read(name, blocks, sources.unread)
    return reading


@lru_cache(maxsize=8)  # a book is read with again and again
def _called(texts: tuple[tuple[str, ...], ...]) -> dict[str, list[int]]:
    """Return the numbers of the patterns that each text calls, of the texts of every pattern."""
    found: dict[str, list[int]] = {}
    for number, mine in enumerate(texts):
        for text in mine:
            found.setdefault(text, []).append(number)
    return found


class Reading:
    """The tallies of all rules while files go by."""

    def __init__(self, book: Mapping[str, LogRule]) -> None:
        self._went_on: dict[int, int] = {}
        self.tallies = {
            rule.id: StepTally(rule)
            if rule.id == SIGNAL
            else Tally(rule, all_rows=rule.id in _ALL_ROWS, went_on=self._went_on)
            for rule in book.values()
        }
        self.num_lines = 0
        self.heads: list[LogHead] = []
        self.lengths: dict[int, int] = {}
        self._order = -1
        entries = [_Entry(tally, matcher) for tally in self.tallies.values() for matcher in tally.rule.matchers]
        called = _called(tuple(entry.matcher.texts for entry in entries))
        self._texts = tuple(called)
        self._wanted = [tuple([entries[number] for number in numbers]) for numbers in called.values()]

    def read(self, name: str, blocks: Iterator[bytes], unread: list[Unread]) -> None:
        """Take in one file."""
        self._order += 1
        first = next(blocks, b"")
        if flight.is_pickle(first) or flight.is_flight(first):
            self._read_flight(name, chain([first], blocks), unread)
        elif first:
            self._scan(name, chain([first], blocks))

    def _scan(self, name: str, blocks: Iterable[bytes]) -> None:
        wanted = list(self._wanted)
        seen: Counter[str] = Counter()
        forms: dict[tuple[str, tuple[int, ...]], _Tries] = {}

        def found(line: int, text: str, indices: Sequence[int]) -> None:
            host, text = split_prefix(text) if head.is_prefixed else (head.host, text)
            shown, kept = self._shown(text, indices)
            taken = known = False
            takers: set[str] = set()
            counted: set[str] = set()
            for index, entry, match in _matches(shown, indices, wanted, forms):
                rule = entry.rule
                if (taken and any(entry.late) and not rule.leftover) or (known and rule.leftover):
                    continue  # a rule has this line already
                if rule.id in counted and not (rule.signal or rule.check):
                    continue  # by another of its patterns
                counted.add(rule.id)
                if not rule.signal:
                    takers.add(rule.id)
                taken |= not rule.fallback and (not rule.signal or rule.takes)
                known |= rule.takes
                if rule.leftover:
                    entry.tally.add_open(match, name, line, kept, self._order, host, frozenset(takers))
                else:
                    entry.tally.add(match, name, line, kept, self._order, host)
                seen[rule.id] += 1
                once = rule.signal and not (rule.takes or entry.matcher.pattern.groupindex or rule.max_lines)
                if once or (
                    seen[rule.id] == (rule.max_lines or MAX_LINES)
                    and rule.id not in _ALL_ROWS - {"signal.error", "signal.doubt", "signal.warning"}
                ):
                    _stop(index, entry, wanted, whole=not once)
                    forms.clear()
            for index in indices:
                if not wanted[index]:
                    scanner.drop(index)

        scanner = Scanner(self._texts, found)
        head, end = LogHead(name), LogEnd()
        scanner.scan(end.passing(head.passing(blocks)))
        self.heads.append(head)
        self.lengths[self._order] = scanner.num_lines
        self._went_on[self._order] = end.went_on(scanner.num_lines)
        self.num_lines += scanner.num_lines

    def _shown(self, text: str, indices: Sequence[int]) -> tuple[str, str]:
        """Return a line as the patterns see it, and what of it is kept as evidence."""
        if "\r" not in text and text[:1] != "{" and len(text) <= MAX_SHOWN:
            shown = plain(text)
            return shown, shown
        texts = [self._texts[index] for index in indices]
        shown = plain(unwrapped(piece(text, texts)))
        return shown, excerpt(shown, texts)

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


def _matches(
    text: str,
    indices: Sequence[int],
    wanted: Sequence[Sequence[_Entry]],
    forms: dict[tuple[str, tuple[int, ...]], _Tries],
) -> list[tuple[int, _Entry, re.Match[str]]]:
    """Return what holds on a line; fallbacks come after all others, and what wants only what is left comes last.

    Of a line that is known to be harmless only signals are left. Most lines differ from an earlier one in their digits
    alone: what treats all digits alike and did not hold there does not hold here and is not tried.
    """
    form = text.translate(_ZEROS), tuple(indices)
    tries = forms.get(form)
    is_new = tries is None
    if tries is None:
        tries = [(index, entry, False) for entry, index in _wanted(indices, wanted).items()]
    kept: _Tries = []
    early: list[tuple[int, _Entry, re.Match[str]]] = []
    late: list[tuple[int, _Entry, re.Match[str]]] = []
    harmless = False
    for index, entry, is_heeded in tries:
        match = entry.matcher.pattern.search(text)
        if match is None:
            if is_new and not is_digit_blind(entry.matcher.pattern):
                kept.append((index, entry, False))
            continue
        if not is_heeded and entry.is_heard and not heeds(entry.rule.id, text, general=entry.general):
            continue  # so does every line of this form
        if is_new:
            kept.append((index, entry, True))
        if entry.asks_form and not entry.matcher.fits(text):
            continue
        if entry.limits and not _within(entry.matcher, match):
            continue
        harmless |= entry.harmless
        (late if any(entry.late) else early).append((index, entry, match))
    if is_new:
        if len(forms) >= MAX_FORMS:
            forms.clear()
        forms[form] = kept
    if harmless:
        return [found for found in early if found[1].rule.signal]
    if len(late) > 1:
        late.sort(key=lambda found: found[1].late[::-1])
    return early + late


def _wanted(indices: Sequence[int], wanted: Sequence[Sequence[_Entry]]) -> dict[_Entry, int]:
    """Return the patterns that a line's texts call, each with the first text that does."""
    found: dict[_Entry, int] = {}
    for index in indices:
        for entry in wanted[index]:
            found.setdefault(entry, index)
    return found


def _stop(index: int, entry: _Entry, wanted: list[tuple[_Entry, ...]], *, whole: bool) -> None:
    """Look for a text no more where once in a file is enough; with `whole`, for all texts of its rule."""
    for number in range(len(wanted)) if whole else (index,):
        left = tuple(
            other for other in wanted[number] if other is not entry and not (whole and other.tally is entry.tally)
        )
        if len(left) < len(wanted[number]):
            wanted[number] = left


def _within(matcher: Matcher, match: re.Match[str]) -> bool:
    for name, low, high in matcher.limits:
        try:
            if not low <= float(match[name]) <= high:
                return False
        except (TypeError, ValueError):
            return False
    return True
