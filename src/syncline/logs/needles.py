"""Which four bytes of each text the native search looks for: those that are rare in this log."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_FOUR = 20  # what a place costs at which four bytes agree, against one at which two do
_PAIRS = 1 << 16
_SAMPLE = (
    b"node007:1234:5678 [3] NCCL INFO Channel 07/0 : 12[4] -> 20[4] [send] via NET/IB/4/GDRDMA\n"
    b"node007:1234:5678 [3] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 [2] 1/-1/-1->0->8\n"
    b"[2026-11-15 05:30:00,123] iteration 1000/500000 | elapsed time per iteration (ms): 5000.3 | lm loss: 2.123\n"
    b"Nov 15 05:30:00 host kernel: [12345.678901] audit: type=1400 INFO: the quick brown fox jumps over a lazy dog\n"
)


class Needles(NamedTuple):
    """The texts, and four bytes of each as a number with how far into the text they stand."""

    texts: tuple[bytes, ...]
    code: NDArray[np.uint32]
    offset: NDArray[np.uint32]


def _codes(data: bytes) -> NDArray[np.int64]:
    """Return every four bytes in a row as one number."""
    one = np.frombuffer(data, dtype=np.uint8).astype(np.int64)
    return one[:-3] | one[1:-2] << 8 | one[2:-1] << 16 | one[3:] << 24


def _pairs(sample: bytes) -> NDArray[np.int64]:
    """Return how often each pair of bytes stands in a sample."""
    data = np.frombuffer(sample, dtype=np.uint8).astype(np.int64)
    return np.bincount(data[:-1] | data[1:] << 8, minlength=_PAIRS)


def chosen(texts: tuple[bytes, ...], sample: bytes) -> Needles:
    """Return the texts with the four bytes of each that cost least here: rare as four, and rare as a pair."""
    if not texts:
        return Needles((), np.empty(0, np.uint32), np.empty(0, np.uint32))
    codes, offset, start = _windows(texts)
    known, often = np.unique(_codes(sample if len(sample) > len(_SAMPLE) else _SAMPLE), return_counts=True)
    at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    fours = np.where(known[at] == codes, often[at], 0)
    cost = _FOUR * fours + (_pairs(sample) + 4 * _pairs(_SAMPLE))[codes & 0xFFFF]
    # Of equal ones the first: its offset is the low part of the number that is compared.
    best = np.minimum.reduceat(cost * _PAIRS + offset, start) % _PAIRS
    return Needles(texts, codes[start + best].astype(np.uint32), best.astype(np.uint32))


@lru_cache(maxsize=4)  # the texts are those of the rules: the same for every file
def _windows(texts: tuple[bytes, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return every four bytes of every text, how far into the text they stand, and where each text's begin."""
    codes = [_codes(text) for text in texts]
    lengths = np.array([len(each) for each in codes], dtype=np.int64)
    start = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    offset = np.arange(int(lengths.sum())) - np.repeat(start, lengths)
    return np.concatenate(codes), offset, start
