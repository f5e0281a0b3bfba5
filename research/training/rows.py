"""Rows of published training runs: a CSV with one metric a row, read safely, and grouped into distinct runs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.training.columns import COLUMNS, column_names, long_rows
from research.training.number import billions_in, number_in

from syncline.describe.document import read_text
from syncline.errors import DescriptionError
from syncline.validation.metrics import plain_metric

#: Best first: of several metrics of one run, the first that is there is scored.
METRICS = (
    "iteration_time_s", "iteration_time_ms", "tokens_per_s_total", "tokens_per_s", "tokens_per_s_per_gpu",
    "samples_per_s", "model_tflops_per_gpu", "hw_tflops_per_gpu", "mfu_pct", "hfu_pct",
)  # fmt: skip

#: A count beyond this (GPUs, layers, tokens of a sequence) is a mistake of the file.
LARGEST_COUNT = 1e12


@dataclass(frozen=True)
class PublishedRow:
    """One line of the file as text, with its line number."""

    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """Return a cell, empty where the file has none."""
        return self.cells.get(column, "").strip()

    def number(self, column: str) -> float | None:
        """Return a cell as a number, or None where it is empty or not one; parameters come in billions."""
        if column == "params_b":
            return billions_in(self.text(column))
        return number_in(self.text(column), binary=column == "seq")

    def whole(self, column: str, otherwise: int | None = None) -> int | None:
        """Return a cell as a whole number."""
        value = self.number(column)
        return otherwise if value is None or value > LARGEST_COUNT else round(value)

    @property
    def everything(self) -> str:
        """All text that may say something about the system."""
        return " ".join(
            self.text(c) for c in ("source", "model", "gpu", "interconnect", "zero_or_fsdp", "precision", "notes")
        )

    @property
    def recalled(self) -> bool:
        """Whether a cell that matters was recalled rather than read ("memory:"): such a row is never fitted to."""
        cells = [self.text(c) for c in self.cells if c != "interconnect"]
        return any("memory:" in cell.replace("Selene per-node NIC detail is memory:", "") for cell in cells)

    @property
    def value(self) -> float:
        value = self.number("value")
        if value is None or value <= 0:
            raise DescriptionError("no positive value was published")
        return value


@dataclass(frozen=True)
class PublishedRun:
    """One run: its rows, best metric first."""

    rows: tuple[PublishedRow, ...]

    @property
    def best(self) -> PublishedRow:
        return self.rows[0]

    @property
    def source(self) -> str:
        return self.best.text("source")


def read_rows(text: str, where: str) -> list[PublishedRow]:
    """Read the rows of a CSV text; a missing column is empty, a missing needed column an error (`columns`)."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        reader.fieldnames = column_names(reader.fieldnames or (), where)
    except csv.Error as error:
        raise DescriptionError(f"not a CSV file: {error}.", where=f"{where} line 1") from None
    try:
        rows = [
            PublishedRow(reader.line_num, {"source": Path(where).stem, **one})
            for cells in reader
            for one in long_rows(_cells(cells))
        ]
    except csv.Error as error:
        raise DescriptionError(f"not a CSV file: {error}.", where=f"{where} line {reader.line_num}") from None
    if not rows:
        raise DescriptionError("the file has no rows.", where=where)
    return rows


def _cells(cells: dict[str | Any, str | Any]) -> dict[str, str]:
    """Return the cells of the named columns; a row that is too long or too short keeps what it has."""
    return {key: value for key, value in cells.items() if isinstance(key, str) and isinstance(value, str)}


def read_file(path: str | Path) -> list[PublishedRow]:
    """Read the rows of a file."""
    return read_rows(read_text(Path(path)), str(path))


def runs_of(rows: Sequence[PublishedRow]) -> list[PublishedRun]:
    """Group rows that report one run in several metrics.

    Rows with the same configuration belong together; where one metric comes twice for a configuration, the first rows
    of each metric are one run, the second another (eager and compiled, say).
    """
    groups: dict[tuple[str, ...], list[PublishedRow]] = {}
    seen: dict[tuple[str, ...], int] = {}
    for row in distinct(rows):
        key = tuple(row.text(c) for c in COLUMNS if c not in ("metric", "value", "notes", "source"))
        counted = (*key, row.text("metric"), _origin(row))
        seen[counted] = seen.get(counted, -1) + 1
        groups.setdefault((*key, _origin(row), str(seen[counted])), []).append(row)
    return [PublishedRun(tuple(sorted(group, key=_preference))) for group in groups.values()]


def distinct(rows: Sequence[PublishedRow]) -> list[PublishedRow]:
    """Return the rows without those that repeat an earlier one cell by cell: they are no second measurement."""
    return list({tuple(sorted(row.cells.items())): row for row in reversed(rows)}.values())[::-1]


def _origin(row: PublishedRow) -> str:
    """Return the paper that a row comes from where its source names one, so that two tables of it can meet."""
    text = row.text("source")
    paper = re.search(r"arxiv[ :]*(\d{4}\.\d{4,5})", text, re.IGNORECASE)
    return paper.group(1) if paper else text


def _preference(row: PublishedRow) -> int:
    metric = plain_metric(row.text("metric"))
    return METRICS.index(metric) if metric in METRICS else len(METRICS)
