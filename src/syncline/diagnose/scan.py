"""One pass over a log that looks at almost nothing: the few lines on which a rule's text stands.

Of each text four bytes are chosen that are rare in this log. The native search hashes the four bytes at every position
into one bitmap; only where its bit is set are they compared with those of the texts, only where they agree is the text
compared, and only where the text stands is the line cut out and shown to the patterns. Where the extension was not
built, its twin does the same with NumPy. Memory is one block, whatever the length of the file or of its lines: of a
line longer than `MAX_LINE` the stretch around the text is shown.

A text that floods a log rests: after `REST` finds it is looked for in one stretch of `REST_EVERY` only. All other texts
are looked for everywhere, so a rare line is never missed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from syncline.diagnose.guard import MAX_LINE

BEFORE = 2048
"""How much of an endless line in front of a text is shown."""
MAX_CARRY = 1 << 20
"""A line without an end this long is searched in pieces."""
REST = 20_000
REST_EVERY = 64
_FOUR = 20  # what a place costs at which four bytes agree, against one at which two do
_STEP = 1 << 18
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


@dataclass(frozen=True)
class _Needle:
    """A text, and four of its bytes as a number with how far into the text they stand."""

    text: bytes
    offset: int
    index: int
    code: int


Lines = tuple[int, Any, Any, Any, Any, Any]
"""The number of the line after a block; then of each line with a text number, begin, end, last of its texts; those."""


class _Search(Protocol):
    """What looks for texts in one stream of blocks: the native search or its twin."""

    def drop(self, text: int) -> None: ...
    def scan(self, block: bytes, start: int, stop: int, line: int) -> Lines: ...


class Scanner:
    """Looks for many texts at once in one stream of blocks."""

    def __init__(self, texts: Sequence[str], found: OnLine, *, native: bool = True) -> None:
        self._texts = [text.encode() for text in texts]
        self._found = found
        self._is_native = native and NATIVE is not None
        self._search: _Search | None = None
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
                self._search = self._chosen(block[:_STEP])
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

    def _chosen(self, sample: bytes) -> _Search:
        """Return the search for the four bytes of each text that cost least here: rare as four, and rare as a pair."""
        texts = tuple(self._texts)
        needles = _usual(texts) if len(sample) < _SHORT else _chosen(texts, sample)
        if not self._is_native:
            return PythonSearch(needles)
        assert NATIVE is not None
        code = np.array([needle.code for needle in needles], np.uint32)
        offset = np.array([needle.offset for needle in needles], np.uint32)
        search: _Search = NATIVE(self._texts, code, offset, _STEP, REST, REST_EVERY, BEFORE, MAX_LINE)
        return search

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
                self._found(number, block[begin:end].decode("utf-8", "replace").rstrip("\r"), indices)


class _Table:
    """The texts to look for, by four bytes of each; `flags` says which pairs of bytes those begin with."""

    def __init__(self, needles: Iterable[_Needle] = ()) -> None:
        self.flags: NDArray[np.bool_] = np.zeros(_PAIRS, dtype=np.bool_)
        self.needles: dict[int, list[_Needle]] = {}
        for needle in needles:
            self.flags[needle.code & 0xFFFF] = True
            self.needles.setdefault(needle.code, []).append(needle)
        self.codes: NDArray[np.uint32] = np.array(sorted(self.needles) or [0], dtype=np.uint32)

    def without(self, indices: Container[int]) -> _Table:
        """Return the table that does not look for some of the texts."""
        return _Table(needle for needles in self.needles.values() for needle in needles if needle.index not in indices)


class PythonSearch:
    """The twin of the native search: the same lines, several times the work."""

    def __init__(self, needles: Sequence[_Needle]) -> None:
        self._all = self._awake = _Table(needles)
        self._counts = [0] * len(needles)
        self._steps = 0
        self._out: NDArray[np.bool_] = np.empty(_STEP // 2, dtype=np.bool_)

    def drop(self, text: int) -> None:
        """Look for a text no more."""
        self._all, self._awake = self._all.without({text}), self._awake.without({text})

    def scan(self, block: bytes, start: int, stop: int, line: int) -> Lines:
        """Return the lines with a text that begins in [start, stop)."""
        rows: list[tuple[int, int, int, int]] = []
        texts: list[int] = []
        at, i = start, 0
        hits = self._hits(block, start, stop)
        while i < len(hits):
            position = hits[i][0]
            low = max(0, position - BEFORE)
            begin = block.rfind(b"\n", low, position) + 1 or low
            end = block.find(b"\n", position, begin + MAX_LINE)
            end = end if end >= 0 else min(len(block), begin + MAX_LINE)
            limit = max(end, position + 1)
            first = len(texts)
            while i < len(hits) and hits[i][0] < limit:
                if hits[i][1] not in texts[first:]:
                    texts.append(hits[i][1])
                i += 1
            line += block.count(b"\n", at, position)
            at = position
            rows.append((line, begin, end, len(texts)))
        number, begins, ends, last = np.array(rows, np.int64).reshape(-1, 4).T
        return line + block.count(b"\n", at, stop), number, begins, ends, last, np.array(texts, np.int32)

    def _hits(self, block: bytes, start: int, stop: int) -> list[tuple[int, int]]:
        """Return where texts begin in [start, stop), in order."""
        found = []
        for base in range(0, len(block), _STEP):
            table = self._all if self._steps % REST_EVERY == 0 else self._awake
            self._steps += 1
            tired = False
            for position, code in self._candidates(block, base, table):
                for needle in table.needles[code]:
                    begin = position - needle.offset
                    if start <= begin < stop and block.startswith(needle.text, begin):
                        found.append((begin, needle.index))
                        self._counts[needle.index] += 1
                        tired |= self._counts[needle.index] == REST
            if tired:  # a text floods this stream
                self._awake = self._all.without({i for i, count in enumerate(self._counts) if count >= REST})
        return sorted(found)

    def _candidates(self, block: bytes, base: int, table: _Table) -> Iterator[tuple[int, int]]:
        """Yield every position of one stretch at which four bytes of a text stand, with those."""
        for odd in (0, 1):
            words = np.frombuffer(block, dtype="<u2", count=(len(block) - odd) // 2, offset=odd)
            low = base // 2
            high = min(low + _STEP // 2, len(words) - 1)
            if high <= low:
                continue
            out = self._out[: high - low]
            np.take(table.flags, words[low:high], out=out, mode="wrap")
            at = np.flatnonzero(out) + low
            codes = words[at].astype(np.uint32) | words[at + 1].astype(np.uint32) << 16
            index = np.minimum(np.searchsorted(table.codes, codes), len(table.codes) - 1)
            same = table.codes[index] == codes
            yield from zip((2 * at[same] + odd).tolist(), codes[same].tolist(), strict=True)


def _counts(sample: bytes) -> NDArray[np.int64]:
    """Return how often each pair of bytes stands in a sample."""
    data = np.frombuffer(sample, dtype=np.uint8).astype(np.int64)
    return np.bincount(data[:-1] | data[1:] << 8, minlength=_PAIRS) if len(data) > 1 else np.zeros(_PAIRS, np.int64)


def _fours(sample: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fours of bytes that stand in a sample, in order, and how often."""
    if len(sample) < 4:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    return np.unique(_codes(sample), return_counts=True)


def _codes(data: bytes) -> NDArray[np.int64]:
    """Return every four bytes in a row as one number."""
    one = np.frombuffer(data, dtype=np.uint8).astype(np.int64)
    return one[:-3] | one[1:-2] << 8 | one[2:-1] << 16 | one[3:] << 24


class _Windows(NamedTuple):
    """Every four bytes of every text: their code, how far into the text they are, and where each text's begin."""

    codes: NDArray[np.int64]
    offset: NDArray[np.int64]
    start: NDArray[np.int64]


def _chosen(texts: tuple[bytes, ...], sample: bytes) -> tuple[_Needle, ...]:
    """Return the texts with the four bytes of each that cost least in logs like the sample."""
    if not texts:
        return ()
    windows = _windows(texts)
    pairs, (known, often) = _counts(sample) + 4 * _counts(_SAMPLE), _fours(sample)
    at = np.minimum(np.searchsorted(known, windows.codes), len(known) - 1)
    fours = np.where(known[at] == windows.codes, often[at], 0)
    cost = _FOUR * fours + pairs[windows.codes & 0xFFFF]
    # Of equal ones the first: its offset is the low part of the number that is compared.
    best = np.minimum.reduceat(cost * _PAIRS + windows.offset, windows.start) % _PAIRS
    codes = windows.codes[windows.start + best].tolist()
    rows = zip(texts, best.tolist(), codes, strict=True)
    return tuple(_Needle(text, offset, index, code) for index, (text, offset, code) in enumerate(rows))


@lru_cache(maxsize=8)
def _usual(texts: tuple[bytes, ...]) -> tuple[_Needle, ...]:
    """Return the same for any short log."""
    return _chosen(texts, _SAMPLE)


@lru_cache(maxsize=4)  # the texts are those of the rules: the same for every file
def _windows(texts: tuple[bytes, ...]) -> _Windows:
    codes = [_codes(text) for text in texts]
    lengths = np.array([len(each) for each in codes], dtype=np.int64)
    start = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    offset = np.arange(int(lengths.sum())) - np.repeat(start, lengths)
    return _Windows(np.concatenate(codes), offset, start)


def _native() -> Any | None:
    try:
        from syncline._native.scanner import TextScanner
    except ImportError:  # built without it
        return None
    return TextScanner


NATIVE = _native()
