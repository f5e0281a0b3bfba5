"""Read fields of a JSON document with their place: every wrong type or range is one clear `ScheduleError`."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import Ints

MAX_INT = 1 << 40
MAX_ITEMS = 1 << 24


@dataclass(frozen=True)
class Reader:
    """A JSON value and where it was found."""

    value: Any
    place: str

    def wrong(self, what: str) -> NoReturn:
        raise ScheduleError(f"expected {what}, found {_shown(self.value)}.", where=self.place)

    def has(self, key: str) -> bool:
        return key in self.fields()

    def fields(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            self.wrong("an object")
        return self.value

    def field(self, key: str) -> Reader:
        if key not in self.fields():
            raise ScheduleError(f'"{key}" is missing.', where=self.place)
        return Reader(self.value[key], f"{self.place}.{key}")

    def only(self, *keys: str) -> None:
        """Refuse fields nobody knows: a typing error must not pass in silence."""
        unknown = sorted(set(self.fields()) - set(keys))
        if unknown:
            raise ScheduleError(f'"{unknown[0]}" is not a field here.', where=self.place,
                                hint=f"Fields: {', '.join(keys)}.")  # fmt: skip

    def items(self) -> list[Reader]:
        if not isinstance(self.value, list) or len(self.value) > MAX_ITEMS:
            self.wrong(f"a list of at most {MAX_ITEMS:,}")
        return [Reader(item, f"{self.place}[{k}]") for k, item in enumerate(self.value)]

    def integer(self, low: int = -MAX_INT, high: int = MAX_INT) -> int:
        if type(self.value) is not int or not low <= self.value <= high:
            self.wrong(f"a whole number from {low} to {high}")
        return int(self.value)

    def text(self, limit: int = 1000) -> str:
        if not isinstance(self.value, str) or len(self.value) > limit:
            self.wrong(f"text of at most {limit} characters")
        return str(self.value)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.wrong("true or false")
        return bool(self.value)

    def integers(self, low: int = -MAX_INT, high: int = MAX_INT) -> Ints:
        """Read a list of whole numbers; a single number stands for a column of it."""
        if type(self.value) is int:
            return np.asarray([self.integer(low, high)], dtype=np.int64)
        if not isinstance(self.value, list) or len(self.value) > MAX_ITEMS:
            self.wrong("a list of whole numbers")
        if any(type(item) is not int for item in self.value):
            next(item for item in self.items() if type(item.value) is not int).integer()
        for item in (min(self.value), max(self.value)) if self.value else ():
            if not low <= item <= high:
                Reader(item, f"{self.place}[{self.value.index(item)}]").integer(low, high)
        return np.asarray(self.value, dtype=np.int64)

    def fraction(self) -> Fraction:
        text = self.text(64)
        top, _, bottom = text.partition("/")
        try:
            return Fraction(int(top), int(bottom or 1))
        except (ValueError, ZeroDivisionError):
            self.wrong('a share such as "1/2"')


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
