"""One pass over a log that looks at almost nothing: the few lines on which a rule's text stands.

Of each text the pair of bytes that is rarest in this log is looked up for every position through one table of 65,536
flags (NumPy, no copy: the block is read as 16-bit words at even and at odd offsets). Only where a flag is set is the
text compared, and only where the text stands is the line cut out and shown to the patterns. Memory is one block,
whatever the length of the file or of its lines: of a line longer than `MAX_LINE` the stretch around the text is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.diagnose.guard import MAX_LINE

BEFORE = 2048
"""How much of an endless line in front of a text is shown."""
MAX_CARRY = 1 << 20
"""A line without an end this long is searched in pieces."""
_STEP = 1 << 18
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
    text: bytes
    offset: int
    index: int


class Scanner:
    """Looks for many texts at once in one stream of blocks."""

    def __init__(self, texts: Sequence[str], found: OnLine) -> None:
        self._texts = [text.encode() for text in texts]
        self._found = found
        self._table: NDArray[np.bool_] = np.zeros(_PAIRS, dtype=np.bool_)
        self._needles: dict[int, list[_Needle]] = {}
        self._out: NDArray[np.bool_] = np.empty(_STEP // 2, dtype=np.bool_)
        self._line = 1
        self._dropped: set[int] = set()
        self.num_lines = 0

    def drop(self, index: int) -> None:
        """Look for a text no more, in this stream."""
        self._dropped.add(index)
        for pair, needles in list(self._needles.items()):
            left = [needle for needle in needles if needle.index != index]
            if not left:
                del self._needles[pair]
                self._table[pair] = False
            else:
                self._needles[pair] = left

    def scan(self, blocks: Iterable[bytes]) -> None:
        """Go through a stream; lines are counted from 1."""
        carry, skip, self._line, first = b"", 0, 1, True
        for data in blocks:
            block = carry + data if carry else data
            if first:
                self._choose(block[:_STEP])
                first = False
            cut = block.rfind(b"\n") + 1
            if cut == 0 and len(block) < MAX_CARRY:
                carry = block
                continue
            if cut == 0:  # a line without an end: search it and keep what a text at the end still needs
                cut = len(block) - MAX_LINE
                self._search(block, skip, cut)
                keep = max(0, cut - BEFORE)
                carry, skip = block[keep:], cut - keep
                continue
            self._search(block, skip, cut)
            carry, skip = block[cut:], 0
        if carry:
            self._search(carry, skip, len(carry))
        self.num_lines = self._line - 1 + bool(carry)

    def _choose(self, sample: bytes) -> None:
        """Take of each text the pair of bytes that is rarest here."""
        counts = _pairs(sample) + 4 * _pairs(_SAMPLE)
        self._table[:] = False
        self._needles = {}
        for index, text in enumerate(self._texts):
            pairs = [text[i] | text[i + 1] << 8 for i in range(len(text) - 1)]
            offset = min(range(len(pairs)), key=lambda i: (int(counts[pairs[i]]), i))
            self._table[pairs[offset]] = True
            self._needles.setdefault(pairs[offset], []).append(_Needle(text, offset, index))

    def _search(self, block: bytes, start: int, stop: int) -> None:
        """Report every line with a text that begins in [start, stop), and count the lines."""
        at, line = start, self._line
        hits = self._hits(block, start, stop)
        i = 0
        while i < len(hits):
            position = hits[i][0]
            low = max(0, position - BEFORE)
            begin = block.rfind(b"\n", low, position) + 1 or low
            end = block.find(b"\n", position, begin + MAX_LINE)
            end = end if end >= 0 else min(len(block), begin + MAX_LINE)
            indices: list[int] = []
            while i < len(hits) and hits[i][0] < max(end, position + 1):
                if hits[i][1] not in indices and hits[i][1] not in self._dropped:
                    indices.append(hits[i][1])
                i += 1
            if not indices:
                continue
            line += block.count(b"\n", at, position)
            at = position
            self._found(line, block[begin:end].decode("utf-8", "replace").rstrip("\r"), indices)
        self._line = line + block.count(b"\n", at, stop)

    def _hits(self, block: bytes, start: int, stop: int) -> list[tuple[int, int]]:
        found = []
        for position in self._candidates(block):
            pair = block[position] | block[position + 1] << 8
            for needle in self._needles[pair]:
                begin = position - needle.offset
                if start <= begin < stop and block.startswith(needle.text, begin):
                    found.append((begin, needle.index))
        return sorted(found)

    def _candidates(self, block: bytes) -> list[int]:
        """Return every position at which a pair of the table stands."""
        found: list[int] = []
        size = len(block)
        for base in range(0, size, _STEP):
            for odd in (0, 1):
                count = min(_STEP, size - base - odd) // 2
                if count <= 0:
                    continue
                words = np.frombuffer(block, dtype="<u2", count=count, offset=base + odd)
                out = self._out[:count]
                np.take(self._table, words, out=out, mode="wrap")
                if out.any():
                    found.extend((2 * np.flatnonzero(out) + (base + odd)).tolist())
        return found


def _pairs(sample: bytes) -> NDArray[np.int64]:
    data = np.frombuffer(sample, dtype=np.uint8).astype(np.int64)
    if len(data) < 2:
        return np.zeros(_PAIRS, dtype=np.int64)
    return np.bincount(data[:-1] | data[1:] << 8, minlength=_PAIRS)
