"""Which span of one timeline is which span of another: same rank, kind, name, step, round, and the n-th such."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.timeline.columns import Array, Ints, representative
from syncline.timeline.intervals import grouped_order
from syncline.timeline.timeline import Timeline

ALWAYS = ("rank", "kind", "name")
IF_BOTH = ("step", "round", "peer")
"""Part of the key only where both timelines fill them: a source that does not know its peers can still be compared."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """Pairs of rows (first[i] is second[i]), the rows without a partner, and the columns of the key."""

    first: Ints
    second: Ints
    occurrence: Ints
    only_first: Ints
    only_second: Ints
    keys: tuple[str, ...]
    dropped: tuple[str, ...]


def align(first: Timeline, second: Timeline) -> Alignment:
    """Return the pairing of two timelines' spans; repeats of one key pair in order of their start."""
    keys, dropped = _keys(first, second)
    group = _groups(first, second, keys)
    num_first = len(first.spans)
    rows_first, nth_first = _occurrences(group[:num_first], first)
    rows_second, nth_second = _occurrences(group[num_first:], second)
    width = 1 + max(nth_first.max(initial=0), nth_second.max(initial=0))
    code_first = group[:num_first][rows_first] * width + nth_first
    code_second = group[num_first:][rows_second] * width + nth_second
    at_first, at_second = _meet(code_first, code_second)
    pairs_first, pairs_second = rows_first[at_first], rows_second[at_second]
    return Alignment(
        first=pairs_first,
        second=pairs_second,
        occurrence=nth_first[at_first],
        only_first=_others(num_first, pairs_first),
        only_second=_others(len(second.spans), pairs_second),
        keys=(*keys, "occurrence"),
        dropped=dropped,
    )


def _keys(first: Timeline, second: Timeline) -> tuple[tuple[str, ...], tuple[str, ...]]:
    fills = [{key: _filled(t.spans.column(key)) for key in IF_BOTH} for t in (first, second)]
    used = tuple(key for key in IF_BOTH if fills[0][key] and fills[1][key])
    dropped = tuple(key for key in IF_BOTH if fills[0][key] != fills[1][key])
    return (*ALWAYS, *used), dropped


def _filled(column: Array) -> bool:
    return bool((representative(column) >= 0).any())


def _groups(first: Timeline, second: Timeline, keys: tuple[str, ...]) -> Ints:
    """Return one number per row of both timelines, the same where all keys are the same."""
    code = np.zeros(len(first.spans) + len(second.spans), np.int64)
    extent = 1
    for key in keys:
        column = _shared_names(first, second) if key == "name" else _joined(first, second, key)
        width = int(column.max(initial=-1)) + 2
        if extent * width >= 2**62:
            code, extent = _dense(code)
        code = code * width + (column + 1)
        extent *= width
    # Room for counting repeats behind the key; numbering the keys anew costs a sort of all rows.
    return code if extent * (len(code) + 1) < 2**62 else _dense(code)[0]


def _joined(first: Timeline, second: Timeline, key: str) -> Ints:
    return np.concatenate([first.spans.column(key), second.spans.column(key)]).astype(np.int64)


def _shared_names(first: Timeline, second: Timeline) -> Ints:
    table: dict[str, int] = {}
    index = [np.array([table.setdefault(n, len(table)) for n in t.names], np.int64) for t in (first, second)]
    return np.concatenate([index[0][first.spans.name], index[1][second.spans.name]])


def _dense(code: Ints) -> tuple[Ints, int]:
    values, index = np.unique(code, return_inverse=True)
    return index.reshape(-1).astype(np.int64), max(1, len(values))


def _occurrences(group: Ints, timeline: Timeline) -> tuple[Ints, Ints]:
    """Return rows ordered by group and start, and which repeat of its group each of them is."""
    start_s, end_s = timeline.spans.start_s, timeline.spans.end_s
    rows = grouped_order(group, start_s)
    ordered, start, end = group[rows], start_s[rows], end_s[rows]
    if ((ordered[1:] == ordered[:-1]) & (start[1:] == start[:-1]) & (end[1:] < end[:-1])).any():
        # Repeats that start together are ordered by their end. They are rare, and so is the third sort.
        rows = np.lexsort((end_s, start_s, group)).astype(np.int64)
    opens = np.ones(len(rows), bool)
    opens[1:] = ordered[1:] != ordered[:-1]
    position = np.arange(len(rows), dtype=np.int64)
    return rows, position - np.maximum.accumulate(np.where(opens, position, 0))


def _meet(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Return the places of equal values in two ascending columns without repeats."""
    if not len(second):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    place = np.minimum(np.searchsorted(second, first), len(second) - 1)
    both = np.flatnonzero(second[place] == first)
    return both, place[both]


def _others(num_rows: int, rows: Ints) -> Ints:
    free = np.ones(num_rows, bool)
    free[rows] = False
    return np.flatnonzero(free).astype(np.int64)
