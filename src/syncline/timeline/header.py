"""What every file form keeps beside the rows: version, source, tables and metadata, as one JSON object."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from syncline.describe.plain import JsonObject
from syncline.errors import TimelineError
from syncline.timeline.links import NamedLinks, unique_names
from syncline.timeline.source import Source, json_safe
from syncline.timeline.timeline import Timeline

FORMAT = "syncline-timeline"
VERSION = 1
MAX_ROWS = 2**28
"""Most rows a reader accepts: a file of a few bytes may claim any number, and 268 million spans need 14 GB."""

_KEYS = {"format", "version", "source", "names", "links", "metadata", "num_spans", "num_samples"}


@dataclass(frozen=True, eq=False)
class Header:
    """The checked header of a file."""

    source: Source
    names: tuple[str, ...]
    links: NamedLinks
    metadata: dict[str, Any]
    num_spans: int
    num_samples: int


def header_of(timeline: Timeline) -> JsonObject:
    """Return the header as JSON writes it."""
    capacity = [None if math.isnan(rate) else rate for rate in timeline.links.capacity_Bps.tolist()]
    return {
        "format": FORMAT,
        "version": VERSION,
        "source": timeline.source.to_json(),
        "names": list(timeline.names),
        "links": [list(pair) for pair in zip(timeline.links.names, capacity, strict=True)],
        "metadata": timeline.metadata,
        "num_spans": len(timeline.spans),
        "num_samples": len(timeline.samples),
    }


def read_header(data: object, where: str) -> Header:
    """Return the header found in a file, every field checked; `where` begins the error texts."""
    fields = exact_keys(data, _KEYS, "header", where)
    if fields["format"] != FORMAT:
        raise TimelineError(f"is not a syncline timeline (format {fields['format']!r:.40}).", where=where)
    if fields["version"] != VERSION:
        hint = f"This syncline reads version {VERSION}."
        raise TimelineError(f"has timeline version {fields['version']!r:.40}.", where=where, hint=hint)
    try:
        return Header(
            source=_source(fields["source"], where),
            names=unique_names(_list(fields["names"], "names", where), "span"),
            links=_links(_list(fields["links"], "links", where), where),
            metadata=json_safe(exact_keys(fields["metadata"], None, "metadata", where)),
            num_spans=_count(fields["num_spans"], "num_spans", where),
            num_samples=_count(fields["num_samples"], "num_samples", where),
        )
    except TimelineError as error:
        if error.where:
            raise
        raise TimelineError(error.message, where=where, detail=error.detail, hint=error.hint) from None


def parse_json(text: str | bytes, where: str) -> Any:
    """Return parsed JSON; NaN, infinities, endless nesting, bad text and anything else odd are errors."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise TimelineError(f"is not UTF-8 text at byte {error.start}.", where=where) from None
    except RecursionError:
        raise TimelineError("is nested too deeply.", where=where) from None
    except json.JSONDecodeError as error:
        raise TimelineError(f"is not JSON at character {error.pos + 1}: {error.msg}.", where=where) from None
    except ValueError as error:
        raise TimelineError(f"is not JSON: {error}.", where=where) from None


def exact_keys(data: object, keys: set[str] | None, what: str, where: str) -> dict[str, Any]:
    """Return `data` if it is an object with exactly these keys (any, if None)."""
    if not isinstance(data, dict):
        raise TimelineError(f"{what} is {_kind(data)}; it must be an object.", where=where)
    if keys is not None and data.keys() != keys:
        unknown, missing = sorted(data.keys() - keys), sorted(keys - data.keys())
        problem = f'has the unknown key "{unknown[0]:.60}"' if unknown else f'lacks the key "{missing[0]}"'
        raise TimelineError(f"{what} {problem}.", where=where)
    return data


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not allowed")


def _kind(data: object) -> str:
    return {dict: "an object", list: "a list", str: "text", type(None): "null"}.get(type(data), type(data).__name__)


def _list(data: object, what: str, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise TimelineError(f"header {what} is {_kind(data)}; it must be a list.", where=where)
    return data


def _source(data: object, where: str) -> Source:
    fields = exact_keys(data, {"kind", "name", "version", "ignores", "seed"}, "header source", where)
    return Source(**{**fields, "ignores": tuple(_list(fields["ignores"], "source ignores", where))})


def _links(rows: list[Any], where: str) -> NamedLinks:
    names, capacity = [], np.empty(len(rows), np.float64)
    for i, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) == 2 and type(row[1]) in (int, float, type(None))):
            raise TimelineError(f"header link {i} must be [name, capacity_Bps or null].", where=where)
        names.append(row[0])
        capacity[i] = math.nan if row[1] is None else _float(row[1])
    return NamedLinks(tuple(names), capacity)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _count(value: object, what: str, where: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_ROWS:
        raise TimelineError(f"header {what} is {value!r:.40}; it must be from 0 to {MAX_ROWS}.", where=where)
    return value
