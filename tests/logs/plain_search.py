"""The twin of the native search of `syncline.logs.scan`: the same lines, several times the work."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.logs.guard import MAX_LINE
from syncline.logs.needles import Needles
from syncline.logs.scan import BEFORE, REST, REST_EVERY, STEP, Lines

_PAIRS = 1 << 16


@dataclass(frozen=True)
class _Needle:
    text: bytes
    offset: int
    index: int
    code: int


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
    """Looks for texts in one stream of blocks."""

    def __init__(self, needles: Needles) -> None:
        rows = zip(
            needles.texts, needles.offset.tolist(), range(len(needles.texts)), needles.code.tolist(), strict=True
        )
        self._all = self._awake = _Table(_Needle(*row) for row in rows)
        self._counts = [0] * len(needles.texts)
        self._steps = 0
        self._out: NDArray[np.bool_] = np.empty(STEP // 2, dtype=np.bool_)

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
        number, begins, ends, last = ([row[column] for row in rows] for column in range(4))
        return line + block.count(b"\n", at, stop), number, begins, ends, last, texts

    def _hits(self, block: bytes, start: int, stop: int) -> list[tuple[int, int]]:
        """Return where texts begin in [start, stop), in order."""
        found = []
        for base in range(0, len(block), STEP):
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
            high = min(low + STEP // 2, len(words) - 1)
            if high <= low:
                continue
            out = self._out[: high - low]
            np.take(table.flags, words[low:high], out=out, mode="wrap")
            at = np.flatnonzero(out) + low
            codes = words[at].astype(np.uint32) | words[at + 1].astype(np.uint32) << 16
            index = np.minimum(np.searchsorted(table.codes, codes), len(table.codes) - 1)
            same = table.codes[index] == codes
            yield from zip((2 * at[same] + odd).tolist(), codes[same].tolist(), strict=True)
