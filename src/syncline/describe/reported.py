"""A property that is part of the JSON of the value it belongs to, as the fields are.

@dataclass(frozen=True)
class JobReport:
    took_s: float
    alone_s: float

    @reported
    def slowdown(self) -> float:
        return self.took_s / self.alone_s
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builtins import property as reported
else:

    def reported(function):
        """Return the property, marked for pydantic, which is loaded with the first value that has one."""
        from pydantic import computed_field

        return computed_field(function)


__all__ = ["reported"]
