"""First scores: how far off predictions of sources were when they were scored before anybody had looked at them.

    firsts = first_scores()                    # data/first-scores.csv: blind sets, row by row
    unseen(all_residuals(), firsts)         # what they add to each end of an interval, by group
    in_turn(all_residuals(), firsts)        # how often later sets lie inside with what earlier ones add

Residuals that are made anew are of a model that was looked over with their source in view; those of the next source
are larger. So the ends of an interval are moved out by as much as nine of ten (half of the) rows on their side lay
outside of what was made from sources before their set: the 90th percentile, not a factor, because a source that is
misread is off by as much where the model is sure as where it is not. A publication's rows count by the root of their
number. Rows that their own source calls too slow are kept and not counted: what a fault costs is no error of a model.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from research.intervals.intervals import HELD, judged, make_table, weighted_quantiles
from research.intervals.residuals import Residual, read_table
from research.published import DATA

from syncline.describe.plain import JsonObject
from syncline.sim.uncertainty import ORDERS, unseen_group

#: The first set that is judged, by what the sets before it add; every later one the same way.
FIRST_JUDGED = 6
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


@dataclass(frozen=True)
class _Judgement:
    """A first score with the ends of its interval by what was known before its set, in log units."""

    score: FirstScore
    ends: tuple[float, float, float, float]

    @property
    def group(self) -> str:
        return unseen_group(self.score.row.subject, self.score.row.facets)

    def outside(self, inner: bool) -> float:
        """How far the measurement lies past its interval's end; negative inside."""
        low, high = (self.ends[1], self.ends[2]) if inner else (self.ends[0], self.ends[3])
        value = self.score.row.residual
        return value - high if value > 0 else low - value

    def holds(self, by: Sequence[float]) -> tuple[bool, bool]:
        """Say whether the measurement lies in its 90 and 50 % intervals with their ends further out by so much."""
        low_90, low_50, high_50, high_90 = (
            end + way * more for end, way, more in zip(self.ends, _WAYS, by, strict=True)
        )
        value = self.score.row.residual
        return low_90 <= value <= high_90, low_50 <= value <= high_50


_WAYS = (-1, -1, 1, 1)
_NOTHING = (0.0, 0.0, 0.0, 0.0)


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


def unseen(rows: Sequence[Residual], scores: Sequence[FirstScore]) -> dict[str, JsonObject]:
    """Return by subject and group what first scores add to the ends of an interval."""
    found: dict[str, JsonObject] = defaultdict(dict)
    judgements = _judgements(rows, scores)
    for subject in ORDERS:
        mine = [one for one in judgements if one.score.row.subject == subject and one.group]
        for group in sorted({one.group for one in mine}):
            found[subject][group] = _addition([one for one in mine if one.group == group])
    return dict(found)


def in_turn(rows: Sequence[Residual], scores: Sequence[FirstScore]) -> dict[str, JsonObject]:
    """Return by group how many rows of later sets lie inside with what the sets before them add, and without."""
    judgements = _judgements(rows, scores)
    groups: dict[str, list[_Judgement]] = defaultdict(list)
    for one in judgements:
        if one.group:
            groups[f"{one.score.row.subject}, {one.group}"].append(one)
    found: dict[str, JsonObject] = {}
    for name, mine in sorted(groups.items()):
        told = min((one.score.number for one in mine if not one.score.fault), default=FIRST_JUDGED)
        first = max(FIRST_JUDGED, told + 1)  # nothing is promised of a group before a set has told of it
        later = [one for one in mine if one.score.number >= first and not one.score.fault]
        if not later:
            continue
        by = {number: _before(mine, number) for number in {one.score.number for one in later}}
        with_it = [one.holds(by[one.score.number]) for one in later]
        without = [one.holds(_NOTHING) for one in later]
        widths = [(one.ends[3] - one.ends[0], by[one.score.number]) for one in later]
        found[name] = {
            "rows": len(later), "publications": len({one.score.row.publication for one in later}),
            "in_90": _share(outer for outer, _ in with_it), "in_50": _share(inner for _, inner in with_it),
            "in_90_without": _share(outer for outer, _ in without),
            "factor": math.exp(float(np.median([width + more[0] + more[3] for width, more in widths])) / 2),
            "factor_without": math.exp(float(np.median([width for width, _ in widths])) / 2),
        }  # fmt: skip
    return found


def _before(judgements: Sequence[_Judgement], number: int) -> list[float]:
    """Return what the sets before one add to the ends of a group's intervals."""
    added = _addition([one for one in judgements if one.score.number < number])["log"]
    return [float(x) for x in added]  # type: ignore[union-attr, arg-type]


def _share(inside: Iterable[bool]) -> float:
    listed = list(inside)
    return sum(listed) / len(listed)


def _judgements(rows: Sequence[Residual], scores: Sequence[FirstScore]) -> list[_Judgement]:
    """Return every first score with the interval that rows of the sets before its own make."""
    found = []
    for number in sorted({score.number for score in scores}):
        table = make_table([row for row in rows if max(row.blind_set, 2) < number])
        for score in (score for score in scores if score.number == number):
            spread = judged(score.row, table[score.row.subject])  # type: ignore[arg-type]
            low_90, low_50, high_50, high_90 = (
                math.log(end) for end in (spread.low_90, spread.low_50, spread.high_50, spread.high_90)
            )
            found.append(_Judgement(score, (low_90, low_50, high_50, high_90)))
    return found


def _addition(judgements: Sequence[_Judgement]) -> JsonObject:
    counted = [one for one in judgements if not one.score.fault]
    ends = [_end(counted, side, inner) for side, inner in ((-1, False), (-1, True), (1, True), (1, False))]
    sources = {one.score.row.publication for one in counted}
    return {"rows": len(counted), "sources": len(sources), "log": [round(end, 4) for end in ends]}


def _end(judgements: Sequence[_Judgement], side: int, inner: bool) -> float:
    """Return how much further one end must reach to hold enough of the rows on its side."""
    mine = [one for one in judgements if np.sign(one.score.row.residual) == side]
    if not mine:
        return 0.0
    counts = Counter(one.score.row.publication for one in mine)
    weight = np.array([1 / math.sqrt(counts[one.score.row.publication]) for one in mine])
    outside = np.array([one.outside(inner) for one in mine])
    return max(0.0, weighted_quantiles(outside, weight, [HELD[1 if inner else 0]])[0])
