"""Arithmetic for the proof: exact counts with a cap, or sums modulo a 62-bit prime.

Both are add-only, so `Counts` may saturate: a count at the cap can never come back to one. `Residues` draws every
contributor's weight uniformly below a prime p > 2^62 that the seed picks: a wrong sum of contributions (any counts
below p) equals the right one for less than one weight in 2^62.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]

CAP = 1 << 20

PRIMES = tuple((1 << 63) - d for d in (25, 165, 259, 301, 375, 387, 391, 409, 457, 471))
"""The ten largest primes below 2^63."""


class Numbers(Protocol):
    """What the proof adds up: weights of contributors, and weights of unknown data."""

    def contributions(self, num_ranks: int) -> Values: ...
    def unknowns(self, num_vertices: int) -> Values: ...
    def add(self, left: Values, right: Values) -> Values: ...
    def add_at(self, state: Values, at: NDArray[np.int64], values: Values) -> None: ...
    def total(self, values: Values, axis: int) -> Values: ...


@dataclass(frozen=True)
class Counts:
    """How often each of `num_ranks` contributors is in a sum; the last column counts unknown data."""

    num_ranks: int

    def contributions(self, num_ranks: int) -> Values:
        return np.eye(num_ranks, self.num_ranks + 1, dtype=np.int32)

    def unknowns(self, num_vertices: int) -> Values:
        out = np.zeros((num_vertices, self.num_ranks + 1), dtype=np.int32)
        out[:, -1] = 1
        return out

    def add(self, left: Values, right: Values) -> Values:
        return np.asarray(np.minimum(left + right, CAP))

    def add_at(self, state: Values, at: NDArray[np.int64], values: Values) -> None:
        touched, order, first = _groups(at)
        gathered = np.add.reduceat(values[order], first, axis=0, dtype=np.int64)
        state[touched] = np.minimum(state[touched] + gathered, CAP)

    def total(self, values: Values, axis: int) -> Values:
        return np.asarray(np.minimum(values.sum(axis=axis, dtype=np.int64), CAP), dtype=np.int32)


class Residues:
    """Sums of random weights modulo a prime."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self.prime = PRIMES[int(self._draw.integers(len(PRIMES)))]
        self._p = np.uint64(self.prime)

    def contributions(self, num_ranks: int) -> Values:
        return self._draw.integers(1, self.prime, num_ranks, dtype=np.uint64)

    def unknowns(self, num_vertices: int) -> Values:
        return self._draw.integers(1, self.prime, num_vertices, dtype=np.uint64)

    def add(self, left: Values, right: Values) -> Values:
        out: Values = np.asarray(left + right)
        less: Values = np.subtract(out[...], self._p)  # below p this wraps round to something huge
        return np.asarray(np.minimum(out, less))

    def add_at(self, state: Values, at: NDArray[np.int64], values: Values) -> None:
        touched, order, first = _groups(at)
        ordered = values[order]
        low = np.add.reduceat(ordered & np.uint64(0xFFFFFFFF), first)
        high = np.add.reduceat(ordered >> np.uint64(32), first)
        state[touched] = self.add(state[touched], self._join(low, high))

    def total(self, values: Values, axis: int) -> Values:
        low = (values & np.uint64(0xFFFFFFFF)).sum(axis=axis, dtype=np.uint64)
        return self._join(low, (values >> np.uint64(32)).sum(axis=axis, dtype=np.uint64))

    def _join(self, low: Values, high: Values) -> Values:
        """Return (low + 2^32 high) mod p; sums of halves fit 64 bits for up to 2^32 terms."""
        out = high % self._p
        for _ in range(32):
            out = self.add(out, out)
        return self.add(out, low % self._p)


def _groups(at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the different places, an order that brings equal ones together, and where each group begins in it."""
    order = np.argsort(at, kind="stable")
    touched, first = np.unique(at[order], return_index=True)
    return touched, order, first
