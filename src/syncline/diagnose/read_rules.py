"""Rules from YAML files, checked: a bad file is one clear error with its line.

    book = shipped_rules()
    book = read_rules(Path("our-rules"), book)       # ours are added; an id that exists already is replaced

A file is a list of rules, or `rules:` with one below it. `docs/guides/diagnose.md` describes the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any

from syncline.describe.document import Document, read_document, read_text
from syncline.describe.guide import cite
from syncline.diagnose.checks import CHECKS
from syncline.diagnose.guard import compile_pattern
from syncline.diagnose.rule import SYMPTOMS, Distinct, LogRule, Matcher, Rate
from syncline.errors import DescriptionError, FileError, RuleError
from syncline.finding import Action, Severity

Book = Mapping[str, LogRule]
MIN_TEXT = 4
_HINT = f"See {cite('diagnose')} for the keys of a rule."
_KEYS = {
    "id", "title", "match", "severity", "confidence", "min_count", "distinct", "rate", "requires",
    "requires_any", "excludes", "before", "place", "check", "meaning", "fix", "reference", "action", "explains",
    "signal", "multi_host", "symptom", "max_lines", "leftover", "takes", "fallback", "setup", "example",
}  # fmt: skip


@cache
def shipped_rules() -> Book:
    """Return the rules that come with syncline, by id."""
    book: dict[str, LogRule] = {}
    folder = files("syncline.diagnose") / "rules"
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".yaml"):
            _add(book, read_document(entry.read_text(encoding="utf-8"), entry.name), trusted=True)
    _check_names(book)
    return book


def read_rules(path: Path, book: Book | None = None) -> Book:
    """Return `book` with the rules of a file, or of every .yaml file of a folder, added or replaced."""
    result = dict(book if book is not None else shipped_rules())
    found = sorted(path.glob("*.yaml")) + sorted(path.glob("*.yml")) if path.is_dir() else [path]
    if not found:
        raise FileError(f'there is no .yaml file in "{path}".', hint="Put rules there, or name the file.")
    for name in found:
        _add(result, _document(name), trusted=False)
    _check_names(result)
    return result


def with_rules(book: Book, text: str, source: str) -> Book:
    """Return `book` with the rules of a file that ships with syncline."""
    result = dict(book)
    _add(result, read_document(text, source), trusted=True)
    return result


def _document(path: Path) -> Document:
    try:
        return read_document(read_text(path), str(path))
    except DescriptionError as error:
        raise RuleError(error.message, where=error.where, detail=error.detail, hint=_HINT) from None


def _add(book: dict[str, LogRule], document: Document, *, trusted: bool) -> None:
    data = document.data
    top: tuple[str, ...] = ()
    if isinstance(data, dict) and "rules" in data:
        data, top = data["rules"], ("rules",)
    if not isinstance(data, list):
        raise RuleError("a rule file is a list of rules.", where=document.source, hint=_HINT)
    for number, row in enumerate(data):
        reader = _Reader(document, (*top, number), row, trusted=trusted)
        rule = reader.rule()
        if trusted and rule.id in book:
            raise reader.error("id", f'the rule "{rule.id}" exists twice.')
        book[rule.id] = rule


def _check_names(book: Book) -> None:
    for rule in book.values():
        for key in ("requires", "requires_any", "excludes", "before", "explains"):
            for name in getattr(rule, key):
                if name not in book and not (key == "explains" and name == SYMPTOMS):
                    raise RuleError(f'rule "{rule.id}": {key} names "{name}", which is not a rule.', where=rule.source,
                                    hint=_HINT)  # fmt: skip


def _plain(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)))


class _Reader:
    """Reads one rule and knows the line of each key."""

    def __init__(self, document: Document, path: tuple[str | int, ...], row: Any, *, trusted: bool) -> None:
        self.document, self.path, self.trusted = document, path, trusted
        if not isinstance(row, dict):
            raise self.error("", "a rule is a mapping of keys.")
        self.row: dict[str, Any] = row
        if unknown := sorted(set(row) - _KEYS):
            raise self.error(unknown[0], f'a rule has no key "{unknown[0]}".')

    def error(self, key: str, text: str) -> RuleError:
        path = (*self.path, key) if key else self.path
        return RuleError(text, where=self.document.where(path), hint=_HINT)

    def rule(self) -> LogRule:
        rule = LogRule(
            id=self.value("id", str),
            title=self.value("title", str, "") or self.value("id", str),
            matchers=self.matchers(),
            severity=self.choice("severity", {s.label: s for s in Severity if s is not Severity.UNKNOWN}, "critical"),
            confidence=self.confidence(),
            min_count=self.value("min_count", int, 1),
            distinct=self.distinct(),
            rate=self.rate(),
            requires=self.names("requires"),
            requires_any=self.names("requires_any"),
            excludes=self.names("excludes"),
            before=self.names("before"),
            place=self.value("place", str, ""),
            check=self.value("check", str, ""),
            meaning=self.value("meaning", str, ""),
            fix=self.value("fix", str, ""),
            reference=self.value("reference", str, ""),
            action=self.choice("action", {a.value: a for a in Action}, "inspect"),
            explains=self.names("explains"),
            signal=self.value("signal", bool, False),
            multi_host=self.value("multi_host", bool, False),
            symptom=self.value("symptom", bool, False),
            max_lines=self.value("max_lines", int, 0),
            leftover=self.value("leftover", bool, False),
            takes=self.value("takes", bool, False),
            fallback=self.value("fallback", bool, False),
            setup=self.value("setup", bool, False),
            example=self.value("example", str, ""),
            source=self.document.where(self.path),
        )
        self.complete(rule)
        return rule

    def complete(self, rule: LogRule) -> None:
        if not rule.matchers and not rule.check:
            raise self.error("", f'rule "{rule.id}" has nothing to look for: give it `match`.')
        if rule.check and rule.check not in CHECKS:
            raise self.error("check", f'no check is called "{rule.check}"; there are: {", ".join(CHECKS)}.')
        if not rule.signal and not (rule.meaning and rule.fix):
            raise self.error("", f'rule "{rule.id}" needs `meaning` and `fix`.')
        groups = {name for matcher in rule.matchers for name in matcher.pattern.groupindex}
        for name in filter(None, (rule.place, rule.distinct.group if rule.distinct else "")):
            if name not in groups:
                raise self.error("match", f'rule "{rule.id}": no pattern has a group "(?P<{name}>...)".')

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        value = self.row.get(key, default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"`{key}` is {_WORDS[kind]}, not {value!r}.")
        return value.strip() if isinstance(value, str) and key != "example" else value

    def choice(self, key: str, known: Mapping[str, Any], default: str) -> Any:
        word = self.value(key, str, default)
        if word not in known:
            raise self.error(key, f'`{key}` is one of {", ".join(known)}, not "{word}".')
        return known[word]

    def names(self, key: str) -> tuple[str, ...]:
        value = self.row.get(key, [])
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self.error(key, f"`{key}` is a list of rule ids.")
        return tuple(items)

    def confidence(self) -> float:
        value = float(self.value("confidence", float, 0.9))
        if not 0 < value <= 1:
            raise self.error("confidence", "`confidence` is above 0 and at most 1.")
        return value

    def distinct(self) -> Distinct | None:
        row = self.mapping("distinct", {"group", "min", "across"})
        return None if row is None else Distinct(str(row["group"]), int(row.get("min", 2)), str(row.get("across", "")))

    def rate(self) -> Rate | None:
        row = self.mapping("rate", {"count", "within_s", "apart_s"})
        if row is None:
            return None
        if "within_s" not in row:
            raise self.error("rate", "`rate` needs `within_s`, the seconds within which that many lines must come.")
        return Rate(int(row["count"]), float(row["within_s"]), float(row.get("apart_s", 0.0)))

    def mapping(self, key: str, known: set[str]) -> dict[str, Any] | None:
        row = self.row.get(key)
        if row is None:
            return None
        first = "group" if "group" in known else "count"
        if not isinstance(row, dict) or set(row) - known or first not in row:
            raise self.error(key, f"`{key}` is a mapping of {', '.join(sorted(known))}.")
        for name, value in row.items():
            if name not in ("group", "across") and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise self.error(key, f"`{key}.{name}` is a number, not {value!r}.")
        return row

    def matchers(self) -> tuple[Matcher, ...]:
        rows = self.row.get("match", [])
        rows = [rows] if isinstance(rows, dict) else rows
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.error("match", "`match` is a list of {text, regex}.")
        return tuple(self.matcher(row) for row in rows)

    def matcher(self, row: Mapping[str, Any]) -> Matcher:
        if set(row) - {"text", "regex", "limit", "weak"}:
            raise self.error("match", f"a match has text, regex, limit and weak, not {sorted(row)}.")
        weak = row.get("weak", False)
        if not isinstance(weak, bool):
            raise self.error("match", f"`weak` is true or false, not {weak!r}.")
        given = row.get("text")
        texts = tuple([given] if isinstance(given, str) else given or ())
        if not texts or not all(isinstance(t, str) and len(t.encode()) >= MIN_TEXT and "\n" not in t for t in texts):
            raise self.error("match", f"a match needs `text`: {MIN_TEXT} or more characters that the line contains.")
        regex = row.get("regex")
        if regex is not None and not isinstance(regex, str):
            raise self.error("match", "`regex` is text.")
        try:
            pattern = _plain(texts) if regex is None else compile_pattern(regex, texts, trusted=self.trusted)
        except ValueError as error:
            raise self.error("match", f'the pattern "{regex}" {error}.') from None
        return Matcher(texts, pattern, self.limits(row.get("limit"), pattern.groupindex), weak)

    def limits(self, row: Any, groups: Mapping[str, int]) -> tuple[tuple[str, float, float], ...]:
        if row is None:
            return ()
        found = []
        for name, span in row.items() if isinstance(row, dict) else ():
            if name not in groups or not isinstance(span, list) or len(span) != 2:
                break
            if not all(end is None or (isinstance(end, (int, float)) and not isinstance(end, bool)) for end in span):
                break
            low, high = (-inf if span[0] is None else float(span[0])), (inf if span[1] is None else float(span[1]))
            found.append((str(name), low, high))
        if not isinstance(row, dict) or len(found) != len(row):
            raise self.error("match", "`limit` is {group: [low, high]} of groups of the pattern.")
        return tuple(found)


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
