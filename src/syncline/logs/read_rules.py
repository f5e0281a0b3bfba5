"""Rules from YAML files, checked: a bad file is one clear error with its line.

    book = shipped_rules()
    book = read_rules(Path("our-rules"), book)       # ours are added; an id that exists already is replaced

A file is a list of rules, or `rules:` with one below it. `docs/guides/diagnose.md` describes the keys.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from syncline.describe.document import Document, Path_, read_document, read_text
from syncline.describe.files import write_text
from syncline.describe.guide import cite
from syncline.describe.mistakes import problem
from syncline.describe.own_data import parsed
from syncline.errors import DescriptionError, FileError, RuleError
from syncline.logs.checks.book import CHECKS
from syncline.logs.rule import SYMPTOMS, LogRule

Book = Mapping[str, LogRule]
_HINT = f"See {cite('diagnose')} for the keys of a rule."


@cache
def shipped_rules() -> Book:
    """Return the rules that come with syncline, by id."""
    book: dict[str, LogRule] = {}
    for name, rows in _shipped_rows().items():
        _add(book, Document(rows, {}, name), trusted=True)
    return _with_effects(book)


def _shipped_rows() -> dict[str, object]:
    """Return the rows of every file that ships; parsed YAML is kept as JSON in the user's cache, by what it holds."""
    texts = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted((files("syncline.logs") / "rules").iterdir(), key=lambda item: item.name)
        if entry.name.endswith(".yaml")
    }
    digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:16]
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syncline" / f"log-rules-{digest}.json"
    try:
        found = json.loads(cached.read_text(encoding="utf-8"))
        if isinstance(found, dict) and list(found) == list(texts):
            return found
    except (OSError, ValueError):
        pass
    rows = {name: parsed(text) for name, text in texts.items()}
    with suppress(OSError, FileError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_text(cached, json.dumps(rows))
    return rows


def read_rules(path: Path, book: Book | None = None) -> Book:
    """Return `book` with the rules of a file, or of every .yaml file of a folder, added or replaced."""
    result = dict(book if book is not None else shipped_rules())
    names = sorted(path.glob("*.yaml")) + sorted(path.glob("*.yml")) if path.is_dir() else [path]
    if not names:
        raise FileError(f'there is no .yaml file in "{path}".', hint="Put rules there, or name the file.")
    for name in names:
        try:
            _add(result, read_document(read_text(name), str(name)), trusted=False)
        except DescriptionError as error:
            raise RuleError(error.message, where=error.where, detail=error.detail, hint=_HINT) from None
    check_names(result)
    return _with_effects(result)


def _with_effects(book: Book) -> Book:
    """Return the rules with what says of itself that others lead to it among what those explain."""
    led: dict[str, list[str]] = {}
    for rule in book.values():
        for cause in rule.effect_of:
            led.setdefault(cause, []).append(rule.id)
    return {
        name: rule.model_copy(update={"explains": (*rule.explains, *led[name])}) if name in led else rule
        for name, rule in book.items()
    }


def with_rules(book: Book, text: str, source: str) -> Book:
    """Return `book` with the rules of a file that ships with syncline."""
    result = dict(book)
    _add(result, read_document(text, source), trusted=True)
    return result


def _add(book: dict[str, LogRule], document: Document, *, trusted: bool) -> None:
    data = document.data
    top: Path_ = ()
    if isinstance(data, dict) and "rules" in data:
        data, top = data["rules"], ("rules",)
    if not isinstance(data, list):
        raise RuleError("a rule file is a list of rules.", where=document.source, hint=_HINT)
    for number, row in enumerate(data):
        under = (*top, number)
        where = document.where(under)
        try:
            rule = LogRule.model_validate(row, context={"trusted": trusted, "where": where})
        except ValidationError as error:
            wrong = problem(document, error, cite("diagnose"), LogRule, under)
            message = wrong.message.removeprefix(".".join(map(str, under)) + ".")
            raise RuleError(message, where=wrong.where, detail=wrong.detail, hint=wrong.hint) from None
        if rule.check and rule.check not in CHECKS:
            known = f"there are: {', '.join(CHECKS)}"
            raise RuleError(f'no check is called "{rule.check}"; {known}.', where=where, hint=_HINT)
        if trusted and rule.id in book:
            raise RuleError(f'the rule "{rule.id}" exists twice.', where=where, hint=_HINT)
        book[rule.id] = rule


def check_names(book: Book) -> None:
    """Raise where a rule names another that does not exist."""
    for rule in book.values():
        for key in ("requires", "requires_any", "excludes", "before", "explains", "effect_of"):
            for name in getattr(rule, key):
                if name not in book and not (key == "explains" and name == SYMPTOMS):
                    message = f'rule "{rule.id}": {key} names "{name}", which is not a rule.'
                    raise RuleError(message, where=rule.where, hint=_HINT)
