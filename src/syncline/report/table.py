"""Tables as data: plain rows, or a label and what it shows of a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from rich.table import Table

Row = TypeVar("Row")


def columns(rows: Iterable[Sequence[str]], headings: Sequence[str], right: Collection[int] = ()) -> Table:
    """Return rows as a table without lines; `right` numbers the columns of figures, which never break; words fold."""
    made = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        figure = number in right
        made.add_column(heading, justify="right" if figure else "left", overflow="fold", no_wrap=figure)
    for row in rows:
        made.add_row(*row)
    return made


def table(rows: Iterable[Row], shown: Mapping[str, Callable[[Row], str]], words: Collection[str] = ()) -> Table:
    """Return a table with a column for each label of `shown`; those in `words` stand left, figures right."""
    cells = ([show(row) for show in shown.values()] for row in rows)
    return columns(cells, list(shown), [number for number, label in enumerate(shown) if label not in words])
