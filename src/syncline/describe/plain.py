"""Plain values: what JSON can hold, and strict JSON of anything that has such a form."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from io import StringIO
from pathlib import PurePath
from typing import Any, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
"""What JSON can hold. A tuple is written as a list; a number that does not exist is written as null."""

JsonObject: TypeAlias = dict[str, JsonValue]
"""A document on its way out as JSON: made from typed answers, checked against the schemas in docs/reference/schemas."""


def json_text(payload: Mapping[str, object], *, ascii_only: bool = False) -> str:
    """Return `payload` as strict JSON; NumPy values become plain ones, and a number that does not exist is null."""
    return json.dumps(plain(payload), indent=2, ensure_ascii=ascii_only, allow_nan=False)


def csv_text(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV, a line a row."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return out.getvalue()


def plain(value: Any) -> Any:
    """Return a value as JSON would read it back."""
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, without importing NumPy to ask
        value = value.tolist()
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")


def _key(key: object) -> str:
    if isinstance(key, Enum):
        return str(key.value)
    if isinstance(key, (str, int)) and not isinstance(key, bool):
        return str(key)
    raise TypeError(f"a JSON key must be a string, not {key!r}")
