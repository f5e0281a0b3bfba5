"""Descriptions that people write (clusters, jobs, scenarios): read, and what is wrong with them said in plain words.

The error names the file, the line, the key, the rule and what was found; a misspelt key gets the nearest that exists.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from syncline.describe.document import Document, Path_, read_document, read_text
from syncline.errors import DescriptionError, SynclineError

_Model = TypeVar("_Model", bound=BaseModel)

#: What pydantic says, and what we do.
_PLAIN_WORDS = {
    r"a valid dictionary( or instance of \w+)?": "a mapping",
    r"a valid (integer|int)": "a whole number",
    r"a valid number": "a number",
    r"a valid boolean": "true or false",
    r"a valid string": "text",
    r"a valid (tuple|list)": "a list",
    r"greater than or equal to": "at least",
    r"less than or equal to": "at most",
    r"greater than": "above",
    r"less than": "below",
    "'": "",
}


def read_described(path: Path, guide: str) -> Document:
    """Read a YAML file; where it is none, the error leads to the guide of this kind of file."""
    text = read_text(path)
    try:
        return read_document(text, str(path))
    except DescriptionError as error:
        if not text.strip() or error.message.startswith("not valid YAML"):
            error.hint = f"See {guide} for examples."
        raise


def load_described(
    source: str | os.PathLike[str] | Mapping[str, Any], model: type[_Model], guide: str, noun: str
) -> _Model:
    """Return what a file or a mapping describes; `noun` is what such a description is called."""
    if isinstance(source, Mapping):
        document = Document(dict(source), {}, noun)
    else:
        document = read_described(Path(source), guide)
    if not isinstance(document.data, dict):
        raise DescriptionError(f"a {noun} is a mapping.", where=document.source, hint=f"See {guide} for an example.")
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise problem(document, error, guide, model) from None


def problem(
    document: Document,
    error: ValidationError,
    guide: str,
    model: type[BaseModel],
    under: Path_ = (),
    *,
    path_of: Callable[[Document, tuple[Any, ...]], Path_] | None = None,
    place: Callable[[Document, str], str] | None = None,
    hints: Mapping[str, str] | None = None,
) -> DescriptionError:
    """Return the deepest problem, which the others often follow from; of those a key that does not exist.

    `model` is what was validated, found at the key path `under`. A kind of file that has short forms knows better how a
    key is spelt in it (`path_of`), where what a message speaks of stands (`place`), and what to do next (`hints`).
    """
    problems = error.errors()
    worst = max(problems, key=lambda item: (len(item["loc"]), item["type"] == "extra_forbidden"))
    path = (path_of or _real_path)(document, (*under, *worst["loc"]))
    kind, last = worst["type"], str(worst["loc"][-1]) if worst["loc"] else ""
    message = mistake(worst)
    hint = (hints or {}).get(kind, f"See {guide} for the keys.")
    if kind == "extra_forbidden":
        hint = f"{_instead(model, worst['loc'])} {hint}".strip()
    elif kind not in NAMED and path and worst["loc"]:
        inner = f"{last} " if message.startswith("must be") and last != str(path[-1]) else ""
        message = f"{'.'.join(map(str, path))}: {inner}{message}"
    others = [item for item in problems if item is not worst and not any(_follows(item, other) for other in problems)]
    where = document.where(path) if path or place is None else place(document, message)
    return DescriptionError(f"{message}.", where=where, detail=_also(document, others, under), hint=hint)


def _also(document: Document, others: list[ErrorDetails], under: Path_) -> str:
    """Return the other problems, each with its place, as far as a person reads them at once."""
    places = [document.where(_real_path(document, (*under, *item["loc"]))) for item in others]
    placed = zip(places, others, strict=True)
    named = list(
        dict.fromkeys(f"{place.removeprefix(document.source).strip()}: {mistake(item)}" for place, item in placed)
    )
    rest = [f"{len(named) - SHOWN} more"] if len(named) > SHOWN else []
    return f"Also {'; '.join([*named[:SHOWN], *rest])}." if named else ""


def _follows(item: ErrorDetails, from_: ErrorDetails) -> bool:
    """Return whether a key is most likely missing because it was misspelt."""
    beside = item["loc"][:-1] == from_["loc"][:-1]
    return beside and (item["type"], from_["type"]) == ("missing", "extra_forbidden")


#: Of several problems, how many are named beside the first.
SHOWN = 3

#: Mistakes whose sentence names the key itself.
NAMED = ("extra_forbidden", "missing", "union_tag_invalid", "union_tag_not_found")


def first_mistake(error: ValidationError, *under: str) -> str:
    """Return the first thing wrong with data that has no file, in plain words and without a full stop."""
    first = error.errors()[0]
    path = ".".join(str(step) for step in (*under, *first["loc"]))
    return f"{path}: {mistake(first)}" if path and first["type"] not in NAMED else mistake(first)


def mistake(detail: ErrorDetails) -> str:
    """Return what is wrong in our words, not in pydantic's: `must be above 0, not -1`."""
    kind, last, context = detail["type"], detail["loc"][-1:], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f'unknown key "{last[0]}"'
    if kind == "missing":
        return f'"{last[0]}" is missing'
    if kind == "union_tag_invalid":
        known = str(context["expected_tags"]).replace("'", "")
        return f'there is no {_tag(context)} "{context["tag"]}"; known: {known}'
    if kind == "union_tag_not_found":
        return f'"{_tag(context)}" is missing'
    message = str(detail["msg"]).removeprefix("Value error, ").removesuffix(".")
    if message.endswith("should have at least 1 item after validation, not 0"):
        return "must have at least one entry"
    given = detail["input"]
    shown = "a mapping" if isinstance(given, dict) else "a list" if isinstance(given, list) else repr(given)[:60]
    rule = plain_rule(message)
    return message if rule == message else f"must be {rule}, not {shown}"


def plain_rule(message: str) -> str:
    """Return the rule of a message: `at least 0` of pydantic's "Input should be greater than or equal to 0"."""
    if not message.startswith("Input should be"):
        return message
    rule = message.removeprefix("Input should be ").removesuffix(".").partition(", unable to")[0]
    for theirs, ours in _PLAIN_WORDS.items():
        rule = re.sub(theirs, ours, rule)
    return rule


def _tag(context: Mapping[str, object]) -> str:
    return str(context["discriminator"]).strip("'()").removesuffix("()").strip("'") or "kind"


def _instead(model: type[BaseModel], path: tuple[Any, ...]) -> str:
    """Return what may stand in place of an unknown key: the place where it is known, a key like it, all keys here."""
    last = str(path[-1])
    keys = _keys(model, path[:-1])
    homes = [home for home in _homes(model, last) if home]
    if homes and last not in keys:
        return f'"{last}" stands under {" or ".join(f"`{home}`" for home in homes[:SHOWN])}.'
    close = difflib.get_close_matches(last, keys, n=1)
    return f'Did you mean "{close[0]}"?' if close else f"Keys here: {', '.join(keys)}." if keys else ""


def _keys(model: type[BaseModel], path: Iterable[Any]) -> list[str]:
    """Return the keys that the mapping at a path may have; none where the path leaves what is known."""
    for step in path:
        field = next((f for name, f in model.model_fields.items() if step in (name, f.alias)), None)
        inner = next(_inner(field.annotation), None) if field else None
        if inner:
            model = inner
        elif not isinstance(step, int):
            return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _homes(model: type[BaseModel], key: str) -> list[str]:
    """Return the keys whose mappings know the key, the outermost first."""
    homes: list[str] = []
    waiting, seen = deque([(model, "")]), {model}
    while waiting:
        one, home = waiting.popleft()
        for name, field in one.model_fields.items():
            if key in (name, field.alias) and home not in homes:
                homes.append(home)
            new = [(inner, field.alias or name) for inner in _inner(field.annotation) if inner not in seen]
            seen.update(inner for inner, _ in new)
            waiting.extend(new)
    return homes


def _inner(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield the mappings that a field may hold: alone, in a list, or one of several."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _inner(part)


def _real_path(document: Document, loc: tuple[Any, ...]) -> Path_:
    """Return the key path as the file has it, without the names of classes and functions that pydantic adds."""
    path: Path_ = ()
    for step in loc:
        named = isinstance(step, int) or (step[:1].islower() and not step.startswith("function-"))
        if (*path, step) in document.lines or (named and not document.lines):
            path = (*path, step)
    return path


@contextmanager
def blamed_on(source: str | os.PathLike[str]) -> Iterator[None]:
    """Name the description in errors that only show when it meets a cluster, and so know no line."""
    try:
        yield
    except SynclineError as error:
        error.where = error.where or os.fspath(source)
        raise
