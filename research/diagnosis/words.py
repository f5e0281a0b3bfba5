"""Fit the weights of words in `src/syncline/logs/failure_words.csv`.

    python -m research diagnosis.words

Lines that speak of a failure: the marked ones of `tests/logs/blind`, what named rules take in the other faulty logs
there, `families.yaml` and the rules' examples. Lines that do not: every line of the healthy logs and `harmless.yaml`.
What calls itself information is left out of the first, as only a rule knows why it matters.

The cuts come from healthy logs that a fit has not seen: `QUESTIONED` of them have a line that keeps them from being
called OK, `LISTED` of them a line that is listed. The answer says what share of held-out failures lies above each cut.
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from research.diagnosis.blind import FOLDER
from scipy import sparse
from scipy.optimize import minimize

from syncline.diagnosis import shipped_rules
from syncline.logs.context import plain
from syncline.logs.form import LogLevel, stated
from syncline.logs.words import SHOWN, SURE, TABLE, features, spellings

OUTPUT = Path(__file__).resolve().parents[2] / "src" / "syncline" / "logs" / TABLE
FEWEST, RIDGE, LEAST, FOLDS = 3, 1.5, 0.15, 5
QUESTIONED, LISTED = 0.025, 0.25
LEAST_GAIN = 0.05
"""A word is searched for that brings this many failures more for each healthy line it brings."""
SOUGHT_TWICE = 2
_SHORTEST = 4


class LabelledLine(NamedTuple):
    """A line with the log it is from (`group` keeps what is alike in one fold) and whether it speaks of a failure."""

    group: str
    log: int
    text: str
    is_failure: bool


def _lines(text: str) -> list[str]:
    return [line for line in map(plain, text.splitlines()) if line.strip()]


def _taken(text: str, rules: list[str]) -> list[str]:
    book = shipped_rules()
    matchers = [matcher for rule in rules if rule in book for matcher in book[rule].matchers]
    return [
        line
        for line in _lines(text)
        if any(any(text in line for text in m.texts) and m.pattern.search(line) for m in matchers)
    ][:2]


def labelled() -> Iterator[LabelledLine]:
    """Yield every line of the kept sets whose meaning is known, shapes that occur twice once."""
    seen: set[tuple[str, bool]] = set()
    for line in _all():
        form = stated(line.text)
        if line.is_failure and form and form.level is not None and form.level < LogLevel.WARNING:
            continue
        shape = "".join("0" if letter.isdigit() else letter for letter in line.text), line.is_failure
        if shape not in seen:
            seen.add(shape)
            yield line


def _all() -> Iterator[LabelledLine]:
    kinds = yaml.safe_load((FOLDER / "kinds.yaml").read_text("utf-8"))
    number = count()
    for path in sorted(FOLDER.glob("*.yaml")):
        for log in yaml.safe_load(path.read_text("utf-8")) if path.stem != "kinds" else ():
            at = next(number)
            if log.get("kind") == "healthy":
                lines = _lines(log["log"])
            elif "line" in log:
                lines = [line for line in _lines(log["log"]) if log["line"] in line][:1]
            else:
                lines = _taken(log["log"], log.get("named") or kinds[log["kind"]]["named"])
            yield from (LabelledLine(path.stem, at, line, log.get("kind") != "healthy") for line in lines)
    for family in yaml.safe_load((FOLDER.parent / "families.yaml").read_text("utf-8")):
        yield from (LabelledLine(family["family"], next(number), line, True) for line in family["lines"])
    for lines in yaml.safe_load((FOLDER.parent / "harmless.yaml").read_text("utf-8")).values():
        yield from (LabelledLine(f"harmless {at % FOLDS}", next(number), line, False) for at, line in enumerate(lines))
    for log in yaml.safe_load((FOLDER.parent / "logs.yaml").read_text("utf-8")):
        at = next(number)
        lines = _taken(log["log"], log["expect"]) if log["expect"] else _lines(log["log"])
        yield from (LabelledLine(log["name"], at, line, bool(log["expect"])) for line in lines)
    for rule in shipped_rules().values():
        if not rule.signal and rule.example:
            yield from (LabelledLine(rule.id, next(number), line, True) for line in _taken(rule.example, [rule.id]))


def fit(matrix: Any, is_failure: Any) -> tuple[Any, float]:
    """Return the weights and the bias of a logistic regression with a ridge; small weights are none."""
    sign, turned = 2.0 * is_failure - 1, matrix.T.tocsr()

    def loss(at: Any) -> tuple[float, Any]:
        margin = sign * (matrix @ at[:-1] + at[-1])
        slope = -sign / (1 + np.exp(margin))
        return (
            float(np.logaddexp(0, -margin).sum() + RIDGE / 2 * at[:-1] @ at[:-1]),
            np.append(turned @ slope + RIDGE * at[:-1], slope.sum()),
        )

    found = minimize(loss, np.zeros(matrix.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 100}).x
    return np.where(np.abs(found[:-1]) < LEAST, 0.0, found[:-1]), float(found[-1])


def _sought(names: list[str], lines_of: list[LabelledLine], weights: Any, matrix: Any, is_shown: Any) -> list[int]:
    """Return few words of which two stand on nearly every failure and whose texts are rare in healthy lines."""
    is_failure = np.array([line.is_failure for line in lines_of])
    healthy = [line.text for line in lines_of if not line.is_failure]
    columns = matrix.tocsc()
    usable = [at for at, name in enumerate(names) if weights[at] > 0 and len(name) >= _SHORTEST and name[0] != "["]
    lines = {at: columns.indices[columns.indptr[at] : columns.indptr[at + 1]] for at in usable}
    texts = {at: tuple(spellings(names[at])) for at in usable}
    cost = {at: 1.0 + sum(any(text in line for text in texts[at]) for line in healthy) for at in usable}
    missing = np.where(is_failure & is_shown, SOUGHT_TWICE, 0)
    chosen: list[int] = []
    while usable:
        gain = {at: (missing[lines[at]] > 0).sum() / cost[at] for at in usable}
        best = max(usable, key=gain.__getitem__)
        if gain[best] < LEAST_GAIN:
            break
        missing[lines[best]] -= 1
        usable.remove(best)
        chosen.append(best)
    return chosen


def run() -> dict[str, Any]:
    """Fit on all sets, write the table, and return what sets that a fit has not seen say of it."""
    lines = list(labelled())
    found = [features(line.text) for line in lines]
    often = Counter(each for one in found for each in one)
    names = sorted(each for each, times in often.items() if times >= FEWEST)
    column = {name: at for at, name in enumerate(names)}
    at = np.array([(row, column[each]) for row, one in enumerate(found) for each in one if each in column]).T
    matrix = sparse.csr_matrix((np.ones(at.shape[1]), at), shape=(len(lines), len(names)))
    is_failure = np.array([line.is_failure for line in lines])
    fold = np.array([int(hashlib.md5(line.group.encode()).hexdigest(), 16) % FOLDS for line in lines])
    odds, fits = np.zeros(len(lines)), []
    for number in range(FOLDS):
        known = fold != number
        fits.append(fit(matrix[known], is_failure[known]))
        odds[~known] = matrix[~known] @ fits[-1][0] + fits[-1][1]
    bare = np.array([(form := stated(line.text)) is None or form.level is None for line in lines])
    whole = np.array([not line.is_failure and not line.group.startswith("harmless") for line in lines])
    shown, sure = _cut(lines, odds, whole, bare, LISTED), _cut(lines, odds, whole, bare, QUESTIONED)
    reached = np.zeros(len(lines), dtype=bool)
    for number, (weights, bias) in enumerate(fits):
        known = fold != number
        held = [line for line, is_known in zip(lines, known, strict=True) if is_known]
        sought = _sought(names, held, weights, matrix[known], matrix[known] @ weights + bias > shown)
        reached[~known] = matrix[~known][:, sought].sum(axis=1).A1 > 0
    odds = np.where(reached, odds, -np.inf)
    weights, bias = fit(matrix, is_failure)
    searched = set(_sought(names, lines, weights, matrix, matrix @ weights + bias > shown))
    with OUTPUT.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("word", "weight", "sought"))
        table.writerows((name, f"{value:.2f}", "") for name, value in (("", bias), (SHOWN, shown), (SURE, sure)))
        for number, name in enumerate(names):
            if weights[number]:
                table.writerow((name, f"{weights[number]:.2f}", "1" if number in searched else ""))
    return {
        "failures": int(is_failure.sum()),
        "healthy_lines": int((~is_failure).sum()),
        "healthy_logs": len({line.log for line, is_whole in zip(lines, whole, strict=True) if is_whole}),
        "features": int((weights != 0).sum()),
        "sought": len(searched),
        "shown": shown,
        "sure": sure,
        "failures_shown_percent": 100 * float((odds[is_failure & bare] > shown).mean()),
        "healthy_lines_shown_percent": 100 * float((odds[~is_failure & bare] > shown).mean()),
        "failures_sure_percent": 100 * float((odds[is_failure & bare] > sure).mean()),
    }


def _cut(lines: list[LabelledLine], odds: Any, whole: Any, bare: Any, share: float) -> float:
    """Return the log-odds above which this share of healthy logs has a line whose form states no severity."""
    highest = dict.fromkeys((lines[at].log for at in np.flatnonzero(whole)), -np.inf)
    for at in np.flatnonzero(whole & bare):
        highest[lines[at].log] = max(highest[lines[at].log], odds[at])
    return float(np.quantile(list(highest.values()), 1 - share, method="higher"))
