"""Frozen dataclasses whose fields are their JSON: what is left out, and which properties are part of it.

    @dataclass(frozen=True)
    class JobReport:
        took_s: float
        alone_s: float
        run: Handle[Outcome] = handle()     # serves properties and pages; no part of JSON, `==` and `pickle`

        @reported
        def slowdown(self) -> float:        # a property that is part of the JSON
            return self.took_s / self.alone_s

Values inside other values follow the same rules.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, computed_field
from pydantic_core import core_schema

if TYPE_CHECKING:
    from builtins import property as reported
else:
    reported = computed_field

__all__ = ["Handle", "handle", "is_handle", "reported"]

T = TypeVar("T")


class _Opaque:
    """Keeps pydantic from looking into the type of a handle."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        return core_schema.any_schema()


Handle = Annotated[T, _Opaque(), Field(exclude=True)]
"""The type of a field that serves properties and pages and is no part of JSON, `==` and `pickle`."""


def handle() -> Any:
    """Return the default of a `Handle` field."""
    return field(default=None, repr=False, compare=False, kw_only=True, metadata={"handle": True})


def is_handle(one: Any) -> bool:
    """Return whether a dataclass field is a handle."""
    return bool(one.metadata.get("handle"))
