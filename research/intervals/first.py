"""First scores: how far off predictions of sources were when they were scored before anybody had looked at them.

    firsts = first_scores()                    # data/first-scores.csv: blind sets, row by row
    blind(all_residuals(), firsts)             # residuals with the first scores in the place of today's
    in_turn()                                  # how often later sets lie inside intervals made before them

Residuals that are made anew are of a model that was looked over with their source in view; those of the next source
are larger. So the sources of the last blind sets count as what they were off by when they were first scored, and that
a source is new is known of a case like its size is; older first scores are of a model that is no more. Rows that their
own source calls too slow are kept and not counted: what a fault costs is no error of a model.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from research.intervals.intervals import figures, judged, make_table
from research.intervals.residuals import Residual, all_residuals, read_table
from research.published import DATA

from syncline.describe.plain import JsonObject
from syncline.sim.uncertainty import Spread

#: The first set that is judged, by intervals made from the sets before it; every later one the same way.
FIRST_JUDGED = 8
#: So many sets of a subject back a first score still speaks of the model as it is.
RECENT = 5
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
    newest = {one.row.subject: one.number for one in sorted(scores, key=lambda one: one.number)}
    scores = [one for one in scores if one.fault or one.number > newest[one.row.subject] - RECENT]
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
            new = (row.subject, row.line) in moved and row.facets.get("stated") != "calibrated"
            found.append(replace(row, residual=round(row.residual + by, 4), new=new))
    return found


def in_turn() -> dict[str, JsonObject]:
    """Return by group how many rows of later sets lie inside intervals made from the sets before, and their width.

    `width` is the high end of a 90 % interval over its low end, the median over the rows.
    """
    rows, scores = all_residuals(), first_scores()
    groups: dict[str, list[tuple[Residual, Spread]]] = defaultdict(list)
    for number in sorted({one.number for one in scores if one.number >= FIRST_JUDGED}):
        table = make_table(blind(rows, scores, number))
        for row in (replace(one.row, new=True) for one in scores if one.number == number and not one.fault):
            group = row.facets["kind" if row.subject == "step" else "reach"]
            groups[f"{row.subject}, {'few' if group == 'many' else group}"].append((row, judged(row, table)))
    return {name: figures(mine) for name, mine in sorted(groups.items())}
