"""Descriptions that people write (jobs, scenarios): read, and what is wrong with them said in plain words.

The error names the file, the line, the key, the rule and what was found; a misspelt key gets the nearest that exists.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from syncline.describe.document import Document, Path_, read_document, read_text
from syncline.errors import DescriptionError, SynclineError

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


def problem(
    document: Document, error: ValidationError, guide: str, model: type[BaseModel], under: Path_ = ()
) -> DescriptionError:
    """Return the deepest problem, which the others often follow from; of those a key that does not exist.

    `model` is what was validated, found at the key path `under`.
    """
    found = max(error.errors(), key=lambda item: (len(item["loc"]), item["type"] == "extra_forbidden"))
    path = _real_path(document, (*under, *found["loc"]))
    last = str(found["loc"][-1]) if found["loc"] else ""
    hint = f"See {guide} for the keys."
    if found["type"] == "extra_forbidden":
        message = f'unknown key "{last}"'
        close = difflib.get_close_matches(last, _keys(model, found["loc"][:-1]), n=1)
        hint = f'Did you mean "{close[0]}"? {hint}' if close else hint
    elif found["type"] == "missing":
        message = f'"{last}" is missing'
    else:
        message = _in_plain_words(str(found["msg"]), found["input"])
        message = f"{'.'.join(map(str, path))}: {message}" if found["loc"] and path else message
    return DescriptionError(f"{message}.", where=document.where(path), hint=hint)


def _in_plain_words(message: str, given: Any) -> str:
    message = message.removeprefix("Value error, ").removesuffix(".")
    if message.endswith("should have at least 1 item after validation, not 0"):
        return "must have at least one entry"
    if not message.startswith("Input should be"):
        return message
    rule = message.removeprefix("Input should be ").partition(", unable to")[0]
    for theirs, ours in _PLAIN_WORDS.items():
        rule = re.sub(theirs, ours, rule)
    shown = "a mapping" if isinstance(given, dict) else "a list" if isinstance(given, list) else repr(given)[:60]
    return f"must be {rule}, not {shown}"


def _keys(model: type[BaseModel], path: Iterable[Any]) -> list[str]:
    """Return the keys that the mapping at a path may have; none where the path leaves what is known."""
    for step in path:
        field = next((f for name, f in model.model_fields.items() if step in (name, f.alias)), None)
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if inner:
            model = inner[0]
        elif not isinstance(step, int):
            return []
    return [field.alias or name for name, field in model.model_fields.items()]


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
