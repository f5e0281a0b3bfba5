"""Checked columns: what a caller gives, as read-only NumPy arrays of one dtype, or an error that names column and row.

A column that is left out, or given as one value, is held as that value with stride zero: it costs no memory however
many rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from syncline.describe.frozen import FrozenColumns
from syncline.errors import TimelineError

MAX_TIME_S = 1e12
"""Times beyond +-30,000 years are mistakes, and their differences would lose every digit that matters."""
MAX_BYTES = 2**53
"""Largest size a span may state: beyond 9 PB, readers that keep numbers as doubles (every browser) lose bytes."""
MAX_RATE_BPS = 1e18

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEFT_OUT: Any = None
"""Default of a column that may be left out: its rule (or its table) then fills it in."""


class ColumnError(TimelineError):
    """A column breaks its rule; knows which, and at which row, so that a reader can add the place in its file."""

    def __init__(self, table: str, column: str, row: int | None, problem: str, *, hint: str = "") -> None:
        place = f'column "{column}"' if row is None else f'column "{column}", row {row}'
        super().__init__(f"{table} {place}: {problem}", hint=hint)
        self.table = table
        self.column = column
        self.row = row
        self.problem = problem


@dataclass(frozen=True)
class Column:
    """The rule of one column: dtype, least and greatest value, and what a row holds when nothing is given."""

    name: str
    dtype: str
    low: float
    high: float
    default: float | None = None

    @property
    def is_whole(self) -> bool:
        return np.dtype(self.dtype).kind in "iu"


def integer(name: str, dtype: str, low: int = 0, default: int | None = None, high: int | None = None) -> Column:
    """Return the rule of a column of whole numbers; its upper limit is the dtype's unless given."""
    return Column(name, dtype, low, np.iinfo(dtype).max if high is None else high, default)


class Table(FrozenColumns):
    """Base of a table of columns: `RULES` has one rule a column, `TABLE` is what errors call it."""

    TABLE: ClassVar[str]
    RULES: ClassVar[tuple[Column, ...]]
    start_s: Floats
    end_s: Floats

    def __post_init__(self) -> None:
        num_rows = np.size(self.start_s)
        for rule in self.RULES:
            value = self.filled(rule.name) if getattr(self, rule.name) is LEFT_OUT else getattr(self, rule.name)
            object.__setattr__(self, rule.name, checked(self.TABLE, rule, value, num_rows))
        early = self.end_s < self.start_s
        start_s = self.start_s[int(early.argmax())].item() if num_rows else 0.0
        check_rows(self.TABLE, "end_s", early, self.end_s, f"ends at {{value}} s, before its start at {start_s} s.")

    def __len__(self) -> int:
        return len(self.start_s)

    def filled(self, name: str) -> object:
        """Return what a column holds that was left out; None where its rule says so."""
        return None

    def column(self, name: str) -> Array:
        """Return a column by its name."""
        array: Array = getattr(self, name)
        return array

    def take(self, rows: Array) -> Self:
        """Return the rows chosen by a mask or by indices."""
        return type(self)(**{name: column[rows] for name, column in self.columns().items()})

    def columns(self) -> dict[str, Array]:
        """Return all columns by name."""
        return {rule.name: self.column(rule.name) for rule in self.RULES}

    @classmethod
    def empty(cls) -> Self:
        """Return a table without rows."""
        return cls(**{rule.name: np.empty(0, rule.dtype) for rule in cls.RULES})


def checked(table: str, rule: Column, values: object, num_rows: int | None) -> Array:
    """Return `values` as a read-only column that obeys `rule`; one value stands for all `num_rows` rows."""
    array = _as_array(table, rule, rule.default if values is None else values)
    if array.ndim == 0 and num_rows is not None:
        array = np.broadcast_to(array, (num_rows,))
    if array.ndim != 1:
        raise ColumnError(table, rule.name, None, f"has {array.ndim} dimensions; a column has 1.")
    if num_rows is not None and len(array) != num_rows:
        raise ColumnError(table, rule.name, None, f"has {len(array)} rows; the table has {num_rows}.")
    _check_range(table, rule, array)
    column = array.astype(rule.dtype, copy=False) if array.strides != (0,) else _constant(array, rule.dtype)
    column = column.view()
    column.flags.writeable = False
    return column


def representative(array: Array) -> Array:
    """Return the rows worth looking at: the first alone where every row is one stored value."""
    return array[:1] if array.strides == (0,) else array


def sum_by(group: Array, amount: Floats, num_groups: int) -> Floats:
    """Return the sum of `amount` in each group."""
    return np.bincount(group, weights=amount, minlength=num_groups).astype(np.float64, copy=False)[:num_groups]


def mean_rate_Bps(size_bytes: Floats, duration_s: Floats) -> Floats:
    """Return bytes over duration; 0 where the time is so short (or none) that a rate means nothing."""
    moment = (duration_s <= 0) | (size_bytes > duration_s * MAX_RATE_BPS)
    return np.where(moment, 0.0, size_bytes / np.where(moment, 1.0, duration_s))


def check_rows(table: str, column: str, bad: npt.NDArray[np.bool_], array: Array, problem: str) -> None:
    """Raise for the first row that is `bad`; `problem` may show its value as {value}."""
    if bad.any():
        row = int(bad.argmax())
        raise ColumnError(table, column, row, problem.format(value=array[row].item()))


def _as_array(table: str, rule: Column, values: object) -> Array:
    if values is None:
        raise ColumnError(table, rule.name, None, "is missing and has no default.")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ColumnError(table, rule.name, None, f"is not a column of numbers: {error}.") from None
    if array.size == 0 and array.ndim == 1:
        return array.astype(rule.dtype) if array.dtype.kind in "iuf" else np.empty(0, rule.dtype)
    if array.dtype.kind not in ("iu" if rule.is_whole else "iuf"):
        wanted = "whole numbers" if rule.is_whole else "numbers"
        raise ColumnError(table, rule.name, None, f"holds {array.dtype}; it needs {wanted}.")
    return array


def _check_range(table: str, rule: Column, array: Array) -> None:
    seen = representative(array)
    if seen.dtype.kind == "f":
        check_rows(table, rule.name, ~np.isfinite(seen), seen, "{value} is not a finite number.")
    if len(seen) == 0 or (rule.low <= seen.min() and seen.max() <= rule.high):
        return
    check_rows(table, rule.name, seen < rule.low, seen, f"{{value}} is below {rule.low:.16g}.")
    check_rows(table, rule.name, seen > rule.high, seen, f"{{value}} is above {rule.high:.16g}.")


def _constant(array: Array, dtype: str) -> Array:
    if len(array) == 0:
        return np.empty(0, dtype)
    return np.broadcast_to(array[0].astype(dtype), array.shape)
