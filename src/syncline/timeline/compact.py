"""The compact form (`.timeline`): a ZIP archive with the header as JSON and one NumPy array a column; no pickle.

A column that holds one value is kept as that value.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from io import BytesIO
from typing import BinaryIO

import numpy as np

from syncline.describe.files import atomic, open_file
from syncline.errors import TimelineError
from syncline.timeline.columns import Array, Table
from syncline.timeline.header import header_of, read_header
from syncline.timeline.links import LinkSamples
from syncline.timeline.spans import Spans
from syncline.timeline.timeline import Timeline

MAGIC = b"PK\x03\x04"
MAX_HEADER_BYTES = 2**28
_ARRAY_HEADER_BYTES = 1024
_DAMAGE = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, ValueError, RuntimeError, MemoryError)


def write_compact(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the compact form."""
    with atomic(path) as file:
        pack(timeline, file)


def read_compact(path: str | os.PathLike[str]) -> Timeline:
    """Return the timeline in a compact file."""
    with open_file(path) as file:
        return unpack(file, os.fspath(path))


def pack(timeline: Timeline, file: BinaryIO) -> None:
    """Write the archive of a timeline into an open file."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("header.json", "w") as entry:
            entry.write(header_of(timeline).encode())
        for table in (timeline.spans, timeline.samples):
            for name, column in table.columns().items():
                with archive.open(f"{table.TABLE}/{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, _shortest(column), version=(1, 0), allow_pickle=False)


def unpack(file: BinaryIO, where: str) -> Timeline:
    """Return the timeline of an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            header = read_header(_entry(archive, "header.json", MAX_HEADER_BYTES), where)
            spans = _columns(archive, Spans, header.num_spans)
            samples = _columns(archive, LinkSamples, header.num_samples)
    except TimelineError:
        raise
    except _DAMAGE as error:
        raise TimelineError(f"is cut off or damaged: {error!s:.200}.", where=where) from None
    return header.timeline(spans, samples, where)


def _shortest(column: Array) -> Array:
    same = len(column) and (column.strides == (0,) or (column == column[0]).all())
    return np.array(column[0]) if same else np.ascontiguousarray(column)


def _columns(archive: zipfile.ZipFile, table: type[Table], num_rows: int) -> dict[str, Array]:
    columns = {}
    for rule in table.RULES:
        data = _entry(archive, f"{table.TABLE}/{rule.name}.npy", num_rows * 8 + _ARRAY_HEADER_BYTES)
        column = np.lib.format.read_array(BytesIO(data), allow_pickle=False)
        if column.shape not in ((num_rows,), ()):
            raise ValueError(f"{table.TABLE} {rule.name} has the shape {column.shape}; the header says {num_rows} rows")
        columns[rule.name] = np.broadcast_to(column, (num_rows,))
    return columns


def _entry(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return an entry; one that would unpack to more than it can hold is refused before."""
    size = archive.getinfo(name).file_size
    if size > limit:
        raise ValueError(f"{name} has {size:,} bytes, more than {limit:,}")
    return archive.read(name)
