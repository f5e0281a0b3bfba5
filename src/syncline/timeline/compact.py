"""The compact form (`.timeline`): every column compressed, nothing but NumPy needed, no pickle.

Layout: magic line; one zlib block per column, bytes of equal weight side by side; a JSON footer with the header and the
columns; the footer's length in 8 bytes; the magic line again. Columns that hold one value are kept as that value.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from syncline.describe.files import atomic, open_file
from syncline.describe.plain import JsonObject
from syncline.errors import TimelineError
from syncline.timeline import links as link_columns
from syncline.timeline import spans as span_columns
from syncline.timeline.columns import Array, Column, ColumnError
from syncline.timeline.header import exact_keys, header_of, parse_json, read_header
from syncline.timeline.links import LinkSamples
from syncline.timeline.spans import Spans
from syncline.timeline.timeline import Timeline

MAGIC = b"syncline timeline 1\n"
MAX_FOOTER_BYTES = 2**28
_TRAILER = 8 + len(MAGIC)


def write_compact(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the compact form."""
    with atomic(path) as file:
        file.write(MAGIC)
        columns = [
            _write_column(file, f"{table}.{rule.name}", rows.column(rule.name).astype(rule.dtype, copy=False))
            for table, rows, rules in (
                ("spans", timeline.spans, span_columns.RULES),
                ("samples", timeline.samples, link_columns.RULES),
            )
            for rule in rules
        ]
        footer = json.dumps({"header": header_of(timeline), "columns": columns}, allow_nan=False).encode()
        file.write(footer)
        file.write(len(footer).to_bytes(8, "little") + MAGIC)


def read_compact(path: str | os.PathLike[str]) -> Timeline:
    """Return the timeline in a compact file."""
    where = os.fspath(path)
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        footer, body_end = _footer(file, size, where)
        header = read_header(footer["header"], where)
        blocks = _Blocks(file, footer["columns"], body_end, where)
        spans = {rule.name: blocks.column("spans", rule, header.num_spans) for rule in span_columns.RULES}
        samples = {rule.name: blocks.column("samples", rule, header.num_samples) for rule in link_columns.RULES}
        blocks.finish()
    try:
        rows, links = Spans(**spans), LinkSamples(**samples)
        return Timeline(header.source, rows, header.names, links, header.links, header.metadata)
    except ColumnError as error:
        raise TimelineError(error.message, where=where, hint=error.hint) from None


def _write_column(file: BinaryIO, name: str, column: Array) -> JsonObject:
    if len(column) and (column.strides == (0,) or (column == column[0]).all()):
        return {"name": name, "value": column[0].item()}
    little = column.astype(column.dtype.newbyteorder("<"), copy=False)
    planes = np.ascontiguousarray(little).view(np.uint8).reshape(len(column), column.dtype.itemsize).T
    block = zlib.compress(planes.tobytes(), 1)
    file.write(block)
    return {"name": name, "size_bytes": len(block)}


def _footer(file: BinaryIO, size: int, where: str) -> tuple[dict[str, Any], int]:
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        raise TimelineError("is not a compact timeline.", where=where)
    if size < len(MAGIC) + _TRAILER:
        raise TimelineError("is cut off.", where=f"{where} byte {size}")
    file.seek(size - _TRAILER)
    length = int.from_bytes(file.read(8), "little")
    if file.read() != MAGIC:
        raise TimelineError("is cut off.", where=f"{where} byte {size}", hint="The file was not written to its end.")
    begin = size - _TRAILER - length
    if begin < len(MAGIC) or length > MAX_FOOTER_BYTES:
        raise TimelineError(f"says its footer has {length} bytes, which is impossible.", where=f"{where} byte {size}")
    file.seek(begin)
    footer = exact_keys(parse_json(file.read(length), f"{where} footer"), {"header", "columns"}, "footer", where)
    if not isinstance(footer["columns"], list):
        raise TimelineError("footer columns must be a list.", where=where)
    return footer, begin


class _Blocks:
    """The column blocks of a file, read in the order they were written."""

    def __init__(self, file: BinaryIO, entries: list[Any], end: int, where: str) -> None:
        self._file = file
        self._entries = iter(entries)
        self._end = end
        self._where = where
        self._at = file.seek(len(MAGIC))

    def column(self, table: str, rule: Column, num_rows: int) -> Array:
        """Return the next column, which must be this one, with this many rows."""
        entry = next(self._entries, None)
        if not isinstance(entry, dict) or entry.get("name") != f"{table}.{rule.name}":
            raise TimelineError(f'column "{table}.{rule.name}" is missing or out of order.', where=self._where)
        if "value" in entry:
            return self._constant(exact_keys(entry, {"name", "value"}, "column", self._where), rule, num_rows)
        size = exact_keys(entry, {"name", "size_bytes"}, "column", self._where)["size_bytes"]
        if type(size) is not int or not 0 <= size <= self._end - self._at:
            raise TimelineError(f'column "{entry["name"]}" says it has {size!r:.40} bytes.', where=self._where)
        return self._unpack(entry["name"], size, rule, num_rows)

    def finish(self) -> None:
        """Check that nothing is left over."""
        if next(self._entries, None) is not None or self._at != self._end:
            raise TimelineError("holds more than its columns.", where=f"{self._where} byte {self._at}")

    def _constant(self, entry: Mapping[str, Any], rule: Column, num_rows: int) -> Array:
        value = entry["value"]
        fits = type(value) in ((int,) if rule.is_whole else (int, float)) and rule.low <= value <= rule.high
        if not fits or num_rows == 0:
            raise TimelineError(f'column "{entry["name"]}" cannot hold {value!r:.40}.', where=self._where)
        return np.broadcast_to(np.array(value, rule.dtype), (num_rows,))

    def _unpack(self, name: str, size: int, rule: Column, num_rows: int) -> Array:
        dtype = np.dtype(rule.dtype).newbyteorder("<")
        wanted = num_rows * dtype.itemsize
        place = f"{self._where} byte {self._at}"
        self._at += size
        unpacker = zlib.decompressobj()
        try:
            # One byte more than wanted: a block that claims little and unpacks to much stops there.
            data = unpacker.decompress(self._file.read(size), wanted + 1)
        except zlib.error as error:
            raise TimelineError(f'column "{name}" is damaged: {error}.', where=place) from None
        if len(data) != wanted or not unpacker.eof or unpacker.unused_data:
            raise TimelineError(f'column "{name}" does not hold {num_rows} rows.', where=place)
        planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, num_rows)
        return np.ascontiguousarray(planes.T).reshape(-1).view(dtype).astype(rule.dtype, copy=False)
