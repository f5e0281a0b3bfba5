"""How much the words of a line speak of a failure, for lines whose form states no severity.

Each word, each two in a row, who writes and how long the message is have a weight: what a logistic regression found on
lines of logs whose cause is known and on lines of healthy logs (`research/diagnosis/words.py` fits it and writes the
table). Their sum is the log-odds that the line tells of a failure. Two cuts stand in the table too, taken from healthy
logs that a fit has not seen. The search brings the lines with a word that is rare in healthy lines; together these
words stand on nearly every labelled failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple

from syncline.logs.form import stated

TABLE = "failure_words.csv"
SHOWN, SURE = "[shown]", "[sure]"
"""What the table calls the log-odds above which a line is shown, and above which its log is not called understood."""
_WORD = re.compile(r"[A-Za-z]+(?:'t)?")
_NEGATIVE = re.compile(r"[=:( ]-\d")
_FEW, _MANY = 4, 16
_DIGITS = str.maketrans("123456789", "000000000")


class WordTable(NamedTuple):
    """The weights by feature, what is added to their sum, the words to search for, and the two cuts."""

    weights: Mapping[str, float]
    bias: float
    sought: tuple[str, ...]
    shown: float
    sure: float


def features(line: str) -> set[str]:
    """Return the words of a line's message and every two of them in a row, in lower case, and in brackets its form."""
    form = stated(line)
    message = line[form.begins if form else 0 :]
    words = [word.lower() for word in _WORD.findall(message) if len(word) > 1]
    marks = [form.source if form else "no form", f"{min(len(words), _MANY) // _FEW * _FEW} words"]
    marks += ["sentence"] * message.rstrip().endswith(".") + ["negative"] * bool(_NEGATIVE.search(message))
    return {*words, *(f"{one} {two}" for one, two in pairwise(words)), *(f"[{mark}]" for mark in marks)}


def log_odds(line: str) -> float:
    """Return the logarithm of the odds that a line tells of a failure."""
    return _log_odds(line.translate(_DIGITS))


@lru_cache(maxsize=8192)
def _log_odds(shape: str) -> float:
    weighed = table()
    return weighed.bias + sum(weighed.weights.get(each, 0.0) for each in features(shape))


@cache
def texts() -> tuple[str, ...]:
    """Return the texts of which one stands on every line that is to be weighed."""
    return tuple(dict.fromkeys(text for each in table().sought for text in spellings(each)))


def spellings(words: str) -> Iterator[str]:
    """Yield the texts to search for, so that one stands wherever the words do, written large or small."""
    yield from (words[1:],) if len(words) > 4 else (words, words.title())
    yield words.upper()


@cache
def table() -> WordTable:
    """Return what was fitted."""
    lines = (files("syncline.logs") / TABLE).read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines[1:]]
    weights = {word: float(weight) for word, weight, _ in rows}
    bias, shown, sure = (weights.pop(name) for name in ("", SHOWN, SURE))
    return WordTable(weights, bias, tuple(word for word, _, sought in rows if sought), shown, sure)
