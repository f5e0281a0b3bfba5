"""Intervals from residuals: effects of what is known of a case on how far errors reach, judged on those left out.

    table = make_table(rows)           # the content of sim/data/uncertainty.yaml
    crossed(rows)                      # how many rows lie inside, each part judged by the other two

Errors to either side are taken as exponential, their mean a product of effects (`uncertainty.effects_of`); the effects
are those of the highest likelihood, a publication's rows weighted by one over the root of their number and each effect
drawn to none by `PRIOR` (convex: Newton's method finds them). Then each tenth of the publications is predicted by the
rest: quantiles of errors over their predicted reach are the `standard` ends of all intervals of a subject.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from research.intervals.residuals import Residual

from syncline.describe.plain import JsonObject
from syncline.sim.uncertainty import FACETS, PRIOR, Spread, effects_of, spread_in, words

Floats = npt.NDArray[np.float64]
QUANTILES = (0.05, 0.25, 0.75, 0.95)
#: No error is smaller than this in log units: closer is luck.
LEAST = 0.01
#: In so many parts publications are left out to find the standard ends.
LEFT_OUT = 10
#: Newton's steps at most, and how little a step may still win.
STEPS, WON = 60, 1e-5


def make_table(rows: Sequence[Residual]) -> JsonObject:
    """Return the table of intervals of every subject that has rows."""
    by_subject = {subject: [row for row in rows if row.subject == subject] for subject in FACETS}
    return {subject: _subject(subject, mine) for subject, mine in by_subject.items() if mine}


def _subject(subject: str, rows: Sequence[Residual]) -> JsonObject:
    effects = [effects_of(subject, row.known) for row in rows]
    names = list(dict.fromkeys(name for shares in effects for name in shares))
    columns = {name: number for number, name in enumerate(names)}
    shares = np.zeros((len(rows), len(names)))
    for number, mine in enumerate(effects):
        shares[number, [columns[name] for name in mine]] = list(mine.values())
    off, weight = np.array([row.residual for row in rows]), _weights(rows)
    sources = [row.publication for row in rows]
    spoken = _spoken(shares, sources)
    low, high = _sides(shares, off, weight)
    log = np.round(np.stack((low, high), axis=1), 4)
    cells = {
        "|".join(name): {"log": log[number].tolist(), "rows": int((shares[:, number] > 0).sum()),
                         "sources": int(spoken[number])}
        for number, name in enumerate(names)
    }  # fmt: skip
    return {
        "largest": max(row.size for row in rows),
        "standard": [round(end, 4) for end in _standard(shares, off, weight, sources, (low, high))],
        "effects": cells,
    }


def _weights(rows: Sequence[Residual]) -> Floats:
    counts = Counter(row.publication for row in rows)
    return np.array([1 / np.sqrt(counts[row.publication]) for row in rows])


def _spoken(shares: Floats, sources: Sequence[str]) -> Floats:
    """Return how many publications speak of each effect."""
    order = np.argsort(sources, kind="stable")
    _, first = np.unique(np.array(sources)[order], return_index=True)
    return np.asarray(np.logical_or.reduceat(shares[order] > 0, first).sum(axis=0))


def _sides(shares: Floats, off: Floats, weight: Floats, start: Sequence[Floats] | None = None) -> tuple[Floats, Floats]:
    """Return the effects on how far errors reach below and above; a side without errors is as the other."""
    low, high = (side if side.any() else np.ones(len(off), bool) for side in (off < 0, off >= 0))
    nothing = np.eye(shares.shape[1])[0] * np.log(np.average(np.abs(off), weights=weight) + LEAST)
    one, other = (
        _effects(shares[side], np.maximum(np.abs(off[side]), LEAST), weight[side], found)
        for side, found in zip((low, high), start or (nothing, nothing), strict=True)
    )
    return one, other


def _effects(shares: Floats, errors: Floats, weight: Floats, found: Floats) -> Floats:
    """Return the effects b on the mean exp(shares b) of exponential errors that are likeliest, drawn to 0."""
    drawn = np.full(shares.shape[1], PRIOR)
    drawn[0] = 0.0

    def loss(at: Floats) -> float:
        return float((weight * (shares @ at + errors * np.exp(-shares @ at))).sum() + (drawn * at * at).sum() / 2)

    now = loss(found)
    for _ in range(STEPS):
        over = errors * np.exp(-shares @ found)
        slope = shares.T @ (weight * (1 - over)) + drawn * found
        step = -np.linalg.solve((shares.T * (weight * over)) @ shares + np.diag(drawn), slope)
        size = 1.0
        while loss(found + size * step) > now + 1e-4 * size * (slope @ step) and size > WON:
            size /= 2
        found = found + size * step
        before, now = now, loss(found)
        if before - now < WON:
            break
    return found


def _standard(
    shares: Floats, off: Floats, weight: Floats, sources: Sequence[str], start: tuple[Floats, Floats]
) -> list[float]:
    """Return the quantiles of errors over their reach as publications that were left out predict it."""
    order = {name: number % LEFT_OUT for number, name in enumerate(sorted(set(sources)))}
    part = np.array([order[name] for name in sources])
    over = np.zeros(len(off))
    for number in set(part.tolist()) if len(order) > 1 else ():
        out, kept = part == number, part != number
        spoken = _spoken(shares[kept], [name for name, stays in zip(sources, kept, strict=True) if stays])
        doubt = (shares[out] ** 2 / (PRIOR + spoken)).sum(axis=1)
        sides = _sides(shares[kept], off[kept], weight[kept], start)
        low, high = (np.exp(shares[out] @ side + doubt) for side in sides)
        over[out] = off[out] / np.where(off[out] < 0, low, high)
    low_90, low_50, high_50, high_90 = weighted_quantiles(over, weight, QUANTILES)
    return [min(low_90, low_50, -LEAST), min(low_50, -LEAST), max(high_50, LEAST), max(high_90, high_50, LEAST)]


def weighted_quantiles(values: Floats, weight: Floats, at: Sequence[float]) -> list[float]:
    """Return quantiles of weighted values, interpolated between the middles of their weights.

    >>> weighted_quantiles(np.array([1.0, 2.0, 3.0]), np.ones(3), [0.5])
    [2.0]
    """
    order = np.argsort(values)
    middle = np.cumsum(weight[order]) - weight[order] / 2
    return [float(x) for x in np.interp(np.array(at) * weight.sum(), middle, values[order])]


def judged(row: Residual, table: Mapping[str, Any]) -> Spread:
    """Return the interval of a row by the tables of all subjects."""
    return spread_in(table[row.subject], row.subject, row.known, row.size)


def group_of(row: Residual) -> str:
    """Return the group in which a row's coverage is counted.

    Merged because they are too small alone: how much a job states (but not calibrated), generation, precision and
    scale of steps; operation, size and generation of collectives.
    """
    facets = row.facets
    if row.subject == "step":
        after = ", after the same job" if facets.get("shared") == "job" else ", after another job"
        return f"step, {facets['kind']}{after if facets['stated'] == 'calibrated' else ''}"
    if row.subject == "collective":
        return f"collective, {words('calibrated' if facets['stated'] == 'calibrated' else facets['reach'])}"
    if row.subject == "serve":
        return f"serve, {facets['what'] if facets['start'] == 'tuned' else 'default'}"
    return row.subject


def figures(found: Sequence[tuple[Residual, Spread]]) -> JsonObject:
    """Return how many of these rows lie inside their intervals, how wide those are, and how far off predictions are."""
    value = np.array([row.residual for row, _ in found])
    low_90, low_50, high_50, high_90 = np.log(
        [[each.low_90, each.low_50, each.high_50, each.high_90] for _, each in found]
    ).T
    error = np.abs(np.expm1(-value))
    return {
        "rows": len(found), "publications": len({row.publication for row, _ in found}),
        "in_90": float(((low_90 <= value) & (value <= high_90)).mean()),
        "in_50": float(((low_50 <= value) & (value <= high_50)).mean()),
        "width": float(np.exp(np.median(high_90 - low_90))),
        "median_error": float(np.median(error)), "p90_error": float(np.quantile(error, 0.9)),
    }  # fmt: skip


def crossed(rows: Sequence[Residual]) -> dict[str, JsonObject]:
    """Return by group how many rows lie inside intervals that were made from the other two parts, and their errors.

    Only rows of publications that no constant of the step model was fitted to are counted.
    """
    groups: dict[str, list[tuple[Residual, Spread]]] = defaultdict(list)
    for part in sorted({row.part for row in rows}):
        table = make_table([row for row in rows if row.part != part])
        for row in (row for row in rows if row.part == part and row.subject in table and not row.fitted):
            groups[group_of(row)].append((row, judged(row, table)))
    found: dict[str, JsonObject] = {}
    for name, mine in sorted(groups.items()):
        by_part = {number: [each for each in mine if each[0].part == number] for number in range(3)}
        shares = {str(number): figures(each)["in_90"] for number, each in by_part.items() if each}
        found[name] = {**figures(mine), "by_part": shares}
    return found
