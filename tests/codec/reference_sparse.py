"""The sparse schemes in plain NumPy: thresholds by histogram, and selection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.codec.reference import INF_BITS, _input

from syncline.codec.scheme import F32, U8

HEADER_BYTES = 8  # u32 count, u32 flags
POISONED = 1  # flag: a NaN or Inf was among the values
BIN_SHIFT = 16  # a histogram bin is the exponent and the first 7 bits of the mantissa: 0.8 % wide at most
LANES = 16  # samples are taken by runs of one cache line


def threshold(values: F32, residual: F32 | None, wanted: int, stride: int, offset: int) -> tuple[int, int]:
    """Return the bits of a magnitude that about `wanted` elements reach, and how many that equal it to keep.

    With stride 1 exactly the `wanted` largest are kept, of equal ones the first; zeros never.

    With a larger stride one cache line of 16 elements in `stride` is read, from line `offset` on.
    """
    a = _input(values, residual)
    if stride > 1:
        lines = a[: a.size // LANES * LANES].reshape(-1, LANES)
        a = lines[offset::stride].reshape(-1)
        wanted = max(1, wanted * a.size // max(1, values.size))
    bits = a.view(np.uint32) & np.uint32(0x7FFFFFFF)
    if stride == 1:
        return _exact(bits, wanted)
    counts = np.bincount(bits >> np.uint32(BIN_SHIFT), minlength=1 << 15)
    place, above = _bin_reached(counts, wanted)
    # Within the bin as if its elements lay evenly: error feedback crowds them just below the threshold.
    count = int(counts[place])
    inside = (max(0, count - (wanted - above)) << BIN_SHIFT) // count if count else 0
    return (place << BIN_SHIFT) + inside or 1, values.size


def _bin_reached(counts: NDArray[np.int64], wanted: int) -> tuple[int, int]:
    """Return the highest bin b such that bins b and up hold at least `wanted`, and what lies above b."""
    from_here_up = np.cumsum(counts[::-1])[::-1]
    place = int(np.flatnonzero(from_here_up >= wanted).max(initial=0))
    return place, int(from_here_up[place] - counts[place])


def _exact(bits: NDArray[np.uint32], wanted: int) -> tuple[int, int]:
    """Return the magnitude of rank `wanted` by radix selection: two histograms, no sort."""
    top, above = _bin_reached(np.bincount(bits >> np.uint32(BIN_SHIFT), minlength=1 << 15), wanted)
    inside = bits[bits >> np.uint32(BIN_SHIFT) == top] & np.uint32(0xFFFF)
    low, above_inside = _bin_reached(np.bincount(inside, minlength=1 << 16), wanted - above)
    found = top << BIN_SHIFT | low
    return (found, wanted - above - above_inside) if found else (1, bits.size)


def select(values: F32, residual: F32 | None, threshold: int, ties: int, index: U8, value: U8) -> tuple[int, bool]:
    """Write the first elements that reach the threshold, as many as fit; return how many, and whether it is poisoned.

    The residual becomes what is not sent. A NaN or Inf poisons the whole payload: nothing is kept, the finite elements
    stay in the residual. Unused places become 0.
    """
    a = _input(values, residual)
    bits = a.view(np.uint32) & np.uint32(0x7FFFFFFF)
    poisoned = bool((bits >= INF_BITS).any())
    equal = bits == threshold
    reach = (bits > threshold) | (equal & (np.cumsum(equal) <= ties))
    found = np.flatnonzero(reach & (not poisoned))[: index.size // 4]
    for place, numbers in ((index, found.astype(np.uint32)), (value, a[found])):
        place[:] = 0
        place[: 4 * found.size] = numbers.view(np.uint8)
    if residual is not None:
        residual[:] = np.where(bits >= INF_BITS, np.float32(0), a)
        residual[found] = 0
    return found.size, poisoned


def scatter(index: U8, value: U8, count: int, out: F32, add: bool, scale: float) -> None:
    """Put the kept values at their places; places outside are an error before anything is written."""
    if 4 * count > index.size:
        raise ValueError("count is beyond the places")
    places = index[: 4 * count].view(np.uint32)
    if places.size and int(places.max()) >= out.size:
        raise ValueError("an index lies outside the array")
    if not add:
        out[:] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(out, places, value[: 4 * count].view(np.float32) * np.float32(scale))
