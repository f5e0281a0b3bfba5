"""Patterns that cannot run away: what a rule may write as a regular expression.

Python's engine backtracks, so `(a+)+b` takes exponential time on a line of a's. A pattern is refused if an unbounded
repeat holds another, if it repeats wide classes too often in a row, or if a hostile line of full length takes long.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

#: What a pattern is shown of a line; longer lines are cut around the text that was found.
MAX_LINE = 4096
MAX_PATTERN = 1000
MAX_UNBOUNDED = 16
_MAX_SECONDS = 0.5
_TRIES = 3  # one search alone may be slow because the processor was taken away from it
_UNBOUNDED = 64  # a bounded repeat above this is as good as unbounded
_DIGITS = set(range(ord("0"), ord("9") + 1))


def compile_pattern(text: str, texts: tuple[str, ...], *, trusted: bool = False) -> re.Pattern[str]:
    """Return the compiled pattern, or raise ValueError with the reason it is refused.

    A trusted one is not tried on hostile lines: those that ship are, by a test.
    """
    if len(text) > MAX_PATTERN:
        raise ValueError(f"is longer than {MAX_PATTERN} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pattern = re.compile(text)
            tree = re._parser.parse(text)  # type: ignore[attr-defined]
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if pattern.match("") is not None:
        raise ValueError("matches an empty line, and so every line")
    num = _count(tree, inside=False)
    if num > MAX_UNBOUNDED:
        raise ValueError(f"has {num} open-ended repeats; {MAX_UNBOUNDED} are the most")
    if not trusted and _runs_away(pattern, texts):
        raise ValueError("takes too long on a hostile line")
    return pattern


def _runs_away(pattern: re.Pattern[str], texts: tuple[str, ...]) -> bool:
    """Say whether a long hostile line would take long; short ones come first, because a search cannot be stopped."""
    length = 32
    while length <= MAX_LINE:
        most_s = max(_MAX_SECONDS * length / MAX_LINE, 0.004)
        if any(all(_search_s(pattern, line) > most_s for _ in range(_TRIES)) for line in _hostile(texts, length)):
            return True
        length *= 2
    return False


def _search_s(pattern: re.Pattern[str], line: str) -> float:
    start = time.thread_time()
    pattern.search(line)
    return time.thread_time() - start


def _count(tree: Any, *, inside: bool) -> int:
    num = 0
    for op, argument in tree:
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, high, body = argument
            open_ended = int(high) > _UNBOUNDED
            if open_ended and inside:
                raise ValueError("repeats a repeat, which can take exponential time")
            num += int(open_ended) + _count(body, inside=inside or open_ended)
        elif name == "BRANCH":
            num += max((_count(part, inside=inside) for part in _parts(argument)), default=0)
        else:
            num += sum(_count(part, inside=inside) for part in _parts(argument))
    return num


@cache
def is_digit_blind(pattern: re.Pattern[str]) -> bool:
    """Say whether a pattern treats all ten digits alike, so that it holds or not whatever digits a line has."""
    return _is_blind(re._parser.parse(pattern.pattern, pattern.flags))  # type: ignore[attr-defined]


def _is_blind(tree: Any) -> bool:
    for op, argument in tree:
        name = str(op)
        if name in ("LITERAL", "NOT_LITERAL"):
            if argument in _DIGITS:
                return False
        elif name == "IN":
            sets = [{low} if str(kind) == "LITERAL" else set(range(low[0], low[1] + 1))
                    for kind, low in argument if str(kind) in ("LITERAL", "RANGE")]  # fmt: skip
            if any(each & _DIGITS not in (set(), _DIGITS) for each in sets):
                return False
        elif name.startswith("GROUPREF") or not all(_is_blind(part) for part in _parts(argument)):
            return False  # a reference compares what was found
    return True


def _parts(argument: Any) -> Iterator[Any]:
    """Yield the sub-patterns in an operator's argument (groups, branches, assertions)."""
    if isinstance(argument, re._parser.SubPattern):  # type: ignore[attr-defined]
        yield argument
    elif isinstance(argument, (tuple, list)):
        for part in argument:
            yield from _parts(part)


def _hostile(texts: tuple[str, ...], length: int) -> Iterator[str]:
    for piece in ("a", "0", " ", "a ", "a:", "0.", "/a", "[0] ", '"', *texts):
        yield (piece * length)[:length]
    for text in texts:
        yield (text + "0" * length)[:length]
        yield ("a " * length)[: max(0, length - len(text))] + text
