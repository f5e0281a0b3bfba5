"""Activities that overlap, laid so that each moment has one of them: the first in an order of precedence.

bare = sweep(layers)                       # what of each layer no layer before it covers
seconds = overlap(bare[2], bounds)         # how much of it is in each step
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.timeline.columns import Floats
from syncline.timeline.intervals import Intervals, subtract, union


def covered(start_s: Floats, end_s: Floats) -> Intervals:
    """Return what some activities cover together."""
    return union(np.zeros(len(start_s), np.int64), start_s, end_s)


def sweep(layers: Sequence[Intervals]) -> list[Intervals]:
    """Return of each layer what no layer before it covers."""
    found: list[Intervals] = []
    taken = covered(np.empty(0), np.empty(0))
    for layer in layers:
        found.append(subtract(layer, taken) if len(taken) else layer)
        taken = covered(np.concatenate([taken.start_s, layer.start_s]), np.concatenate([taken.end_s, layer.end_s]))
    return found


def remainder(layers: Sequence[Intervals], start_s: float, end_s: float) -> Intervals:
    """Return what no layer covers between two moments."""
    starts = np.concatenate([layer.start_s for layer in layers]) if layers else np.empty(0)
    ends = np.concatenate([layer.end_s for layer in layers]) if layers else np.empty(0)
    return subtract(covered(np.array([start_s]), np.array([end_s])), covered(starts, ends))


def overlap(parts: Intervals, begin_s: Floats, end_s: Floats) -> Floats:
    """Return how much of disjoint intervals lies in each of some windows."""
    return _before(parts, end_s) - _before(parts, begin_s)


def _before(parts: Intervals, moment_s: Floats) -> Floats:
    """Return how much of disjoint intervals lies before each moment."""
    if not len(parts):
        return np.zeros(len(moment_s))
    lengths = np.concatenate([[0.0], np.cumsum(parts.end_s - parts.start_s)])
    at = np.searchsorted(parts.start_s, moment_s, side="right")
    last = np.maximum(at - 1, 0)
    beyond = np.where(at > 0, np.maximum(parts.end_s[last] - moment_s, 0.0), 0.0)
    return lengths[at] - beyond
