"""One pass over a log that looks at almost nothing: the few lines on which a rule's text stands.

Of each text four bytes are chosen that are rare in this log. The native search hashes the four bytes at every position
into one bitmap; only where its bit is set are they compared with those of the texts, only where they agree is the text
compared, and only where the text stands is the line cut out and shown to the patterns. Memory is one block, whatever
the length of the file or of its lines: of a line longer than `MAX_LINE` the stretch around the text is shown.

A text that floods a log rests: after `REST` matches it is looked for in one stretch of `REST_EVERY` only. All other
texts are looked for everywhere, so a rare line is never missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from syncline._native.scanner import TextScanner
from syncline.logs.guard import MAX_LINE

BEFORE = 2048
"""How much of an endless line in front of a text is shown."""
MAX_CARRY = 1 << 20
"""A line without an end this long is searched in pieces."""
REST = 20_000
REST_EVERY = 64
_FOUR = 20  # what a place costs at which four bytes agree, against one at which two do
STEP = 1 << 18
_SHORT = 1 << 14  # in so short a log nothing is gained by choosing for it
_PAIRS = 1 << 16
_SAMPLE = (
    b"node007:1234:5678 [3] NCCL INFO Channel 07/0 : 12[4] -> 20[4] [send] via NET/IB/4/GDRDMA\n"
    b"node007:1234:5678 [3] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 [2] 1/-1/-1->0->8\n"
    b"[2026-11-15 05:30:00,123] iteration 1000/500000 | elapsed time per iteration (ms): 5000.3 | lm loss: 2.123\n"
    b"Nov 15 05:30:00 host kernel: [12345.678901] audit: type=1400 INFO: the quick brown fox jumps over a lazy dog\n"
)

OnLine = Callable[[int, str, Sequence[int]], None]
"""Called with the line's number, its text and the indices of the texts that stand on it."""


class Needles(NamedTuple):
    """The texts, and four bytes of each as a number with how far into the text they stand."""

    texts: tuple[bytes, ...]
    code: NDArray[np.uint32]
    offset: NDArray[np.uint32]


Lines = tuple[int, Any, Any, Any, Any, Any]
"""The number of the line after a block; then of each line with a text number, begin, end, last of its texts; those."""


class Search(Protocol):
    """Looks for texts in one stream of blocks."""

    def drop(self, text: int) -> None: ...
    def scan(self, block: bytes, start: int, stop: int, line: int) -> Lines: ...


def native_search(needles: Needles) -> Search:
    """Return the native search for some texts."""
    return TextScanner(list(needles.texts), needles.code, needles.offset, STEP, REST, REST_EVERY, BEFORE, MAX_LINE)


class Scanner:
    """Looks for many texts at once in one stream of blocks."""

    def __init__(
        self, texts: Sequence[str], on_line: OnLine, search: Callable[[Needles], Search] = native_search
    ) -> None:
        self._texts = tuple(text.encode() for text in texts)
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
                sample = block[:STEP]
                needles = _usual(self._texts) if len(sample) < _SHORT else _chosen(self._texts, sample)
                self._search = self._make(needles)
                first = False
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

    def _show(self, block: bytes, start: int, stop: int) -> None:
        """Report every line with a text that begins in [start, stop), and count the lines."""
        assert self._search is not None
        self._line, numbers, begins, ends, lasts, texts = self._search.scan(block, start, stop, self._line)
        all_texts, first = texts.tolist(), 0
        for number, begin, end, last in zip(
            numbers.tolist(), begins.tolist(), ends.tolist(), lasts.tolist(), strict=True
        ):
            indices = [index for index in all_texts[first:last] if index not in self._dropped]
            first = last
            if indices:
                self._on_line(number, block[begin:end].decode("utf-8", "replace").rstrip("\r"), indices)


def _codes(data: bytes) -> NDArray[np.int64]:
    """Return every four bytes in a row as one number."""
    one = np.frombuffer(data, dtype=np.uint8).astype(np.int64)
    return one[:-3] | one[1:-2] << 8 | one[2:-1] << 16 | one[3:] << 24


def _pairs(sample: bytes) -> NDArray[np.int64]:
    """Return how often each pair of bytes stands in a sample."""
    data = np.frombuffer(sample, dtype=np.uint8).astype(np.int64)
    return np.bincount(data[:-1] | data[1:] << 8, minlength=_PAIRS)


def _chosen(texts: tuple[bytes, ...], sample: bytes) -> Needles:
    """Return the texts with the four bytes of each that cost least here: rare as four, and rare as a pair."""
    if not texts:
        return Needles((), np.empty(0, np.uint32), np.empty(0, np.uint32))
    codes, offset, start = _windows(texts)
    known, often = np.unique(_codes(sample), return_counts=True)
    at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    fours = np.where(known[at] == codes, often[at], 0)
    cost = _FOUR * fours + (_pairs(sample) + 4 * _pairs(_SAMPLE))[codes & 0xFFFF]
    # Of equal ones the first: its offset is the low part of the number that is compared.
    best = np.minimum.reduceat(cost * _PAIRS + offset, start) % _PAIRS
    return Needles(texts, codes[start + best].astype(np.uint32), best.astype(np.uint32))


@lru_cache(maxsize=8)
def _usual(texts: tuple[bytes, ...]) -> Needles:
    """Return the same for any short log."""
    return _chosen(texts, _SAMPLE)


@lru_cache(maxsize=4)  # the texts are those of the rules: the same for every file
def _windows(texts: tuple[bytes, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return every four bytes of every text, how far into the text they stand, and where each text's begin."""
    codes = [_codes(text) for text in texts]
    lengths = np.array([len(each) for each in codes], dtype=np.int64)
    start = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    offset = np.arange(int(lengths.sum())) - np.repeat(start, lengths)
    return np.concatenate(codes), offset, start
