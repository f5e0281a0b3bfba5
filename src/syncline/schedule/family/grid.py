"""Stages over a grid of ranks: one dimension after the other, each on the part of the buffer the last one left.

Rank numbers count through the grid with the last axis fastest. Reducing along axis a, then b, then c leaves every rank
with the block that its three coordinates name; gathering goes back the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import MAX_RANKS, Ints
from syncline.schedule.kernel import Axes, Kernel, Stage


def grid_size(shape: Sequence[int]) -> int:
    """Return the ranks of a grid, or say what is wrong with its shape."""
    if not shape or min(shape) < 1:
        raise ScheduleError(f"a grid needs positive sizes, not {'x'.join(str(size) for size in shape) or 'none'}.")
    if prod(shape) > MAX_RANKS:
        raise ScheduleError(f"{prod(shape):,} ranks are more than the {MAX_RANKS:,} a schedule can have.",
                            hint="Give the collective of one group of ranks.")  # fmt: skip
    return prod(shape)


def axis_groups(shape: Sequence[int], axis: int) -> Ints:
    """Return the groups of ranks that differ in one coordinate only, one group a row."""
    ranks = np.arange(prod(shape), dtype=np.int64).reshape(shape)
    return np.moveaxis(ranks, axis, -1).reshape(-1, shape[axis])


def coordinates(shape: Sequence[int], axis: int, ranks: Ints) -> Ints:
    """Return one coordinate of each rank."""
    return ranks // prod(shape[axis + 1 :]) % shape[axis]


def nested_strides(sizes: Sequence[int]) -> list[int]:
    """Return the stride of each digit when the first one is the slowest."""
    return [prod(sizes[k + 1 :]) for k in range(len(sizes))]


def nested_stage(
    shape: Sequence[int],
    order: Sequence[int],
    depth: int,
    kernel: Kernel,
    strides: Sequence[int],
    counts: Sequence[int],
) -> Stage:
    """Return the stage along axis `order[depth]`, on the block that the axes before it in `order` narrowed down.

    `strides` and `counts` are the chunk digits, one for each axis in `order`: a rank works on the chunks whose earlier
    digits are its own coordinates, and chunks that differ only in later digits move as one.
    """
    members = axis_groups(shape, order[depth])
    first = members[:, 0]
    base = np.zeros(len(members), dtype=np.int64)
    for earlier in range(depth):
        base += coordinates(shape, order[earlier], first) * strides[earlier]
    spans = _joined([(counts[k], strides[k]) for k in range(depth + 1, len(order)) if counts[k] > 1])
    return Stage(kernel, members, base, ((counts[depth], strides[depth]),), spans)


def _joined(axes: list[tuple[int, int]]) -> Axes:
    """Join neighbouring digits that count on without a gap, after sorting them by stride."""
    out: list[tuple[int, int]] = []
    for count, stride in sorted(axes, key=lambda axis: axis[1]):
        if out and stride == out[-1][0] * out[-1][1]:
            out[-1] = (out[-1][0] * count, out[-1][1])
        else:
            out.append((count, stride))
    return tuple(reversed(out))
