"""A console on which a table is never narrower than its longest words: a narrow terminal wraps lines, not letters."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_ANY_WIDTH = 10_000


class RoomyConsole(Console):
    """A console that gives tables the room they need."""

    def print(self, *objects: Any, **how: Any) -> None:
        room = self.options.update(width=_ANY_WIDTH)
        tables = [Measurement.get(self, room, item).minimum for item in objects if isinstance(item, Table)]
        terminal, self.width = self.width, max(self.width, *tables, 0)
        try:
            super().print(*objects, **how)
        finally:
            self.width = terminal
