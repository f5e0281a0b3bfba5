"""The Parquet form, for data frames and SQL: a row per span or link sample, names as text (needs `syncline[parquet]`).

`what` is "span" or "sample"; columns that a row does not have are null. The header is in the file's metadata.

    select name, sum(end_s - start_s) from 'run.parquet' where what = 'span' group by name
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from syncline.describe.files import atomic, open_file
from syncline.errors import TimelineError
from syncline.timeline.columns import Array
from syncline.timeline.header import header_of, read_header
from syncline.timeline.spans import SpanKind, Spans
from syncline.timeline.timeline import Timeline

ROW_GROUP_ROWS = 1 << 20
_KEY = b"syncline"
_WHAT = ("span", "sample")
_KINDS = tuple(kind.name for kind in SpanKind)
_COLUMNS = (
    *("what", "rank", "start_s", "end_s", "kind", "name", "stream", "step", "round", "size_bytes", "peer", "link"),
    *("carried_bytes", "rate_Bps"),
)
_OF_SPANS = {name: name for name in _COLUMNS[1:-2]}
_OF_SAMPLES = {"link": "link", "start_s": "start_s", "end_s": "end_s", "carried_bytes": "size_bytes",
               "rate_Bps": "rate_Bps"}  # fmt: skip
"""Column of the file -> column of the table."""


def write_parquet(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the Parquet form."""
    pa, pq = _pyarrow()
    schema = _schema(pa).with_metadata({_KEY: header_of(timeline)})
    texts = _texts(timeline.names, timeline.links.names)
    with atomic(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for what, table, of in ((0, timeline.spans, _OF_SPANS), (1, timeline.samples, _OF_SAMPLES)):
            for begin in range(0, len(table), ROW_GROUP_ROWS):
                part = slice(begin, begin + ROW_GROUP_ROWS)
                data = {name: _array(pa, table.column(own)[part], texts.get(name)) for name, own in of.items()}
                num_rows = len(table.start_s[part])
                data["what"] = _array(pa, np.full(num_rows, what), _WHAT)
                arrays = [data[f.name] if f.name in data else pa.nulls(num_rows, f.type) for f in schema]
                writer.write_batch(pa.record_batch(arrays, schema=schema))


def read_parquet(path: str | os.PathLike[str]) -> Timeline:
    """Return the timeline in a Parquet file that syncline wrote."""
    pa, pq = _pyarrow()
    where = os.fspath(path)
    with open_file(path) as raw:
        try:
            with pq.ParquetFile(raw) as file:
                text = (file.schema_arrow.metadata or {}).get(_KEY)
                if text is None:
                    raise TimelineError("is a Parquet file, but not a syncline timeline.", where=where)
                header = read_header(text, where)
                if not file.schema_arrow.equals(_schema(pa)):
                    hint = f"Wanted: {', '.join(_COLUMNS)}."
                    raise TimelineError("has other columns than a timeline.", where=where, hint=hint)
                stated = header.num_spans + header.num_samples
                if file.metadata.num_rows != stated:
                    raise TimelineError(f"has {file.metadata.num_rows} rows; its header says {stated}.", where=where)
                rows = file.read()
                rows.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise TimelineError(f"is not a readable Parquet file: {error!s:.200}.", where=where) from None
    texts = _texts(header.names, header.links.names)
    spans, samples = rows.slice(0, header.num_spans), rows.slice(header.num_spans)
    for what, part in zip(_WHAT, (spans, samples), strict=True):
        wrong = _column(part, "what", _WHAT, where) != _WHAT.index(what)
        if wrong.any():
            raise TimelineError(f"row {int(wrong.argmax())} of the {what}s is not a {what}.", where=where)
    read = [
        {own: _column(part, name, texts.get(name), where) for name, own in of.items()}
        for part, of in ((spans, _OF_SPANS), (samples, _OF_SAMPLES))
    ]
    return header.timeline(read[0], read[1], where)


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        hint = "Install it with: pip install 'syncline[parquet]'. Or use the form .timeline or .json.gz."
        raise TimelineError("Parquet files need pyarrow, which is not installed.", hint=hint) from None


def _schema(pa: Any) -> Any:
    types = {rule.name: pa.from_numpy_dtype(np.dtype(rule.dtype)) for rule in Spans.RULES}
    types |= dict.fromkeys(("what", *_texts((), ())), pa.dictionary(pa.int32(), pa.string()))
    types |= {"carried_bytes": pa.float64(), "rate_Bps": pa.float64()}
    return pa.schema([pa.field(name, types[name]) for name in _COLUMNS])


def _texts(names: tuple[str, ...], links: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the columns that are numbers in a timeline and text in a file, with what each number stands for."""
    return {"kind": _KINDS, "name": names, "link": links}


def _array(pa: Any, column: Array, texts: tuple[str, ...] | None) -> Any:
    if texts is None:
        return pa.array(np.ascontiguousarray(column))
    index = np.ascontiguousarray(column, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), pa.array(texts, pa.string()))


def _column(rows: Any, name: str, texts: tuple[str, ...] | None, where: str) -> Array:
    """Return a column as numbers; text becomes its place in `texts`, a span without a link -1."""
    column = rows.column(name)
    if column.null_count and name != "link":
        raise TimelineError(f'column "{name}" has {column.null_count} empty rows.', where=where)
    if texts is None:
        array: Array = column.to_numpy()
        return array
    known = {text: place for place, text in enumerate(texts)}
    parts = [np.empty(0, np.int32)]
    for chunk in column.chunks:  # each has a dictionary of its own
        unknown = next((text for text in chunk.dictionary.to_pylist() if text not in known), None)
        if unknown is not None:
            raise TimelineError(f'column "{name}" holds {unknown!r:.60}, which its table does not.', where=where)
        places = np.array([*(known[text] for text in chunk.dictionary.to_pylist()), -1], np.int32)
        parts.append(places[chunk.indices.fill_null(len(places) - 1).to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)
