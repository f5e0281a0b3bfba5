"""First scores: how far off predictions of sources were when they were scored before anybody had looked at them.

    firsts = first_scores()                    # data/first-scores.csv: blind sets, row by row
    blind(all_residuals(), firsts)             # residuals with the first scores in the place of today's
    new_source(), in_turn()                    # what to add, and how often later sets lie inside intervals made before

Residuals that are made anew are of a model that was looked over with their source in view; those of the next source
are larger. So an interval is made from what the sources of the last blind sets were off by when they were first scored;
older first scores are of a model that is no more. What is left is found in turn: each set judged by what was known
before it, and an error of a new source's own added until nine of ten of those rows lie inside (`new_source`). Rows that
their own source calls too slow are kept and not counted: what a fault costs is no error of a model.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from research.intervals.intervals import judged, make_table
from research.intervals.residuals import Residual, all_residuals, read_table
from research.published import DATA

from syncline.describe.plain import JsonObject
from syncline.sim.uncertainty import Spread, unseen_group

#: The first set that is judged, by intervals made from the sets before it; every later one the same way.
FIRST_JUDGED = 8
#: So many sets of a subject back a first score still speaks of the model as it is.
RECENT = 5
#: A new source's own error is one of these in log units, and no more.
ADDED = tuple(round(0.05 * number, 2) for number in range(11))
HELD = 0.9
_COLUMNS = ("set", "fault", "subject", "publication", "facets", "size", "residual", "line", "num_bytes")


@dataclass(frozen=True)
class FirstScore:
    """A row of a blind set with its prediction by the model that had not seen it."""

    number: int
    fault: bool  # its own source calls it too slow
    row: Residual

    def cells(self) -> dict[str, str]:
        """Return the row as the stored table has it."""
        kept = {name: text for name, text in self.row.cells().items() if name in _COLUMNS}
        return {"set": str(self.number), "fault": "yes" if self.fault else "", **kept}


def first_scores() -> list[FirstScore]:
    """Return the first scores as they were kept."""
    text = (DATA / "first-scores.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    return [
        FirstScore(int(row["set"]), row["fault"] == "yes", residual)
        for row, residual in zip(rows, read_table(text), strict=True)
    ]


def scores_text(scores: Iterable[FirstScore]) -> str:
    """Return first scores as the CSV that is kept."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(score.cells() for score in scores)
    return out.getvalue()


def blind(rows: Sequence[Residual], scores: Sequence[FirstScore], before: int | None = None) -> list[Residual]:
    """Return the residuals with first scores in the place of those made today; what is known to be a fault is left out.

    A run has several residuals, with more and less of its software stated: all are moved by what the first score of the
    one that was kept differs by. A measured run is no new source: what is left after calibrating stays. `before` a set:
    as it was known when that set came.
    """
    scores = [one for one in scores if before is None or one.number < before]
    sets: dict[str, set[int]] = defaultdict(set)
    for one in scores:
        sets[one.row.subject].add(one.number)
    scores = [one for one in scores if one.fault or one.number in sorted(sets[one.row.subject])[-RECENT:]]
    rows = rows if before is None else [row for row in rows if max(row.blind_set, 2) < before]
    first = {(one.row.subject, one.row.line, one.row.facets.get("stated", "")): one for one in scores}
    moved: dict[tuple[str, str], float] = {}
    for row in rows:
        if (scored := first.get((row.subject, row.line, row.facets.get("stated", "")))) is not None:
            moved[row.subject, row.line] = math.inf if scored.fault else scored.row.residual - row.residual
    found = []
    for row in rows:
        by = 0.0 if row.facets.get("stated") == "calibrated" else moved.get((row.subject, row.line), 0.0)
        if math.isfinite(by):
            found.append(replace(row, residual=round(row.residual + by, 4)))
    return found


Judged = tuple[Residual, Spread]


@cache
def _judged() -> dict[str, list[Judged]]:
    """Return by group every row of the later blind sets with its interval by what was known before its set."""
    rows, scores = all_residuals(), first_scores()
    groups: dict[str, list[Judged]] = defaultdict(list)
    for number in sorted({one.number for one in scores if one.number >= FIRST_JUDGED}):
        table = make_table(blind(rows, scores, number))
        for one in (one for one in scores if one.number == number and not one.fault):
            if group := unseen_group(one.row.subject, one.row.facets):
                groups[f"{one.row.subject}, {group}"].append((one.row, judged(one.row, table[one.row.subject])))  # type: ignore[arg-type]
    return groups


def new_source() -> dict[str, dict[str, float]]:
    """Return by subject and group the least error that, added, holds enough of the later blind sets."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for name, mine in _judged().items():
        subject, _, group = name.partition(", ")
        enough = (error for error in ADDED if _inside(_joined(mine, error), 90).mean() >= HELD)
        found[subject][group] = next(enough, ADDED[-1])
    return dict(found)


def in_turn() -> dict[str, JsonObject]:
    """Return by group how many rows of later sets lie inside intervals made from the sets before, and their width.

    `width` is the high end of a 90 % interval over its low end, the median over the rows.
    """
    found: dict[str, JsonObject] = {}
    errors = new_source()
    for name, judged_alone in sorted(_judged().items()):
        subject, _, group = name.partition(", ")
        mine = _joined(judged_alone, errors[subject][group])
        off = np.abs(np.expm1([-row.residual for row, _ in mine]))
        found[name] = {
            "rows": len(mine), "publications": len({row.publication for row, _ in mine}),
            "in_90": float(_inside(mine, 90).mean()), "in_50": float(_inside(mine, 50).mean()),
            "width": float(np.median([spread.high_90 / spread.low_90 for _, spread in mine])),
            "median_error": float(np.median(off)), "p90_error": float(np.quantile(off, 0.9)),
        }  # fmt: skip
    return found


def _joined(rows: Sequence[Judged], error: float) -> list[Judged]:
    return [(row, spread.joined(error)) for row, spread in rows]


def _inside(rows: Sequence[Judged], percent: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows lie in their interval."""
    low, high = (np.log([getattr(spread, f"{end}_{percent}") for _, spread in rows]) for end in ("low", "high"))
    value = np.array([row.residual for row, _ in rows])
    return np.asarray((low <= value) & (value <= high))
