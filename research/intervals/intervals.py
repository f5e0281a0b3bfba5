"""Intervals from residuals: quantiles by group, stretched to hold publications left out, and checked on others.

    table = make_table(rows)           # the content of sim/data/uncertainty.yaml
    crossed(rows)                      # how many rows lie inside, each part judged by the other two

A group is kept where five publications and thirty measurements speak of it. Its quantiles of log(measured / predicted),
a publication's rows weighted by one over the root of their number and the fewer publications the wider, are averaged
with those of the group that it is part of, which counts as two publications, unless the two have different tails
(`STRETCHED`). They are stretched by one factor for each of these, found by leaving each publication out in turn: 90 %
(50 %) of what was left out must lie in the 90 % (50 %) interval.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pvariance, variance
from typing import Any

import numpy as np
import numpy.typing as npt
from research.intervals.residuals import Residual

from syncline.describe.plain import JsonObject
from syncline.sim.uncertainty import (
    ANCHORS,
    ORDERS,
    PAIRS,
    Spread,
    between_bands,
    spread_in,
    words,
)

Floats = npt.NDArray[np.float64]
LEAST_SOURCES, LEAST_ROWS = 5, 30
#: As how many publications of a group's own the group that it is part of counts.
POOLED = 2
#: Student's t at 95 % by degrees of freedom: where few tables speak, the worst of them is no bound.
STUDENT = {1: 6.31, 2: 2.92, 3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.90, 8: 1.86}
QUANTILES = (0.05, 0.25, 0.75, 0.95)
#: No interval is narrower than this in log units, and none is stretched by more or less.
LEAST = 0.01
STRETCH = (1.0, 3.0)
HELD = (0.90, 0.50)
#: The facet whose values are stretched apart: their errors have different tails.
STRETCHED = {"step": "stated", "collective": "reach", "memory": None, "serve": "start", "price": None}


@dataclass(frozen=True)
class ErrorQuantiles:
    """How far off a group's predictions were: quantiles of log(measured / predicted), and the extremes."""

    num_rows: int
    num_sources: int
    log: list[float]
    worst: tuple[float, float]

    def to_json(self) -> JsonObject:
        return {"rows": self.num_rows, "sources": self.num_sources, "log": self.log}


def make_table(rows: Sequence[Residual]) -> JsonObject:
    """Return the table of intervals of every subject that has rows."""
    by_subject = {subject: [row for row in rows if row.subject == subject] for subject in ORDERS}
    return {subject: _subject(subject, mine) for subject, mine in by_subject.items() if mine}


def _subject(subject: str, rows: Sequence[Residual]) -> JsonObject:
    cells = _cells(subject, rows)
    for name, by in _stretches(subject, rows).items():
        for key in cells:
            if _stretched(subject, key) == name:
                cell = cells[key]
                values = [stretch * end for stretch, end in zip(by, cell.log, strict=True)]
                # Half of all lie inside nine tenths of all, whatever each was stretched by.
                values[0], values[3] = min(values[0], values[1]), max(values[2], values[3])
                # A long tail is not stretched past the worst that its group ever measured.
                values[0] = max(values[0], min(cell.worst[0], cell.log[0], values[1]))
                values[3] = min(values[3], max(cell.worst[1], cell.log[3], values[2]))
                if subject == "memory":
                    values[0], values[3] = _next_table(rows, values[0], values[3])
                cells[key] = replace(cell, log=[round(float(value), 4) for value in values])
    pairs = sorted({"|".join(row.facets[name] for name in PAIRS[subject]) for row in rows}) if subject in PAIRS else []
    return {
        "measured": {name: sorted({row.facets[name] for row in rows}) for name in ORDERS[subject]},
        "measured_pairs": pairs,
        "largest": max((row.size for row in rows), default=0),
        "cells": {key: cell.to_json() for key, cell in cells.items()},
    }


def _next_table(rows: Sequence[Residual], low: float, high: float) -> tuple[float, float]:
    """Return ends that nine of ten further tables lie inside, if those so far were drawn from one normal distribution.

    Rows of a table err together, so its mean counts once; what its rows differ by among themselves comes on top.
    """
    tables: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        tables[row.publication].append(row.residual)
    if len(tables) - 1 not in STUDENT:
        return low, high
    middle, reach = next_table(list(tables.values()))
    return min(low, middle - reach), max(high, middle + reach)


def next_table(tables: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the mean of tables of errors, and how far from it nine of ten further values lie, were they normal."""
    means = [fmean(table) for table in tables]
    inside = fmean(pvariance(table) for table in tables)
    apart = variance(means) * (1 + 1 / len(means)) + inside
    return fmean(means), STUDENT[min(len(means) - 1, max(STUDENT))] * math.sqrt(apart)


def _groups(subject: str, rows: Sequence[Residual]) -> dict[str, list[Residual]]:
    """Return the rows of every group: by all facets, by all but the last, and so on to all rows together."""
    order = ORDERS[subject]
    groups: dict[str, list[Residual]] = defaultdict(list)
    for row in rows:
        for length in range(len(order) + 1):
            groups["|".join(row.facets[name] for name in order[:length])].append(row)
    return groups


def _cell(key: str, rows: Sequence[Residual]) -> ErrorQuantiles | None:
    """Return the quantiles of a group, None where too few speak of it; all rows together are always enough."""
    sources = {row.publication for row in rows}
    if key != "" and (len(sources) < LEAST_SOURCES or len(rows) < LEAST_ROWS):
        return None
    values = [row.residual for row in rows]
    return ErrorQuantiles(len(rows), len(sources), _quantiles(rows), (min(values), max(values)))


def _pooled(own: ErrorQuantiles, parent: ErrorQuantiles | None) -> ErrorQuantiles:
    """Return a group's quantiles averaged with those of the group it is part of: a few odd sources are no rule."""
    if parent is None:
        return own
    share = own.num_sources / (own.num_sources + POOLED)
    log = [share * mine + (1 - share) * wide for mine, wide in zip(own.log, parent.log, strict=True)]
    worst = min(own.worst[0], parent.worst[0]), max(own.worst[1], parent.worst[1])
    return replace(own, log=log, worst=worst)


def _cells(subject: str, rows: Sequence[Residual]) -> dict[str, ErrorQuantiles]:
    found: dict[str, ErrorQuantiles] = {}
    for key, mine in sorted(_groups(subject, rows).items(), key=lambda group: group[0].count("|") + bool(group[0])):
        if (cell := _cell(key, mine)) is not None:
            found[key] = _pooled(cell, next((found[wide] for wide in _wider(subject, key) if wide in found), None))
    return found


def _wider(subject: str, key: str) -> Iterator[str]:
    """Yield the groups that a group is part of and whose tails are alike, the narrowest first."""
    tails = _stretched(subject, key)
    while key and _stretched(subject, key := key.rpartition("|")[0]) == tails:
        yield key


def _quantiles(rows: Sequence[Residual]) -> list[float]:
    values, weight = np.array([row.residual for row in rows]), _weights(rows)
    low_90, low_50, high_50, high_90 = weighted_quantiles(values, weight, QUANTILES)
    few = 1 + 1 / len({row.publication for row in rows})
    ends = (min(low_90, -LEAST), min(low_50, -LEAST / 2), max(high_50, LEAST / 2), max(high_90, LEAST))
    return [few * end for end in ends]


def _weights(rows: Sequence[Residual]) -> Floats:
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.publication] += 1
    return np.array([1 / np.sqrt(counts[row.publication]) for row in rows])


def weighted_quantiles(values: Floats, weight: Floats, at: Sequence[float]) -> list[float]:
    """Return quantiles of weighted values, interpolated between the middles of their weights.

    >>> weighted_quantiles(np.array([1.0, 2.0, 3.0]), np.ones(3), [0.5])
    [2.0]
    """
    order = np.argsort(values)
    middle = np.cumsum(weight[order]) - weight[order] / 2
    return [float(x) for x in np.interp(np.array(at) * weight.sum(), middle, values[order])]


def _stretched(subject: str, key: str) -> str:
    facet = STRETCHED[subject]
    parts = key.split("|")
    place = ORDERS[subject].index(facet) if facet else len(parts)
    return parts[place] if key and place < len(parts) else ""


def _stretches(subject: str, rows: Sequence[Residual]) -> dict[str, list[float]]:
    """Return by how much each end (90 % low, 50 % low, 50 % high, 90 % high) is stretched, by group.

    Both ends are asked apart: the slow tail of a few systems must not widen the fast side.
    """
    needed: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    groups, facet = _groups(subject, rows), STRETCHED[subject]
    for source in dict.fromkeys(row.publication for row in rows):
        mine = [row for row in rows if row.publication == source]
        if len(mine) == len(rows):
            continue
        known: dict[str, ErrorQuantiles | None] = {}
        for row in mine:
            low_90, low_50, high_50, high_90 = _ends(source, subject, row, groups, known)
            value = row.residual
            outer, inner = (value / high_90, value / high_50) if value > 0 else (value / low_90, value / low_50)
            for name in {"", row.facets[facet] if facet else ""}:
                needed[name].append((outer, inner, 1 / np.sqrt(len(mine)), np.sign(value)))
    return {name: [_end(np.array(values), side, inner) for side, inner in _ENDS] for name, values in needed.items()}


_ENDS = ((-1, False), (-1, True), (1, True), (1, False))


def _end(needed: Floats, side: int, inner: bool) -> float:
    """Return the stretch of one end that holds enough of the measurements on its side."""
    mine = needed[needed[:, 3] == side]
    if not len(mine):
        return 1.0
    found = weighted_quantiles(mine[:, 1 if inner else 0], mine[:, 2], [HELD[1 if inner else 0]])[0]
    return float(np.clip(found, *STRETCH))


def _ends(
    source: str,
    subject: str,
    row: Residual,
    groups: Mapping[str, list[Residual]],
    known: dict[str, ErrorQuantiles | None],
) -> list[float]:
    """Return the ends of a row's interval by other publications; a collective's lie between those of two bands."""
    if subject != "collective":
        return _without(source, subject, row, groups, known).log
    cells = {name: _without(source, subject, _in_band(row, name), groups, known).log for name in ANCHORS}
    spreads = {name: _bare_spread(log) for name, log in cells.items()}
    at = between_bands(spreads, row.num_bytes)
    return [math.log(end) for end in (at.low_90, at.low_50, at.high_50, at.high_90)]


def _bare_spread(log: Sequence[float]) -> Spread:
    low_90, low_50, high_50, high_90 = map(math.exp, log)
    return Spread(low_90, low_50, high_50, high_90, 0, 0, "")


def _in_band(row: Residual, name: str) -> Residual:
    return replace(row, facets={**row.facets, "band": name})


def _without(
    source: str,
    subject: str,
    row: Residual,
    groups: Mapping[str, list[Residual]],
    known: dict[str, ErrorQuantiles | None],
) -> ErrorQuantiles:
    """Return the most specific group of a row that enough other publications speak of."""
    order, found = ORDERS[subject], None
    for length in range(len(order) + 1):
        key = "|".join(row.facets[name] for name in order[:length])
        if key not in known:
            own = _cell(key, [other for other in groups[key] if other.publication != source])
            wide = next((cell for wider in _wider(subject, key) if (cell := known[wider])), None)
            known[key] = None if own is None else _pooled(own, wide)
        found = known[key] or found
    if found is None:
        raise KeyError(subject)
    return found


def holds(row: Residual, table: Mapping[str, Any]) -> tuple[bool, bool]:
    """Say whether a measurement lies in its 90 and in its 50 % interval."""
    found = judged(row, table[row.subject])
    ratio = float(np.exp(row.residual))
    return found.low_90 <= ratio <= found.high_90, found.low_50 <= ratio <= found.high_50


def judged(row: Residual, table: Mapping[str, Any]) -> Spread:
    """Return the interval of a row by the table of its subject."""
    if row.subject != "collective":
        return spread_in(table, row.subject, row.facets, row.size)
    found = {name: spread_in(table, row.subject, _in_band(row, name).facets, row.size) for name in ANCHORS}
    return between_bands(found, row.num_bytes)


def group_of(row: Residual) -> str:
    """Return the group in which a row's coverage is counted.

    Merged because they are too small alone: how much a job states (but not calibrated), generation, precision and
    scale of steps; operation, size and generation of collectives.
    """
    facets = row.facets
    if row.subject == "step":
        return "step, calibrated" if facets["stated"] == "calibrated" else f"step, {facets['kind']}"
    if row.subject == "collective":
        return f"collective, {words('calibrated' if facets['stated'] == 'calibrated' else facets['reach'])}"
    if row.subject == "serve":
        return f"serve, {facets['what'] if facets['start'] == 'tuned' else 'default'}"
    return row.subject


def crossed(rows: Sequence[Residual]) -> dict[str, JsonObject]:
    """Return by group how many rows lie inside intervals that were made from the other two parts, and their errors.

    Only rows of publications that no constant of the step model was fitted to are counted.
    """
    groups: dict[str, list[tuple[Residual, bool, bool]]] = defaultdict(list)
    widths: dict[str, list[float]] = defaultdict(list)
    for part in sorted({row.part for row in rows}):
        table = make_table([row for row in rows if row.part != part])
        for row in (row for row in rows if row.part == part and row.subject in table and not row.fitted):
            groups[group_of(row)].append((row, *holds(row, table)))
            spread = judged(row, table[row.subject])  # type: ignore[arg-type]
            widths[group_of(row)].append(spread.high_90 / spread.low_90)
    found: dict[str, JsonObject] = {}
    for name, inside in sorted(groups.items()):
        error = np.abs(np.expm1(-np.array([row.residual for row, _, _ in inside])))
        found[name] = {
            "rows": len(inside), "publications": len({row.publication for row, _, _ in inside}),
            "in_90": sum(outer for _, outer, _ in inside) / len(inside),
            "in_50": sum(inner for _, _, inner in inside) / len(inside),
            "by_part": {str(part): _share([outer for row, outer, _ in inside if row.part == part])
                        for part in sorted({row.part for row, _, _ in inside})},
            "width": float(np.median(widths[name])), "median_error": float(np.median(error)),
            "p90_error": float(np.quantile(error, 0.9)),
        }  # fmt: skip
    return found


def _share(inside: Sequence[bool]) -> float:
    return sum(inside) / len(inside)
