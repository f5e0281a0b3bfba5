"""What renders answers. `syncline/__init__.py` puts it here, so that answers, which stand below it, can ask for it."""

from __future__ import annotations

from typing import Protocol

WIDTH = 120
"""Columns of text that no terminal shows: piped, in a file, on a page."""


class Renderer(Protocol):
    """Turns answers into text and pages."""

    def text(self, answer: object) -> str: ...
    def page(self, answer: object) -> str: ...
    def inset(self, answer: object) -> str: ...
    def pictures(self, answer: object) -> dict[str, str]: ...


class NoRenderer:
    """Stands in until the package's face has put the real one here."""

    def text(self, answer: object) -> str:
        return object.__repr__(answer)

    page = inset = text

    def pictures(self, answer: object) -> dict[str, str]:
        return {}


current: Renderer = NoRenderer()
