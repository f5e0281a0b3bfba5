"""Reads a matrix of bytes that ranks send to each other: CSV, or a JSON list of rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.describe.files import open_file
from syncline.errors import DescriptionError, SynclineError

Matrix = str | Path | Sequence[Sequence[float | str]] | NDArray[np.float64]
_RULE = "Give as many rows as columns, row i with what rank i sends to each rank: 1048576 or 1MiB."


def read_matrix(source: Matrix) -> NDArray[np.float64]:
    """Return a matrix of bytes.

    >>> read_matrix([[0, "1KiB"], [2048, 0]]).tolist()
    [[0.0, 1024.0], [2048.0, 0.0]]
    """
    where = str(source) if isinstance(source, (str, Path)) else ""
    rows = _rows(Path(source)) if isinstance(source, (str, Path)) else source
    found: list[list[float]] = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            raise DescriptionError(f"row {number} is no list of sizes.", where=where, hint=_RULE)
        found.append([_bytes(cell, number, where) for cell in row])
    if len(found) < 2 or any(len(row) != len(found) for row in found):
        widths = sorted({len(row) for row in found})
        shape = f"{len(found)} rows of {' or '.join(map(str, widths)) or 'no'} sizes"
        raise DescriptionError(f"{shape} are no square matrix of two or more ranks.", where=where, hint=_RULE)
    return np.array(found)


def _rows(path: Path) -> Sequence[Sequence[float | str]]:
    with open_file(path) as file:
        text = file.read().decode("utf-8", "replace")
    if path.suffix == ".json":
        try:
            rows = json.loads(text)
        except json.JSONDecodeError as error:
            raise DescriptionError(f"not JSON: {error.msg}.", where=f"{path}:{error.lineno}", hint=_RULE) from None
        if not isinstance(rows, list):
            raise DescriptionError("the file holds no list of rows.", where=str(path), hint=_RULE)
        return rows
    return [
        [cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row and not row[0].startswith("#")
    ]


def _bytes(cell: object, row: int, where: str) -> float:
    try:
        value = float(units.size(cell)) if isinstance(cell, str) else float(cell)  # type: ignore[arg-type]
    except (SynclineError, TypeError, ValueError):
        raise DescriptionError(f'row {row}: "{str(cell)[:40]}" is no size.', where=where, hint=_RULE) from None
    if not 0 <= value < 1 << 60:
        raise DescriptionError(f"row {row}: {value:g} is no number of bytes.", where=where, hint=_RULE)
    return value
