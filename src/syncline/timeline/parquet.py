"""The Parquet form, for data frames and SQL: a row per span or link sample, names as text (needs `syncline[parquet]`).

`what` is "span" or "sample"; columns that a row does not have are null. The header is in the file's metadata.

    select name, sum(end_s - start_s) from 'run.parquet' where what = 'span' group by name
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from syncline.describe.files import atomic, open_file
from syncline.errors import TimelineError
from syncline.timeline import spans as span_columns
from syncline.timeline.columns import Array, ColumnError
from syncline.timeline.header import Header, header_of, parse_json, read_header
from syncline.timeline.links import LinkSamples
from syncline.timeline.spans import SpanKind, Spans
from syncline.timeline.timeline import Timeline

ROW_GROUP_ROWS = 1 << 20
_KEY = b"syncline"
_WHAT = ("span", "sample")
_KINDS = tuple(kind.name for kind in SpanKind)
_PLAIN = ("rank", "stream", "step", "round", "size_bytes", "peer")
_TEXT = ("what", "kind", "name", "link")
_COLUMNS = (
    *("what", "rank", "start_s", "end_s", "kind", "name", "stream", "step", "round", "size_bytes", "peer", "link"),
    *("carried_bytes", "rate_Bps"),
)


def write_parquet(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the Parquet form."""
    pa, pq = _pyarrow()
    schema = _schema(pa).with_metadata({_KEY: json.dumps(header_of(timeline), allow_nan=False).encode()})
    with atomic(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for begin in range(0, len(timeline.spans), ROW_GROUP_ROWS):
            writer.write_batch(_span_batch(pa, schema, timeline, slice(begin, begin + ROW_GROUP_ROWS)))
        for begin in range(0, len(timeline.samples), ROW_GROUP_ROWS):
            writer.write_batch(_sample_batch(pa, schema, timeline, slice(begin, begin + ROW_GROUP_ROWS)))


def read_parquet(path: str | os.PathLike[str]) -> Timeline:
    """Return the timeline in a Parquet file that syncline wrote."""
    pa, pq = _pyarrow()
    where = os.fspath(path)
    with open_file(path) as raw:
        try:
            with pq.ParquetFile(raw) as file:
                header = _header(file.schema_arrow.metadata, where)
                _check_shape(pa, file, header, where)
                table = file.read()
                table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise TimelineError(f"is not a readable Parquet file: {error!s:.200}.", where=where) from None
    return _Rows(pa, table, header, where).timeline()


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        hint = "Install it with: pip install 'syncline[parquet]'. Or use the form .timeline or .json.gz."
        raise TimelineError("Parquet files need pyarrow, which is not installed.", hint=hint) from None


def _schema(pa: Any) -> Any:
    text = pa.dictionary(pa.int32(), pa.string())
    types = {rule.name: pa.from_numpy_dtype(np.dtype(rule.dtype)) for rule in span_columns.RULES}
    types |= dict.fromkeys(_TEXT, text) | {"carried_bytes": pa.float64(), "rate_Bps": pa.float64()}
    return pa.schema([pa.field(name, types[name]) for name in _COLUMNS])


def _span_batch(pa: Any, schema: Any, timeline: Timeline, part: slice) -> Any:
    spans = timeline.spans
    num_rows = len(spans.start_s[part])
    data = {name: pa.array(np.ascontiguousarray(spans.column(name)[part])) for name in (*_PLAIN, "start_s", "end_s")}
    data["what"] = _texts(pa, np.zeros(num_rows, np.int32), _WHAT)
    data["kind"] = _texts(pa, spans.kind[part], _KINDS)
    data["name"] = _texts(pa, spans.name[part], timeline.names)
    data["link"] = _texts(pa, spans.link[part], timeline.links.names)
    return _batch(pa, schema, data, num_rows)


def _sample_batch(pa: Any, schema: Any, timeline: Timeline, part: slice) -> Any:
    samples = timeline.samples
    num_rows = len(samples.start_s[part])
    given = {"start_s": "start_s", "end_s": "end_s", "carried_bytes": "size_bytes", "rate_Bps": "rate_Bps"}
    data = {name: pa.array(np.ascontiguousarray(samples.column(own)[part])) for name, own in given.items()}
    data["what"] = _texts(pa, np.ones(num_rows, np.int32), _WHAT)
    data["link"] = _texts(pa, samples.link[part], timeline.links.names)
    return _batch(pa, schema, data, num_rows)


def _batch(pa: Any, schema: Any, data: Mapping[str, Any], num_rows: int) -> Any:
    arrays = [data.get(field.name) for field in schema]
    filled = [pa.nulls(num_rows, f.type) if a is None else a for f, a in zip(schema, arrays, strict=True)]
    return pa.record_batch(filled, schema=schema)


def _texts(pa: Any, index: Array, table: tuple[str, ...]) -> Any:
    index = np.ascontiguousarray(index, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), pa.array(table, pa.string()))


def _header(metadata: dict[bytes, bytes] | None, where: str) -> Header:
    text = (metadata or {}).get(_KEY)
    if text is None:
        raise TimelineError("is a Parquet file, but not a syncline timeline.", where=where)
    return read_header(parse_json(text, f"{where} header"), where)


def _check_shape(pa: Any, file: Any, header: Header, where: str) -> None:
    """Raise before anything is read if the columns or the number of rows are not what the header promises."""
    found, wanted = file.schema_arrow, _schema(pa)
    if found.names != wanted.names:
        raise TimelineError(
            f"has the columns {', '.join(found.names)!s:.200}.", where=where, hint=f"Wanted: {_COLUMNS}."
        )
    for have, want in zip(found, wanted, strict=True):
        if have.type != want.type:
            raise TimelineError(f'column "{want.name}" is {have.type}; it must be {want.type}.', where=where)
    rows = file.metadata.num_rows
    if rows != header.num_spans + header.num_samples:
        stated = f"{header.num_spans} spans and {header.num_samples} samples"
        raise TimelineError(f"has {rows} rows; its header says {stated}.", where=where)


class _Rows:
    """The table of a file, taken apart into spans (first) and samples (after them)."""

    def __init__(self, pa: Any, table: Any, header: Header, where: str) -> None:
        self._pa = pa
        self._header = header
        self._where = where
        self._spans = table.slice(0, header.num_spans)
        self._samples = table.slice(header.num_spans)

    def timeline(self) -> Timeline:
        """Return the timeline, every value checked."""
        header = self._header
        try:
            return Timeline(
                header.source, self._span_rows(), header.names, self._sample_rows(), header.links, header.metadata
            )
        except ColumnError as error:
            raise TimelineError(error.message, where=self._where, hint=error.hint) from None

    def _span_rows(self) -> Spans:
        self._check_what(self._spans, "span")
        columns = {name: self._numbers(self._spans, name) for name in (*_PLAIN, "start_s", "end_s")}
        columns["kind"] = self._index(self._spans, "kind", _KINDS).astype(np.uint8)
        columns["name"] = self._index(self._spans, "name", self._header.names)
        columns["link"] = self._index(self._spans, "link", self._header.links.names, nulls=True)
        return Spans(**columns)

    def _sample_rows(self) -> LinkSamples:
        self._check_what(self._samples, "sample")
        link = self._index(self._samples, "link", self._header.links.names)
        start, end, size, rate = (
            self._numbers(self._samples, name) for name in ("start_s", "end_s", "carried_bytes", "rate_Bps")
        )
        return LinkSamples(link, start, end, size, rate)

    def _check_what(self, table: Any, what: str) -> None:
        wrong = self._index(table, "what", _WHAT) != _WHAT.index(what)
        if wrong.any():
            raise TimelineError(f"row {int(wrong.argmax())} of the {what}s is not a {what}.", where=self._where)

    def _numbers(self, table: Any, name: str) -> Array:
        column = table.column(name)
        if column.null_count:
            raise TimelineError(f'column "{name}" has {column.null_count} empty rows.', where=self._where)
        array: Array = column.to_numpy()
        return array

    def _index(self, table: Any, name: str, texts: tuple[str, ...], nulls: bool = False) -> Array:
        """Return indices into `texts`; a file's own dictionaries may list them in any order, chunk by chunk."""
        known = {text: i for i, text in enumerate(texts)}
        parts = [np.empty(0, np.int32)]
        for chunk in table.column(name).chunks:
            if chunk.null_count and not nulls:
                raise TimelineError(f'column "{name}" has {chunk.null_count} empty rows.', where=self._where)
            places = [self._place(known, text, name) for text in chunk.dictionary.to_pylist()]
            table_index = np.array([*places, -1], np.int32)
            # Empty rows point at the last entry, which says -1.
            parts.append(table_index[chunk.indices.fill_null(len(places)).to_numpy(zero_copy_only=False)])
        return np.concatenate(parts)

    def _place(self, known: dict[str, int], text: object, name: str) -> int:
        if not isinstance(text, str) or text not in known:
            raise TimelineError(f'column "{name}" holds {text!r:.60}, which its table does not.', where=self._where)
        return known[text]
