"""Answers: frozen values that a question returns; the command line, pages and notebooks only render them.

answer = syncline.simulate("h100-64-rail", "allreduce", "1GiB")
answer.to_json()      # what `syncline simulate --json` prints
print(answer)         # what `syncline simulate` prints
answer.page("a.html") # what `--html` writes, where the verb has a page
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from syncline.describe.plain import JsonObject
from syncline.fabric import Fabric, load

Cluster = str | Path | Mapping[str, object] | Fabric
"""A preset's name, a cluster file, a description as a mapping, or a Fabric that was built already."""


class Renderer(Protocol):
    """What `report` gives: answers as text and as pages."""

    def text(self, answer: Answer) -> str: ...
    def page(self, answer: Answer) -> str: ...
    def inset(self, answer: Answer) -> str: ...


class Answer(ABC):
    """One answer. It prints as its command prints it, and has the JSON that `--json` gives."""

    @abstractmethod
    def to_json(self) -> JsonObject:
        """Return the object that `--json` prints."""

    def __init_subclass__(cls) -> None:
        # A dataclass would write out all of its fields, thousands of letters of some.
        cls.__repr__ = cls.__dict__.get("__repr__", Answer.__repr__)  # type: ignore[method-assign]

    def __str__(self) -> str:
        return _renderer().text(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).strip().partition(chr(10))[0]} ...>"

    def _repr_html_(self) -> str:
        return _renderer().inset(self)

    def page(self, path: str | Path) -> Path:
        """Write the answer as one self-contained page and return its path."""
        from syncline.describe.files import write_text

        target = Path(path)
        write_text(target, _renderer().page(self))
        return target


def built(cluster: Cluster) -> Fabric:
    """Return the Fabric of a preset, a file, a mapping, or the Fabric itself."""
    return cluster if isinstance(cluster, Fabric) else load(cluster)


def _renderer() -> Renderer:
    """Return what renders answers. It stands above this layer, so it is found by name and never imported from here."""
    return cast(Renderer, import_module("syncline.report.rendered"))
