"""Answers: frozen values that a question returns. JSON, schema, text and page all derive from their fields.

    answer = syncline.simulate("h100-64-rail", "allreduce", "1GiB")
    answer.to_json()       # what `syncline simulate --json` prints
    print(answer)          # what `syncline simulate` prints
    answer.page("a.html")  # what `--html` writes, where the answer has a page

A field is part of the JSON unless its type is `Handle[...]`: a handle (the fabric, a run that can be drawn) serves
properties and pages. A property marked `@reported` (`describe/reported.py`) is part of
the JSON too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeVar

from syncline.describe.files import write_text
from syncline.describe.plain import JsonObject, plain
from syncline.questions.schema import strict_schema

if TYPE_CHECKING:
    from pydantic import TypeAdapter


T = TypeVar("T")


class Renderer(Protocol):
    """What turns answers into text and pages. `syncline/__init__.py` hands it down; nothing here imports it."""

    def text(self, answer: Answer) -> str: ...
    def page(self, answer: Answer) -> str: ...
    def inset(self, answer: Answer) -> str: ...


class _Opaque:
    """Keeps pydantic from looking into the type of a handle."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


Handle = Annotated[T, _Opaque()]
"""The type of a field that serves properties and pages and is no part of the JSON, of `==` and of `pickle`."""


def handle() -> Any:
    """Return the default of a `Handle` field."""
    return field(default=None, repr=False, compare=False, kw_only=True, metadata={"handle": True})


@dataclass(frozen=True)
class Output:
    """A file or folder that a command writes of an answer: `--html page.html`."""

    help: str
    write: Callable[[Any, Path], Iterable[Path] | object]
    """Writes it; returns the files where it writes several."""
    folder: bool = False
    names: tuple[str, ...] = ()
    """Option names, where the key with dashes will not do."""
    check: Callable[[Path], object] = lambda path: None
    """Raises where such a file cannot be written: called before the question is asked."""


class Answer:
    """One answer. It prints as its command prints it, and has the JSON that `--json` gives."""

    schema_name: ClassVar[str]
    """What its schema is called: `plan`, `simulate-buffers`."""
    schema_version: ClassVar[int] = 1
    """Counts changes of the JSON that a reader of the old one would stumble over."""
    outputs: ClassVar[Mapping[str, Output]] = MappingProxyType({})
    renderer: ClassVar[Renderer]
    """Set by `syncline/__init__.py`."""

    def __init_subclass__(cls) -> None:
        # A dataclass would write out all of its fields, thousands of letters of some.
        cls.__repr__ = cls.__dict__.get("__repr__", Answer.__repr__)  # type: ignore[method-assign]

    @property
    def exit_status(self) -> int:
        """The exit status of the command that prints this answer."""
        return 0

    def to_json(self) -> JsonObject:
        """Return the object that `--json` prints."""
        found = _adapter(type(self)).dump_python(
            self, exclude=set(_handles(type(self))), fallback=plain, warnings=False
        )
        return {str(key): plain(value) for key, value in found.items()}

    @classmethod
    def schema(cls) -> JsonObject:
        """Return the JSON schema of `to_json()`."""
        return strict_schema(
            _adapter(cls).json_schema(mode="serialization"), cls.schema_name, cls.schema_version, _handles(cls)
        )

    def __str__(self) -> str:
        return self.renderer.text(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {str(self).strip().partition(chr(10))[0]} ...>"

    def _repr_html_(self) -> str:
        return self.renderer.inset(self)

    def page(self, path: str | Path) -> Path:
        """Write the answer as one self-contained page and return its path."""
        target = Path(path)
        write_text(target, self.renderer.page(self))
        return target

    def __getstate__(self) -> dict[str, object]:
        """Return the fields without handles, which hold engines and caches of this process."""
        kept = {each.name for each in fields(self)} - _handles(type(self))  # type: ignore[arg-type]
        return {name: value for name, value in self.__dict__.items() if name in kept}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(dict.fromkeys(_handles(type(self))) | state)

    def __copy__(self) -> Answer:
        return self

    def __deepcopy__(self, memo: object) -> Answer:
        return self


def page_output(help: str) -> dict[str, Output]:
    """Return `--html`, with what stands on the page."""
    return {"html": Output(help, Answer.page)}


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return pydantic's reading of an answer's fields, made once."""
    if kind not in _ADAPTERS:
        from pydantic import ConfigDict, TypeAdapter

        kind.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, use_attribute_docstrings=True)
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _handles(kind: type[Any]) -> frozenset[str]:
    return frozenset(each.name for each in fields(kind) if each.metadata.get("handle"))
