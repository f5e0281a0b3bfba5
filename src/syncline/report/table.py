"""Tables as data: a column is a label and what it shows of a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from rich.table import Table

Row = TypeVar("Row")


def table(rows: Iterable[Row], columns: Mapping[str, Callable[[Row], str]], words: Collection[str] = ()) -> Table:
    """Return a table without lines; columns in `words` stand left and fold, figures stand right and never break."""
    made = Table(box=None, pad_edge=False)
    for label in columns:
        made.add_column(label, justify="left" if label in words else "right", no_wrap=label not in words)
    for row in rows:
        made.add_row(*(show(row) for show in columns.values()))
    return made
