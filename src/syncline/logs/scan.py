"""One pass over a log that looks at almost nothing: the few lines on which a rule's text stands.

Of each text four bytes are chosen that are rare in this log. The native search hashes the four bytes at every position
into one bitmap; only where its bit is set are they compared with those of the texts, only where they agree is the text
compared, and only where the text stands is the line cut out and shown to the patterns. Memory is one block, whatever
the length of the file or of its lines: of a line longer than `MAX_LINE` the stretch around the text is shown.

A text that floods a log rests: after `REST` matches it is looked for in one stretch of `REST_EVERY` only. All other
texts are looked for everywhere, so a rare line is never missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from syncline.logs.guard import MAX_LINE

if TYPE_CHECKING:
    from syncline.logs.needles import Needles

BEFORE = 2048
"""How much of an endless line in front of a text is shown."""
MAX_CARRY = 1 << 20
"""A line without an end this long is searched in pieces."""
REST = 20_000
REST_EVERY = 64
STEP = 1 << 18
_BEGIN = 4
_SHORT = 1 << 14  # so short a log is searched before what chooses for a long one is loaded

OnLine = Callable[[int, str, Sequence[int]], None]
"""Called with the line's number, its text and the indices of the texts that stand on it."""


Lines = tuple[int, list[int], list[int], list[int], list[int], list[int]]
"""The number of the line after a block; then of each line with a text number, begin, end, last of its texts; those."""


class Search(Protocol):
    """Looks for texts in one stream of blocks."""

    def drop(self, text: int) -> None: ...
    def scan(self, block: bytes, start: int, stop: int, line: int) -> Lines: ...


class NativeSearch:
    """The search in C++."""

    def __init__(self, needles: Needles) -> None:
        from syncline._native.scanner import TextScanner

        self._scanner = TextScanner(
            list(needles.texts), needles.code, needles.offset, STEP, REST, REST_EVERY, BEFORE, MAX_LINE
        )
        self.drop = self._scanner.drop

    def scan(self, block: bytes, start: int, stop: int, line: int) -> Lines:
        """Return the lines with a text that begins in [start, stop)."""
        after, numbers, begins, ends, lasts, texts = self._scanner.scan(block, start, stop, line)
        return after, numbers.tolist(), begins.tolist(), ends.tolist(), lasts.tolist(), texts.tolist()


class ShortSearch:
    """A search of a log that is read before the other one has chosen its bytes; nothing rests in it.

    A text is looked for only where its first bytes are among those of the block.
    """

    def __init__(self, texts: tuple[bytes, ...]) -> None:
        self._texts, self._begun = texts, _by_begin(texts)

    def drop(self, text: int) -> None:
        """Whoever asks has noted it."""

    def scan(self, block: bytes, start: int, stop: int, line: int) -> Lines:
        """Return the lines with a text that begins in [start, stop)."""
        begun = {block[at : at + _BEGIN] for at in range(start, stop)} & self._begun.keys()
        indices = [index for begin in begun for index in self._begun[begin]]
        hits = sorted((at, index) for index in indices for at in _places(block, self._texts[index], start, stop))
        rows: list[tuple[int, int, int, int]] = []
        texts: list[int] = []
        counted, end, first = start, -1, 0
        for position, index in hits:
            if position >= end:
                low = max(0, position - BEFORE)
                begin = block.rfind(b"\n", low, position) + 1 or low
                stands = block.find(b"\n", position, begin + MAX_LINE)
                end = max(stands if stands >= 0 else min(len(block), begin + MAX_LINE), position + 1)
                line += block.count(b"\n", counted, position)
                counted, first = position, len(texts)
                rows.append((line, begin, end, first))
            if index not in texts[first:]:
                texts.append(index)
            rows[-1] = (*rows[-1][:3], len(texts))
        numbers, begins, ends, lasts = (
            (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
        )
        return line + block.count(b"\n", counted, stop), numbers, begins, ends, lasts, texts


def _places(block: bytes, text: bytes, start: int, stop: int) -> Iterator[int]:
    at = block.find(text, start)
    while 0 <= at < stop:
        yield at
        at = block.find(text, at + 1)


@lru_cache(maxsize=8)
def _by_begin(texts: tuple[bytes, ...]) -> dict[bytes, list[int]]:
    """Return the texts by their first bytes."""
    found: dict[bytes, list[int]] = {}
    for index, text in enumerate(texts):
        found.setdefault(text[:_BEGIN], []).append(index)
    return found


@lru_cache(maxsize=8)
def _encoded(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in texts)


class Scanner:
    """Looks for many texts at once in one stream of blocks."""

    def __init__(
        self, texts: Sequence[str], on_line: OnLine, search: Callable[[Needles], Search] | None = None
    ) -> None:
        self._texts = _encoded(tuple(texts))
        self._on_line, self._make = on_line, search
        self._search: Search | None = None
        self._line = 1
        self._dropped: set[int] = set()
        self.num_lines = 0

    def drop(self, index: int) -> None:
        """Look for a text no more, in this stream."""
        if index not in self._dropped:
            self._dropped.add(index)
            if self._search is not None:
                self._search.drop(index)

    def scan(self, blocks: Iterable[bytes]) -> None:
        """Go through a stream; lines are counted from 1."""
        carry, skip, self._line, first = b"", 0, 1, True
        for data in blocks:
            block = carry + data if carry else data
            if first:
                is_short = self._make is None and len(block) < _SHORT
                self._search = ShortSearch(self._texts) if is_short else self._long_search(block)
                first = False
            elif isinstance(self._search, ShortSearch):  # it goes on
                self._search = self._long_search(block)
            cut = block.rfind(b"\n") + 1
            if cut == 0 and len(block) < MAX_CARRY:
                carry = block
                continue
            if cut == 0:  # a line without an end: search it and keep what a text at the end still needs
                cut = len(block) - MAX_LINE
                self._show(block, skip, cut)
                keep = max(0, cut - BEFORE)
                carry, skip = block[keep:], cut - keep
                continue
            self._show(block, skip, cut)
            carry, skip = block[cut:], 0
        if carry:
            self._show(carry, skip, len(carry))
        self.num_lines = self._line - 1 + bool(carry)

    def _long_search(self, block: bytes) -> Search:
        from syncline.logs.needles import chosen

        search = (self._make or NativeSearch)(chosen(self._texts, block[:STEP]))
        for index in self._dropped:
            search.drop(index)
        return search

    def _show(self, block: bytes, start: int, stop: int) -> None:
        """Report every line with a text that begins in [start, stop), and count the lines."""
        assert self._search is not None
        self._line, numbers, begins, ends, lasts, texts = self._search.scan(block, start, stop, self._line)
        first = 0
        for number, begin, end, last in zip(numbers, begins, ends, lasts, strict=True):
            indices = [index for index in texts[first:last] if index not in self._dropped]
            first = last
            if indices:
                self._on_line(number, block[begin:end].decode("utf-8", "replace").rstrip("\r"), indices)
