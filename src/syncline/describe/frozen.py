"""Frozen dataclasses that hold NumPy columns: they compare by content, pickle, copy, and stay read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import fields

import numpy as np


class FrozenColumns:
    """Base of a `@dataclass(frozen=True, eq=False)` whose fields may be arrays; derived values are not pickled."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self._fields(), other._fields()
        return self is other or all(_same(value, theirs[name]) for name, value in mine.items())

    def __hash__(self) -> int:
        sizes = (len(value) for value in self._fields().values() if isinstance(value, Sized))
        return hash((type(self).__name__, *sizes))

    def __getstate__(self) -> dict[str, object]:
        return self._fields()

    def __setstate__(self, state: Mapping[str, object]) -> None:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        self.__dict__.update(state)

    def _fields(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


def _same(left: object, right: object) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    return bool(left == right)
