"""How much the words of a line speak of a failure, for lines whose form states no severity.

Each word, and each two in a row, has a weight: what a logistic regression found on lines of logs whose cause is known
and on lines of healthy logs (`research/diagnosis/words.py` fits it and writes the table). Their sum is the log-odds
that the line tells of a failure. The search brings the lines with a word that is rare in healthy lines; together these
words stand on every labelled failure.
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
SHOWN = -0.7
"""Log-odds above which a line is shown: one in three of such lines tells of a failure."""
SURE = 1.5
"""Log-odds above which a line keeps a log from being called OK: 3 % of healthy logs that no fit has seen have one."""
_WORD = re.compile(r"[A-Za-z]+(?:'t)?")
_DIGITS = str.maketrans("123456789", "000000000")


class WordTable(NamedTuple):
    """The weights by word or pair of words, what is added to their sum, and the words to search for."""

    weights: Mapping[str, float]
    bias: float
    sought: tuple[str, ...]


def features(line: str) -> set[str]:
    """Return the words of a line's message and every two of them in a row, in lower case."""
    form = stated(line)
    words = [word.lower() for word in _WORD.findall(line[form.begins if form else 0 :]) if len(word) > 1]
    return {*words, *(f"{one} {two}" for one, two in pairwise(words))}


def log_odds(line: str) -> float:
    """Return the logarithm of the odds that a line tells of a failure."""
    return _log_odds(line.translate(_DIGITS))


@lru_cache(maxsize=8192)
def _log_odds(shape: str) -> float:
    table = _table()
    return table.bias + sum(table.weights.get(each, 0.0) for each in features(shape))


@cache
def texts() -> tuple[str, ...]:
    """Return the texts of which one stands on every line that is to be weighed."""
    return tuple(dict.fromkeys(text for each in _table().sought for text in spellings(each)))


def spellings(words: str) -> Iterator[str]:
    """Yield the texts to search for, so that one stands wherever the words do, written large or small."""
    yield from (words[1:],) if len(words) > 4 else (words, words.title())
    yield words.upper()


@cache
def _table() -> WordTable:
    lines = (files("syncline.logs") / TABLE).read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines[1:]]
    weights = {word: float(weight) for word, weight, _ in rows}
    return WordTable(weights, weights.pop(""), tuple(word for word, _, sought in rows if sought))
