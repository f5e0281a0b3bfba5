"""CSV tables whose errors name the file, the line and the column."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from syncline.describe.document import read_text
from syncline.errors import DescriptionError

MAX_ROWS = 200_000


@dataclass(frozen=True)
class TableRow:
    """One line of a table: its cells by column, and where it stands."""

    cells: Mapping[str, str]
    where: str

    def text(self, column: str, allowed: Sequence[str] = ()) -> str:
        """Return a cell as text; with `allowed`, as one of those words."""
        value = self.cells[column]
        if allowed and value not in allowed:
            raise self.error(f'{column} is "{value[:60]}".', f"It is one of {', '.join(allowed)}.")
        return value

    def number(self, column: str, *, low: float = 0.0) -> float:
        """Return a cell as a finite number of at least `low`."""
        value = self.cells[column]
        try:
            number = float(value.replace("_", ""))
        except ValueError:
            raise self.error(f'{column} "{value[:60]}" is not a number.', "Write it as 55.04, say.") from None
        if not math.isfinite(number):
            raise self.error(f"{column} is {value[:60]}.", "Write a finite number.")
        if number < low:
            least = "negative" if low == 0 else f"below {low:g}"
            raise self.error(f"{column} is {value[:60]}, which is {least}.", f"Write {low:g} or more.")
        return number

    def whole(self, column: str, *, low: int = 0) -> int:
        """Return a cell as a whole number."""
        number = self.number(column, low=low)
        if number != int(number):
            raise self.error(f"{column} {number:g} is not a whole number.", "Round it.")
        return int(number)

    def error(self, message: str, hint: str) -> DescriptionError:
        """Return the error that says what is wrong with this line."""
        return DescriptionError(message, where=self.where, hint=hint)


def read_table(text: str, source: str, columns: Sequence[str]) -> tuple[TableRow, ...]:
    """Read a CSV text with a heading that has at least these columns."""
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff")), restkey="", restval=None)
    try:
        heading = [name.strip() for name in reader.fieldnames or ()]
        if missing := [name for name in columns if name not in heading]:
            raise DescriptionError(
                f"the table has no column {', '.join(missing)}.",
                where=f"{source} line 1",
                hint=f"The first line names the columns: {','.join(columns)}.",
            )
        reader.fieldnames = heading
        rows = []
        for cells in reader:
            rows.append(_row(cells, f"{source} line {reader.line_num}"))
            if len(rows) > MAX_ROWS:
                raise DescriptionError(f"the table has more than {MAX_ROWS:,} rows.", where=source, hint="Shorten it.")
    except csv.Error as error:
        where = f"{source} line {reader.line_num}"
        raise DescriptionError(f"not valid CSV: {error}.", where=where, hint="Is it a text file?") from None
    if not rows:
        raise DescriptionError("the table has no rows.", where=source, hint="Add one line for each price or rate.")
    return tuple(rows)


def _row(cells: Mapping[str, str | None], where: str) -> TableRow:
    if "" in cells:
        raise DescriptionError("more cells than columns.", where=where, hint='Put text with commas in "quotes".')
    if any(value is None for value in cells.values()):
        raise DescriptionError("fewer cells than columns.", where=where, hint="Leave a cell empty, but keep its comma.")
    return TableRow({name: (value or "").strip() for name, value in cells.items()}, where)


def shipped_or(path: str | Path | None, name: str) -> tuple[str, str]:
    """Return the text of a file, or of the table that ships with syncline, and what to call it in errors."""
    if path is None:
        return (resources.files("syncline.planning.cost") / "data" / name).read_text("utf-8"), name
    return read_text(Path(path)), str(path)
